"""`.timeindex`: one table for both directions, every cut, every flipped bit, and the entry that is all zeros."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument, Truncated
from storage.kafka.format.sparse_index import time_index

ENTRY_SIZE = time_index.entry_size
decode_entries = time_index.decode_entries
encode_entry = time_index.encode_entry
leading_entries = time_index.leading_entries

CASES = [
    pytest.param([], "", id="empty"),
    pytest.param([(0, 0)], "0000000000000000 00000000", id="zero is a time"),
    pytest.param([(0, 3)], "0000000000000000 00000003", id="time zero later"),
    pytest.param(
        [(0, 0), (1, 0)],
        "0000000000000000 00000000 0000000000000001 00000000",
        id="zeros and another",
    ),
    pytest.param([(1700000000084, 0)], "0000018bcfe56854 00000000", id="one batch"),
    pytest.param(
        [(1700000000084, 7), (1700000000085, 13)],
        "0000018bcfe56854 00000007 0000018bcfe56855 0000000d",
        id="two",
    ),
    pytest.param([(2**63 - 1, 2**31 - 1)], "7fffffffffffffff 7fffffff", id="largest"),
]
THREE = [(1, 1), (1700000000000, 256), (1 << 62, 2**31 - 1)]


def encode(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(encode_entry(timestamp, offset) for timestamp, offset in entries)


@pytest.mark.parametrize(("entries", "text"), CASES)
def test_both_directions(entries: list[tuple[int, int]], text: str) -> None:
    data = bytes.fromhex(text)
    assert encode(entries) == data
    assert decode_entries(data) == entries
    assert len(leading_entries(data)) == len(entries)


@pytest.mark.parametrize("zeros", [1, 11, 12, 13, 100_000])
def test_a_preallocated_tail_is_no_entry(zeros: int) -> None:
    data = encode(THREE) + bytes(zeros)
    assert decode_entries(data) == THREE
    assert len(leading_entries(data)) == 3


def test_zeros_longer_than_one_entry_are_a_tail() -> None:
    assert decode_entries(bytes(13)) == []
    assert decode_entries(bytes(24)) == []
    assert decode_entries(bytes(10_485_756)) == []


@pytest.mark.parametrize("cut", range(len(encode(THREE))))
def test_cut_at_every_byte(cut: int) -> None:
    data = encode(THREE)[:cut]
    whole = cut // ENTRY_SIZE
    assert leading_entries(data) == THREE[:whole]
    if any(data[whole * ENTRY_SIZE :]):
        with pytest.raises(Truncated) as caught:
            decode_entries(data)
        assert caught.value.facts()["position"] == whole * ENTRY_SIZE
        assert caught.value.facts()["needed"] == ENTRY_SIZE
    else:
        assert decode_entries(data) == THREE[:whole]


@pytest.mark.parametrize("bit", range(len(encode(THREE)) * 8))
def test_a_flipped_bit_never_passes_for_the_same(bit: int) -> None:
    data = bytearray(encode(THREE))
    data[bit // 8] ^= 1 << bit % 8
    assert leading_entries(bytes(data)) != THREE


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (0, [(-1, 5)]),
        (0, [(5, -1)]),
        (1, [(50, 5), (50, 6)]),
        (1, [(50, 5), (49, 6)]),
        (1, [(50, 5), (51, 4)]),
        (2, [(50, 5), (60, 6), (0, 0), (70, 7)]),  # zeros, but not up to the end
    ],
)
def test_entries_that_do_not_rise_are_corrupt(good: int, bad: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">qi", *entry) for entry in bad)
    assert leading_entries(data) == bad[:good]
    assert len(leading_entries(data)) == good
    with pytest.raises(Corrupt) as caught:
        decode_entries(data)
    assert caught.value.facts()["position"] == good * ENTRY_SIZE


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1), (2**63, 0), (0, 2**31)])
def test_what_is_no_entry_is_not_encoded(entry: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument):
        encode_entry(*entry)


@given(
    st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=30).map(sorted),
    st.lists(st.integers(0, 2**31 - 1), max_size=30).map(sorted),
)
def test_round_trip(times: list[int], offsets: list[int]) -> None:
    entries = list(zip(times, offsets, strict=False))
    assert decode_entries(encode(entries)) == entries


def outcome(data: bytes) -> object:
    """Return the entries, or the DataError; any other error fails the test."""
    try:
        return decode_entries(data)
    except DataError as error:
        return error


@given(st.binary(max_size=100))
def test_any_bytes_decode_or_raise_in_the_tree(data: bytes) -> None:
    count = len(leading_entries(data))
    assert encode(leading_entries(data)) == data[: count * ENTRY_SIZE]
    result = outcome(data)
    if isinstance(result, DataError):
        assert result.facts()["position"] == count * ENTRY_SIZE
    else:
        assert result == leading_entries(data)
