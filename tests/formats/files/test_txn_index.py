"""`.txnindex`: one table for both directions, every cut, every flipped bit, and impossible transactions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument, Truncated, UnsupportedFormat
from storage.kafka.format.txn_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    decode_entries,
    encode_entry,
)

CASES = [
    pytest.param([], "", id="empty"),
    pytest.param(
        [AbortedTransaction(0, 4, 5, 6)],
        "0000 0000000000000000 0000000000000004 0000000000000005 0000000000000006",
        id="one",
    ),
    pytest.param(
        [AbortedTransaction(9, 0, 1, 0), AbortedTransaction(70000000001, 2, 258, 2)],
        "0000 0000000000000009 0000000000000000 0000000000000001 0000000000000000"
        "0000 000000104c533c01 0000000000000002 0000000000000102 0000000000000002",
        id="others open",
    ),
    pytest.param(
        [AbortedTransaction(2**63 - 1, 2**63 - 3, 2**63 - 2, 2**63 - 1)],
        "0000 7fffffffffffffff 7ffffffffffffffd 7ffffffffffffffe 7fffffffffffffff",
        id="largest",
    ),
]
TWO = [AbortedTransaction(9, 1, 3, 1), AbortedTransaction(7, 2, 500, 501)]


def encode(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(map(encode_entry, entries))


@pytest.mark.parametrize(("entries", "text"), CASES)
def test_both_directions(entries: list[AbortedTransaction], text: str) -> None:
    data = bytes.fromhex(text)
    assert encode(entries) == data
    assert decode_entries(data) == entries


@pytest.mark.parametrize("cut", range(len(encode(TWO))))
def test_cut_at_every_byte(cut: int) -> None:
    data = encode(TWO)[:cut]
    if cut % ENTRY_SIZE == 0:
        assert decode_entries(data) == TWO[: cut // ENTRY_SIZE]
        return
    with pytest.raises(Truncated) as caught:
        decode_entries(data)
    assert caught.value.facts()["position"] == cut // ENTRY_SIZE * ENTRY_SIZE
    assert caught.value.facts()["needed"] == ENTRY_SIZE


def outcome(data: bytes) -> object:
    """Return the entries, or the DataError; any other error fails the test."""
    try:
        return decode_entries(data)
    except DataError as error:
        return error


@pytest.mark.parametrize("bit", range(len(encode(TWO)) * 8))
def test_a_flipped_bit_never_passes_for_the_same(bit: int) -> None:
    data = bytearray(encode(TWO))
    data[bit // 8] ^= 1 << bit % 8
    assert outcome(bytes(data)) != TWO


def test_another_version_is_refused() -> None:
    data = encode(TWO[:1]) + b"\0\1" + encode(TWO[1:])[2:]
    with pytest.raises(UnsupportedFormat) as caught:
        decode_entries(data)
    assert caught.value.facts() == {
        "kind": "transaction index",
        "position": ENTRY_SIZE,
        "expected": 0,
        "found": 1,
    }


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param((-1, 1, 2, 3), id="producer id"),
        pytest.param((1, -1, 2, 3), id="first offset"),
        pytest.param((1, 3, 2, 3), id="ends before it begins"),
        pytest.param((1, 2, 2, 3), id="no room for data"),
        pytest.param((1, 1, 2, -1), id="stable offset"),
        pytest.param((1, 1, 2, 4), id="stable offset beyond the marker"),
    ],
)
def test_impossible_offsets(entry: tuple[int, int, int, int]) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_entries(struct.pack(">hqqqq", 0, *entry))
    assert caught.value.facts()["position"] == 0
    with pytest.raises(InvalidArgument):
        encode_entry(AbortedTransaction(*entry))


@pytest.mark.parametrize("second", [TWO[0], TWO[1]])
def test_markers_must_rise(second: AbortedTransaction) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_entries(encode([TWO[1], second]))
    assert caught.value.facts()["position"] == ENTRY_SIZE


def test_too_large_for_the_field() -> None:
    with pytest.raises(InvalidArgument):
        encode_entry(AbortedTransaction(2**63, 1, 2, 3))


@given(
    st.lists(st.integers(1, 2**63 - 2), unique=True, max_size=10).map(sorted),
    st.data(),
)
def test_round_trip(markers: list[int], data: st.DataObject) -> None:
    entries = [
        AbortedTransaction(
            producer_id=data.draw(st.integers(0, 2**63 - 1)),
            first_offset=data.draw(st.integers(0, marker - 1)),
            last_offset=marker,
            last_stable_offset=data.draw(st.integers(0, marker + 1)),
        )
        for marker in markers
    ]
    assert decode_entries(encode(entries)) == entries
