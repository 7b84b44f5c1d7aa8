"""Properties: the real parser's result for every form, properties that cannot be stored, the CRC property."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UnrepresentableRecord
from storage.rocketmq.format import properties
from storage.rocketmq.format.properties import (
    CRC_PROPERTY_SIZE,
    MAX_PROPERTIES_BYTES,
    RESERVED,
    SEPARATORS,
    SHARDING_KEY,
    TRANSACTION_ID,
    check_crc_property,
    closed_record,
    decode_properties,
    encode_crc_property,
    encode_properties,
    has_crc_property,
    with_crc_place,
)
from tests.formats.rocketmq_messages.cases import CASES, Case

PARSED = {
    "": {},
    "a\1b\2": {"a": "b"},
    "a\1b": {"a": "b"},
    "a\1b\2c\1d": {"a": "b", "c": "d"},
    "KEYS\1k 1  k2\2TAGS\1\u6807\2": {"KEYS": "k 1  k2", "TAGS": "\u6807"},
    "\1b\2": {},
    "a\1\2": {},
    "ab\2": {},
    "abc": {},
    "\1": {},
    "\2": {},
    "a\1b\1c\2": {"a": "b\1c"},
    "a\1b\2a\1c\2": {"a": "c"},
    "a\1b\2a\1\2": {"a": "b"},
    "\2\2a\1b\2\2": {"a": "b"},
    "a\1\1\2": {"a": "\1"},
    "\1\1a\2": {},
    "a\1\1": {"a": "\1"},
    "a\1b\2long\2c\1d\2": {"a": "b", "c": "d"},
}
"""Results of MessageDecoder.string2messageProperties of RocketMQ 5.5.0."""

NOT_UTF8 = {
    "6b01eda0807602": {"k": "\ufffdv"},
    "6b01eda07602": {"k": "\ufffdv"},
    "6b01eda080": {"k": "\ufffd"},
    "6b01eda0": {"k": "\ufffd"},
    "6b01ed": {"k": "\ufffd"},
    "6b01ff02": {"k": "\ufffd"},
    "6b01c3027a0176": {"k": "\ufffd", "z": "v"},
    "6b01f4908080780276017702": {"k": "\ufffd\ufffd\ufffd\ufffdx", "v": "w"},
    "6b01e28278": {"k": "\ufffdx"},
    "6b01f09f98": {"k": "\ufffd"},
    "6b01eda0bdedb88002": {"k": "\ufffd\ufffd"},
    "6b01c080": {"k": "\ufffd\ufffd"},
    "6b01f8808080800278017902": {"k": "\ufffd\ufffd\ufffd\ufffd\ufffd", "x": "y"},
    "eda08001eda0": {"\ufffd": "\ufffd"},
}
"""Results for invalid UTF-8, which Java 17 replaces before the parser sees it."""

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=SEPARATORS), min_size=1, max_size=20
)


@pytest.mark.parametrize("text", PARSED, ids=repr)
def test_decoding(text: str) -> None:
    found = decode_properties(text.encode())
    assert found == PARSED[text]
    assert list(found) == list(PARSED[text])


@pytest.mark.parametrize("data", NOT_UTF8)
def test_what_is_no_utf8_is_replaced_as_in_java(data: str) -> None:
    assert decode_properties(bytes.fromhex(data)) == NOT_UTF8[data]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_real_ones(case: Case) -> None:
    found = decode_properties(case.message.properties)
    closed = case.message.properties
    if closed and not closed.endswith(b"\2"):
        closed += b"\2"
    assert encode_properties(found) == closed


@given(st.dictionaries(texts, texts, max_size=6))
def test_any_properties_come_back(given_: dict[str, str]) -> None:
    data = encode_properties(given_)
    assert list(decode_properties(data).items()) == list(given_.items())
    assert data.count(b"\2") == len(given_)


@given(st.lists(st.sampled_from([b"a", b"b", b"\1", b"\2"])).map(b"".join))
def test_the_fast_way_for_ascii_finds_the_same(data: bytes) -> None:
    pieces = [piece.partition("\1") for piece in data.decode().split("\2")]
    expected = {name: value for name, _, value in pieces if name and value}
    for found in (properties._decode_ascii(data), decode_properties(data)):
        assert list(found.items()) == list(expected.items())


@given(
    st.binary(max_size=60) | st.lists(st.sampled_from([b"a", b"\1", b"\2", b"\xed"])).map(b"".join)
)
def test_nothing_is_refused(data: bytes) -> None:
    found = decode_properties(data)
    assert "" not in found
    assert "" not in found.values()
    assert not any("\2" in text for pair in found.items() for text in pair)


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({"": "v"}, "name is empty"),
        ({"n": ""}, "value of property 'n' is empty"),
        ({"a": "b", "n\1": "v"}, r"property 'n\\x01' holds a separator"),
        ({"n\2": "v"}, "holds a separator"),
        ({"n": "\1"}, "property 'n' holds a separator"),
        ({"n": "v\2"}, "holds a separator"),
        ({"n": "\ud800"}, "not valid Unicode"),
    ],
)
def test_what_cannot_be_kept(properties: dict[str, str], what: str) -> None:
    with pytest.raises(UnrepresentableRecord, match=what) as caught:
        encode_properties(properties)
    assert caught.value.facts() == {"field": "properties"}


def test_the_limit_counts_bytes() -> None:
    most = {"n": "v" * (MAX_PROPERTIES_BYTES - 3)}
    assert len(encode_properties(most)) == MAX_PROPERTIES_BYTES == 32767
    for more in ({**most, "n": most["n"] + "v"}, {"n": "ü" * 16383}):
        with pytest.raises(UnrepresentableRecord, match="the limit is 32767"):
            encode_properties(more)


def test_reserved_names() -> None:
    assert len(RESERVED) == 54
    assert {"KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "__CRC32#", "1ST_POP_TIME"} < RESERVED
    assert not {SHARDING_KEY, TRANSACTION_ID, "region"} & RESERVED


def with_crc_property(record: bytes) -> bytes:
    """Return the record with its CRC property appended."""
    (case,) = [one for one in CASES if one.data == record]
    at = len(record) - len(case.message.properties) - 2
    properties_size = len(case.message.properties) + CRC_PROPERTY_SIZE
    sized = (len(record) + CRC_PROPERTY_SIZE).to_bytes(4) + record[4:at]
    sized += properties_size.to_bytes(2) + record[at + 2 :]
    return sized + encode_crc_property(sized)


def test_the_crc_property_turns_its_digits_round() -> None:
    data = b"1234567890"
    assert crc32(data) & 0x7FFFFFFF == 639479525
    assert encode_crc_property(data) == b"__CRC32#\x015259749360\x02"
    small = next(b"%d" % n for n in range(99_999) if crc32(b"%d" % n) & 0x7FFFFFFF < 1_000_000)
    assert encode_crc_property(small).endswith(b"0000\x02")
    assert len(encode_crc_property(b"")) == CRC_PROPERTY_SIZE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_crc_property_guards_every_bit(case: Case) -> None:
    assert not has_crc_property(case.data)
    assert not check_crc_property(case.data)
    data = with_crc_property(case.data)
    assert has_crc_property(data)
    assert check_crc_property(data)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not check_crc_property(bytes(damaged))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_record_is_closed_by_its_crc(case: Case) -> None:
    right = with_crc_property(case.data)
    assert closed_record(right) == right
    assert closed_record(right[:-CRC_PROPERTY_SIZE] + bytes(CRC_PROPERTY_SIZE)) == right


@pytest.mark.parametrize("given", [b"", b"a\x01b\x02", b"a\x01b"])
def test_the_place_of_the_crc_is_behind_whole_properties(given: bytes) -> None:
    whole = given + b"\x02" if given and not given.endswith(b"\x02") else given
    placed = with_crc_place(given)
    assert placed == whole + b"__CRC32#\x010000000000\x02"
    assert with_crc_place(placed) == with_crc_place(whole + encode_crc_property(b"old")) == placed
