"""Length-prefixed blobs: null and empty differ, no length reaches over the end, and the cursor advances correctly."""

from __future__ import annotations

import pytest

from storage.coding.cursor import Cursor, decode_blob
from storage.coding.varint import INT64_MAX, encode_varint
from storage.errors import Corrupt, Truncated

CASES = [
    (None, "01"),
    (b"", "00"),
    (b"k", "02 6b"),
    (bytes(64), "8001" + "00" * 64),
    (b"v" * 8192, "808001" + "76" * 8192),
]


@pytest.mark.parametrize(("value", "text"), CASES)
def test_blobs(value: bytes | None, text: str) -> None:
    data = bytes.fromhex(text)
    assert decode_blob(data, 0, len(data)) == (value, len(data))
    assert decode_blob(b"..." + data + b"...", 3, len(data) + 3) == (value, len(data) + 3)


@pytest.mark.parametrize("length", [-2, -64, -(2**40)])
def test_any_negative_length_is_null(length: int) -> None:
    data = encode_varint(length)
    assert decode_blob(data, 0, len(data)) == (None, len(data))


@pytest.mark.parametrize("length", [4, 100, 2**31, INT64_MAX])
def test_a_length_over_the_end(length: int) -> None:
    data = encode_varint(length) + b"abc"
    with pytest.raises(Corrupt) as caught:
        decode_blob(data + bytes(200), 0, len(data))
    assert caught.value.facts()["expected"] == "at most 3"
    assert caught.value.facts()["found"] == str(length)


def test_a_cut_length() -> None:
    with pytest.raises(Truncated):
        decode_blob(b"\x80", 0, 1)
    with pytest.raises(Truncated):
        decode_blob(b"", 0, 0)


def test_a_length_that_itself_lies_over_the_end() -> None:
    with pytest.raises(Corrupt):
        decode_blob(b"\x02a", 0, 0)


def test_the_cursor_moves() -> None:
    cursor = Cursor(b"\xff" + bytes.fromhex("ac02 02 6b 01 00"), 1, 7)
    assert (cursor.varint(), cursor.blob(), cursor.blob(), cursor.blob()) == (150, b"k", None, b"")
    assert cursor.position == cursor.end == 7


def test_a_refused_read_leaves_the_cursor_where_it_was() -> None:
    cursor = Cursor(b"\x08abc", 0, 4)
    with pytest.raises(Corrupt):
        cursor.blob()
    assert cursor.position == 0
