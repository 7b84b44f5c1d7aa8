"""Produce bodies with any content give values or a 4xx, nothing else; fetched rows give the same bytes again."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.errors import ApiError, status_of
from api.http.negotiation import Format
from api.records.decode import Limits, Produced, decode_produce
from api.records.encode import encode_page
from storage import OffsetBounds, Page, StoredRecord, TopicPartition

LIMITS = Limits(max_records=20, max_depth=16)
FIELDS = ["key", "value", "partition", "timestamp", "headers", "tag", "keys", "properties", "x"]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FIELDS, "records"]), inner, max_size=3)
    ),
    max_leaves=12,
)
records = st.lists(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=4), max_size=25)
bodies = (
    st.binary(max_size=60)
    | anything.map(lambda value: json.dumps(value).encode())
    | records.map(lambda value: json.dumps({"records": value}).encode())
)


@given(body=bodies, kind=st.sampled_from(Format))
def test_a_body_is_values_or_a_4xx(body: bytes, kind: Format) -> None:
    outcome = attempted(body, kind)
    if isinstance(outcome, ApiError):
        assert 400 <= status_of(outcome.error_code) < 500
    else:
        check(outcome)


def attempted(body: bytes, kind: Format) -> Produced | ApiError:
    try:
        return decode_produce(body, kind, LIMITS)
    except ApiError as error:
        return error


def check(decoded: Produced) -> None:
    assert 0 < decoded.count <= LIMITS.max_records
    failed = [position for position, _ in decoded.failed]
    assert sorted([*decoded.positions, *failed]) == list(range(decoded.count))
    assert len(decoded.records) == len(decoded.positions)
    assert decoded.partitions is None or len(decoded.partitions) == len(decoded.records)
    for position, error in decoded.failed:
        assert status_of(error.error_code) == 422
        assert f"records[{position}]" in error.message


optional_bytes = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3)


@given(rows=st.lists(st.tuples(optional_bytes, optional_bytes, headers), min_size=1, max_size=5))
def test_what_is_fetched_in_binary_can_be_produced_again(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    stored = [StoredRecord(i, 5, key, value, given) for i, (key, value, given) in enumerate(rows)]
    decoded = produced_again(stored, Format.BINARY)
    assert [(r.key, r.value, list(r.headers)) for r in decoded.records] == rows


@given(values=st.lists(anything.map(lambda value: json.dumps(value).encode()), min_size=1))
def test_json_comes_back_byte_for_byte(values: list[bytes]) -> None:
    values = [b"[1]" if value == b"null" else value for value in values[:10]]
    stored = [StoredRecord(i, 5, None, value) for i, value in enumerate(values)]
    assert [r.value for r in produced_again(stored, Format.JSON).records] == values


def produced_again(stored: list[StoredRecord], kind: Format) -> Produced:
    page = Page(stored, len(stored), OffsetBounds(0, len(stored), len(stored)))
    text = encode_page(TopicPartition("t", 0), page, kind).decode()
    # Cut the members that only a fetched row has; everything else stays as the server wrote it.
    for offset in range(len(stored)):
        text = text.replace(f'"topic":"t","partition":0,"offset":{offset},', "", 1)
    decoded = decode_produce(f'{{"records":{text}}}'.encode(), kind, LIMITS)
    assert not decoded.failed
    return decoded


@pytest.mark.parametrize("depth", [13, 14])
def test_depth_is_counted_outside_of_text(depth: int) -> None:
    value: Any = '[[[["{{{{\\"'
    for _ in range(depth):
        value = [value]
    body = json.dumps({"records": [{"value": value, "headers": []}]}).encode()
    decoded = decode_produce(body, Format.JSON, LIMITS)
    assert len(decoded.failed) == (depth - 13)
