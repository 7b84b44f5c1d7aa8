"""Variable-length integers: one table for both directions, every cut, longer forms than needed, the 64-bit limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.varint import (
    INT64_MAX,
    INT64_MIN,
    TABLE_SIZE,
    UINT64_MAX,
    VARINTS,
    decode_uvarint,
    decode_varint,
    encode_uvarint,
    encode_varint,
)
from storage.errors import Corrupt, InvalidArgument, Truncated

ZIG_ZAG = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-2, "03"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (150, "ac02"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (1_048_576, "80808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**35, "80808080 8002"),
    (2**62, "80808080 80808080 8001"),
    (-(2**62) - 1, "81808080 80808080 8001"),
    (INT64_MAX, "feffffff ffffffff ff01"),
    (INT64_MIN, "ffffffff ffffffff ff01"),
]
PLAIN = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2**32 - 1, "ffffffff0f"),
    (2**63 - 1, "ffffffff ffffffff 7f"),
    (2**63, "80808080 80808080 8001"),
    (UINT64_MAX, "ffffffff ffffffff ff01"),
]
TOO_LONG = ["ffffffff ffffffff ff02", "80808080 80808080 808001", "ff" * 20, "80" * 9 + "7f"]


@pytest.mark.parametrize(("value", "text"), ZIG_ZAG)
def test_zig_zag_both_directions(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_varint(value) == data
    assert decode_varint(data, 0) == (value, len(data))
    assert decode_varint(b"\xff\xff" + data + b"\xff", 2) == (value, 2 + len(data))


@pytest.mark.parametrize(("value", "text"), PLAIN)
def test_plain_both_directions(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_uvarint(value) == data
    assert decode_uvarint(data, 0) == (value, len(data))
    assert decode_uvarint(b"\xff\xff" + data + b"\xff", 2) == (value, 2 + len(data))


@pytest.mark.parametrize("decode", [decode_varint, decode_uvarint])
@pytest.mark.parametrize("text", ["", "80", "8080", "ffffffff ffffffff ff"])
def test_cut(decode: type, text: str) -> None:
    data = bytes.fromhex(text)
    for start in (0, 3):
        with pytest.raises(Truncated) as caught:
            decode(bytes(start) + data, start)
        assert caught.value.facts() == {"kind": "varint", "position": start, "needed": 1}


@pytest.mark.parametrize("decode", [decode_varint, decode_uvarint])
@pytest.mark.parametrize("text", TOO_LONG)
def test_longer_than_64_bits(decode: type, text: str) -> None:
    with pytest.raises(Corrupt) as caught:
        decode(bytes.fromhex("00" + text), 1)
    assert caught.value.facts()["position"] == 1


@pytest.mark.parametrize("text", ["80 00", "80 80 00", "80" * 9 + "00"])
def test_longer_forms_than_needed_are_read(text: str) -> None:
    data = bytes.fromhex(text)
    assert decode_varint(data, 0) == (0, len(data))
    assert decode_uvarint(data, 0) == (0, len(data))


@pytest.mark.parametrize("value", [INT64_MIN - 1, INT64_MAX + 1, 2**70])
def test_what_is_no_signed_64_bit_number(value: int) -> None:
    with pytest.raises(InvalidArgument):
        encode_varint(value)


@pytest.mark.parametrize("value", [-1, UINT64_MAX + 1])
def test_what_is_no_unsigned_64_bit_number(value: int) -> None:
    with pytest.raises(InvalidArgument):
        encode_uvarint(value)


def test_the_table_holds_one_and_two_bytes() -> None:
    assert len(VARINTS) == TABLE_SIZE
    assert {len(data) for data in VARINTS} == {1, 2}
    assert len(encode_varint(TABLE_SIZE)) == 3


@given(st.integers(INT64_MIN, INT64_MAX))
def test_any_signed_number_comes_back(value: int) -> None:
    data = encode_varint(value)
    assert decode_varint(data, 0) == (value, len(data))


@given(st.integers(0, UINT64_MAX))
def test_any_unsigned_number_comes_back(value: int) -> None:
    data = encode_uvarint(value)
    assert decode_uvarint(data, 0) == (value, len(data))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_number_or_refused(data: bytes) -> None:
    try:
        value, following = decode_varint(data, 0)
    except (Truncated, Corrupt):
        return
    assert INT64_MIN <= value <= INT64_MAX
    assert 1 <= following <= min(10, len(data))
    assert decode_uvarint(data, 0)[1] == following
