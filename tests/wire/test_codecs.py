"""The generated messages hold the same bytes as the walk of the table, in every version; foreign bytes are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kafka.protocol.messages import APIS
from api.kafka.protocol.primitives import MAX_ITEMS, Malformed, Reader, Writer
from storage.kafka.format.messages.codec import UNKNOWN_TAGS, decode, encode
from storage.kafka.format.messages.schema import STRUCT, Field, messages
from tests.wire.harness import API_VERSIONS

ROOT = Path(__file__).resolve().parents[2]
FRAMES = Path(__file__).parent / "edges" / "frames.jsonl"
"""What public clients and the real broker sent each other: edges/recording.py."""
CLIENTS = {"aiokafka": 20, "confluent-kafka": 26, "java": 30, "kafka-python": 24, "kcat": 11}
"""The clients of the recording, and from how many APIs on they have frames there."""
NOT_RECORDED = {17, 23, 27, 34, 36, 45}
"""SASL, the broker's own WriteTxnMarkers, and what the recorded calls of the clients do not need."""
PRODUCE = 0
NAMES = sorted(kind.__name__ for api in APIS.values() for kind in (api.request, api.response))
CLASSES = {kind.__name__: kind for api in APIS.values() for kind in (api.request, api.response)}
_ONE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.binary(min_size=16, max_size=16),
}


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    one = structs(field.fields, version) if field.type == STRUCT else _ONE[field.type]
    value = st.lists(one, max_size=2) if field.is_array else one
    return st.none() | value if version in field.nullable else value


def structs(fields: Any, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the fields of a message or struct, as the walk of the table takes them."""
    inner = {
        field.name: _values(field, version)
        for field in fields
        if version in field.versions or version in field.tagged
    }
    return st.fixed_dictionaries(inner)


@cache
def bodies(name: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy for a message, the same object each time: Hypothesis validates each new one."""
    return structs(messages()[name].fields, version)


def _is_flexible(name: str, version: int) -> bool:
    return version in messages()[name].flexible


def _read(name: str, version: int, data: bytes) -> Any:
    reader = Reader(data, flexible=_is_flexible(name, version))
    message = CLASSES[name].read(reader, version)
    assert reader.left == 0
    return message


def _written(message: Any, version: int) -> bytes:
    writer = Writer(flexible=_is_flexible(type(message).__name__, version))
    message.write(writer, version)
    return b"".join(writer.parts)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_same_bytes_as_the_table(name: str, data: st.DataObject) -> None:
    schema = messages()[name]
    version = data.draw(st.sampled_from(list(schema.versions)))
    expected = encode(name, version, data.draw(bodies(name, version)))
    message = _read(name, version, expected)
    assert _written(message, version) == expected
    assert _read(name, version, expected) == message


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_those_of_the_table(name: str) -> None:
    for version in messages()[name].versions:
        assert _written(CLASSES[name](), version) == encode(name, version, {})


@pytest.mark.parametrize("name", NAMES)
def test_unknown_tags_are_skipped(name: str) -> None:
    schema = messages()[name]
    for version in schema.versions:
        if version in schema.flexible:
            plain = encode(name, version, {})
            tagged = encode(name, version, {UNKNOWN_TAGS: {900: b"abc", 901: b""}})
            assert _read(name, version, tagged) == _read(name, version, plain)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_foreign_bytes_are_refused_or_read(name: str, data: st.DataObject) -> None:
    """Any bytes are a message or are Malformed; where the table reads a whole message, so does the class."""
    schema = messages()[name]
    version = data.draw(st.sampled_from(list(schema.versions)))
    whole = encode(name, version, data.draw(bodies(name, version)))
    at = data.draw(st.integers(0, max(len(whole) - 1, 0)))
    cut = whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + 4 :]
    reader = Reader(cut, flexible=_is_flexible(name, version))
    try:
        message = CLASSES[name].read(reader, version)
    except Malformed:
        return
    assert decode(name, version, cut).end == reader.at
    assert _read(name, version, _written(message, version)) == message


def test_counts_are_bounded() -> None:
    with pytest.raises(Malformed, match="bytes are left"):
        Reader((2**31 - 1).to_bytes(4, "big")).count()
    with pytest.raises(Malformed, match="items in one message"):
        Reader((MAX_ITEMS + 1).to_bytes(4, "big") + bytes(MAX_ITEMS + 1)).count()
    with pytest.raises(Malformed, match="varint"):
        Reader(b"\xff" * 9, flexible=True).count()


def test_generated_modules_are_current() -> None:
    result = subprocess.run(
        [sys.executable, "-P", str(ROOT / "scripts" / "kafka_messages"), "--check"], check=False
    )
    assert result.returncode == 0, "run scripts/kafka_messages"


def _frames() -> list[tuple[str, int, int, bytes, bytes]]:
    """Return the recorded frames: client, API, version, request, response."""
    rows = map(json.loads, FRAMES.read_text().splitlines())
    return [
        (
            row["client"],
            row["api"],
            row["version"],
            bytes.fromhex(row["request"]),
            bytes.fromhex(row["response"]),
        )
        for row in rows
    ]


def _request(key: int, version: int, frame: bytes) -> Any:
    """Return the message of a request; its head has no tags."""
    flexible = version >= APIS[key].flexible_from
    end = 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)
    assert frame[end : end + flexible] == bytes(flexible)
    return _same(APIS[key].request, version, frame[end + flexible :])


def _same(kind: type[Any], version: int, data: bytes) -> Any:
    """Return the message in these bytes, which are written the same."""
    message = _read(kind.__name__, version, data)
    assert _written(message, version) == data, (kind.__name__, version)
    return message


@pytest.mark.parametrize("client", [*CLIENTS, "broker"])
def test_recorded_frames_are_read_and_written(client: str) -> None:
    """The frames of public clients, and the real broker's answers, are read to the last byte, and written the same."""
    frames = [frame for frame in _frames() if frame[0] == client]
    assert frames
    for _, key, version, request, response in frames:
        _request(key, version, request)
        has_tags = version >= APIS[key].flexible_from and key != API_VERSIONS
        assert response[:4] == request[4:8]
        assert response[4 : 4 + has_tags] == bytes(has_tags)
        _same(APIS[key].response, version, response[4 + has_tags :])


def test_recorded_frames_are_of_many_apis_and_clients() -> None:
    seen = {client: {key for name, key, *_ in _frames() if name == client} for client in CLIENTS}
    assert [client for client, least in CLIENTS.items() if len(seen[client]) < least] == []
    assert set(APIS) - set().union(*seen.values()) <= NOT_RECORDED
    transactional = {
        client
        for client, key, version, request, _ in _frames()
        if key == PRODUCE and _request(key, version, request).transactional_id is not None
    }
    assert transactional == set(CLIENTS) - {"kcat"}
