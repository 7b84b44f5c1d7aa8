"""The zero tail of preallocated files: found exactly, at every boundary of the searched blocks."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, Truncated
from storage.kafka.format.sparse_index import content_end, require_end, unpack_before

BLOCK = 1 << 16


@pytest.mark.parametrize("end", [0, 1, 7, 8, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("zeros", [0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_content_ends_behind_the_last_byte_that_is_not_zero(end: int, zeros: int) -> None:
    content = bytes(end - 1) + b"\x01" if end else b""
    assert content_end(content + bytes(zeros)) == end


@given(st.binary(max_size=40), st.integers(0, 40))
def test_content_end_is_that_of_a_plain_strip(content: bytes, zeros: int) -> None:
    data = content + bytes(zeros)
    assert content_end(data) == len(data.rstrip(b"\0"))


@pytest.mark.parametrize(
    ("data", "end", "entries"),
    [
        (b"", 0, []),
        (bytes(8), 0, []),
        (b"\0\1\0\2", 4, [(1,), (2,)]),
        (b"\1\0\2\0\0\0", 3, [(256,), (512,)]),  # an entry that ends in a zero byte
        (b"\0\1\0\2\3", 5, [(1,), (2,)]),  # a part of an entry
        (b"\0\1\0\2\0", 4, [(1,), (2,)]),
    ],
)
def test_entries_that_hold_content(data: bytes, end: int, entries: list[tuple[int]]) -> None:
    assert unpack_before(data, end, struct.Struct(">h")) == entries


def test_what_the_entries_do_not_cover_is_damage() -> None:
    require_end("x", b"\1\2\0\0", position=2, end=2, size_bytes=2)
    with pytest.raises(Corrupt) as corrupt:
        require_end("x", b"\1\2\0\1", position=2, end=4, size_bytes=2)
    assert (corrupt.value.facts()["position"], corrupt.value.facts()["found"]) == (2, "0001")
    with pytest.raises(Truncated) as truncated:
        require_end("x", b"\1\2\1", position=2, end=3, size_bytes=2)
    assert truncated.value.facts() == {"kind": "x", "position": 2, "needed": 2}
