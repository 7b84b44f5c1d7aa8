"""Records of `__consumer_offsets`: all records of the golden store, every version by hand, cuts and invalid bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, UnsupportedFormat
from storage.kafka.format.offset_records import (
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from storage.kafka.format.properties import parse_uuid_text
from storage.model import StoredRecord
from tests.golden.stores import KAFKA, GoldenPartition, open_golden

TOPIC_ID = bytes(range(16))
KEY = OffsetKey("g", "t\u00e4", 7)
KEY_HEX = "0001 0001 67 0003 74c3a4 00000007"
# (value, bytes) for each version, from the description of the format
VALUES = [
    (
        OffsetValue(5, -1, "m", 1_000, None),
        "0000 0000000000000005 0001 6d 00000000000003e8",
    ),
    (
        OffsetValue(5, -1, "m", 1_000, None),
        "0001 0000000000000005 0001 6d 00000000000003e8 ffffffffffffffff",
    ),
    (
        OffsetValue(5, -1, "", 1_000, None),
        "0002 0000000000000005 0000 00000000000003e8",
    ),
    (
        OffsetValue(1 << 40, 9, "\u4e16", 1_000, None),
        "0003 0000010000000000 00000009 0003 e4b896 00000000000003e8",
    ),
    (
        OffsetValue(5, 9, "m", 1_000, None),
        "0004 0000000000000005 00000009 02 6d 00000000000003e8 00",
    ),
    (
        OffsetValue(5, -1, "", 1_000, TOPIC_ID),
        f"0004 0000000000000005 ffffffff 01 00000000000003e8 01 00 10 {TOPIC_ID.hex()}",
    ),
]


def golden_records() -> list[tuple[dict[str, object], StoredRecord]]:
    """Return every record of the golden store, as decoded by Kafka's own tool and as stored."""
    found = []
    with open_golden(KAFKA / "offsets" / "data", {}, read_only=True) as store:
        for number in range(4):
            part = GoldenPartition("offsets", f"__consumer_offsets-{number}")
            stored = {r.offset: r for r in store.scan(part.address)}
            found += [(line, stored[line["offset"]]) for line in part.lines("decoded.jsonl")]
    return found


def test_golden() -> None:
    """Keys and values are read as by Kafka's tool, and encoded again byte for byte."""
    offsets = 0
    for line, record in golden_records():
        assert record.key is not None
        key = decode_key(record.key)
        if line["type"] not in (0, 1):
            assert key is None
            continue
        assert key is not None
        assert key._asdict() == line["key"]
        assert encode_key(key) == record.key
        if line["value"] is None:
            assert record.value is None
            continue
        assert record.value is not None
        value = decode_value(record.value)
        assert value == expected(line["value"])
        assert encode_value(value) == record.value
        offsets += 1
    assert offsets == 22


def expected(reported: object) -> OffsetValue:
    assert isinstance(reported, dict)
    topic_id = reported.get("topicId")
    return OffsetValue(
        reported["offset"],
        reported["leaderEpoch"],
        reported["metadata"],
        reported["commitTimestamp"],
        None if topic_id is None else parse_uuid_text(topic_id, field="topicId"),
    )


def test_key() -> None:
    assert encode_key(KEY) == bytes.fromhex(KEY_HEX)
    assert decode_key(bytes.fromhex(KEY_HEX)) == KEY
    assert decode_key(bytes.fromhex("0000" + KEY_HEX[4:])) == KEY


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_value(value: OffsetValue, text: str) -> None:
    """Every version is read; the newest version is written."""
    data = bytes.fromhex(text)
    assert decode_value(data) == value
    if text.startswith("0004"):
        assert encode_value(value) == data


def test_unknown_tags_are_skipped() -> None:
    text = "0004 0000000000000005 ffffffff 01 00000000000003e8 02 05 03 aabbcc 8001 00"
    assert decode_value(bytes.fromhex(text)) == OffsetValue(5, -1, "", 1_000, None)


@pytest.mark.parametrize("topic_id", [None, bytes(range(16))])
def test_an_offset_beyond_the_end_has_a_tag_of_its_own(topic_id: bytes | None) -> None:
    """Tags are in the order of their numbers, as Kafka's readers require."""
    value = OffsetValue(5, -1, "", 1_000, topic_id, is_beyond_end=True)
    data = encode_value(value)
    assert decode_value(data) == value
    assert data.endswith(bytes.fromhex("904e00"))
    plain = encode_value(value._replace(is_beyond_end=False))
    assert len(data) == len(plain) + 3


@pytest.mark.parametrize("kind", [2, 3, 4, 9, 16, 32767, -1])
def test_other_types(kind: int) -> None:
    """Records of other types are no offset records, whatever their key holds."""
    assert decode_key(kind.to_bytes(2, "big", signed=True) + b"?") is None


@pytest.mark.parametrize("version", [5, 32767, -1])
def test_other_versions(version: int) -> None:
    with pytest.raises(UnsupportedFormat):
        decode_value(version.to_bytes(2, "big", signed=True) + bytes(40))


@pytest.mark.parametrize(
    ("decode", "text"),
    [(decode_key, KEY_HEX), *((decode_value, text) for _, text in VALUES)],
)
def test_cut_at_every_byte(decode: object, text: str) -> None:
    assert callable(decode)
    data = bytes.fromhex(text)
    for cut in range(len(data)):
        with pytest.raises(DataError):
            decode(data[:cut])


@pytest.mark.parametrize(
    "text",
    [
        "0000 0000000000000005 0001 ff 00000000000003e8",  # invalid UTF-8
        "0000 0000000000000005 7fff 6d 00000000000003e8",  # a length beyond the record
        "0004 0000000000000005 ffffffff 01 00000000000003e8 01 00 0f" + "00" * 15,  # a short id
    ],
)
def test_nonsense(text: str) -> None:
    with pytest.raises(Corrupt):
        decode_value(bytes.fromhex(text))


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """Any bytes give a result or a DataError."""
    for decode in (decode_key, decode_value):
        try:
            decode(data)
        except DataError:
            continue
