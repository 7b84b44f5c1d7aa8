"""`.index`: one table for both directions, every cut, every flipped bit, and invalid entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument, Truncated
from storage.kafka.format.sparse_index import offset_index

ENTRY_SIZE = offset_index.entry_size
decode_entries = offset_index.decode_entries
encode_entry = offset_index.encode_entry
leading_entries = offset_index.leading_entries

CASES = [
    pytest.param([], "", id="empty"),
    pytest.param([(1, 1)], "00000001 00000001", id="smallest"),
    pytest.param([(7, 453), (13, 908)], "00000007 000001c5 0000000d 0000038c", id="two"),
    pytest.param([(256, 65536)], "00000100 00010000", id="ends in zeros"),
    pytest.param([(2**31 - 1, 2**31 - 1)], "7fffffff 7fffffff", id="largest"),
]
THREE = [(1, 100), (256, 65536), (2**31 - 1, 2**24)]


def encode(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(encode_entry(offset, position) for offset, position in entries)


@pytest.mark.parametrize(("entries", "text"), CASES)
def test_both_directions(entries: list[tuple[int, int]], text: str) -> None:
    data = bytes.fromhex(text)
    assert encode(entries) == data
    assert decode_entries(data) == entries
    assert len(leading_entries(data)) == len(entries)


@pytest.mark.parametrize(("entries", "text"), CASES)
@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 100_000])
def test_a_preallocated_tail_is_no_entry(
    entries: list[tuple[int, int]], text: str, zeros: int
) -> None:
    data = bytes.fromhex(text) + bytes(zeros)
    assert decode_entries(data) == entries
    assert len(leading_entries(data)) == len(entries)


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
        (0, [(0, 5)]),
        (0, [(5, 0)]),
        (0, [(-1, 5)]),
        (0, [(5, -1)]),
        (1, [(5, 50), (5, 60)]),
        (1, [(5, 50), (4, 60)]),
        (1, [(5, 50), (6, 50)]),
        (1, [(5, 50), (6, 49), (7, 70)]),
        (2, [(5, 50), (6, 60), (0, 0), (7, 70)]),  # zeros, but not up to the end
    ],
)
def test_entries_that_do_not_rise_are_corrupt(good: int, bad: list[tuple[int, int]]) -> None:
    data = b"".join(
        offset.to_bytes(4, "big", signed=True) + position.to_bytes(4, "big", signed=True)
        for offset, position in bad
    )
    assert leading_entries(data) == bad[:good]
    assert len(leading_entries(data)) == good
    with pytest.raises(Corrupt) as caught:
        decode_entries(data)
    assert caught.value.facts()["position"] == good * ENTRY_SIZE


def test_stray_bytes_after_the_entries() -> None:
    data = encode(THREE) + b"\1\2\3"
    assert len(leading_entries(data)) == 3
    with pytest.raises(Truncated):
        decode_entries(data)


@pytest.mark.parametrize("entry", [(0, 1), (1, 0), (-1, 1), (2**31, 1), (1, 2**31)])
def test_what_is_no_entry_is_not_encoded(entry: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument):
        encode_entry(*entry)


rising = st.lists(st.integers(1, 2**31 - 1), unique=True, max_size=30).map(sorted)


@given(rising, rising, st.integers(0, 100))
def test_round_trip(offsets: list[int], positions: list[int], zeros: int) -> None:
    entries = list(zip(offsets, positions, strict=False))
    assert decode_entries(encode(entries) + bytes(zeros)) == entries


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
