"""Index files: headers and entries in both directions, cuts, flipped bits, hashes, index strings, positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.hashes import java_hash
from storage.errors import InvalidArgument, Truncated
from storage.rocketmq.format.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY_SIZE,
    HEADER_SIZE,
    MAX_SECONDS,
    IndexEntry,
    IndexHeader,
    decode_entries,
    decode_entry,
    decode_header,
    encode_entry,
    encode_header,
    entry_position,
    file_size,
    index_keys,
    index_string,
    key_hash,
    slot_position,
    time_diff_s,
)

HEADERS = [
    pytest.param(
        IndexHeader(),
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000 00000000 00000001",
        id="without entries",
    ),
    pytest.param(
        IndexHeader(1700012342857, 1700012482696, 0, 69306, 319, 700),
        "0000018bd0a1be49 0000018bd0a3e088 0000000000000000 0000000000010eba 0000013f 000002bc",
        id="full",
    ),
    pytest.param(
        IndexHeader(-(2**63), 2**63 - 1, 2**63 - 1, -1, 2**31 - 1, -(2**31)),
        "8000000000000000 7fffffffffffffff 7fffffffffffffff ffffffffffffffff 7fffffff 80000000",
        id="extremes",
    ),
]
ENTRIES = [
    pytest.param(IndexEntry(0, 0, 0, 0), "00000000 0000000000000000 00000000 00000000", id="zero"),
    pytest.param(
        IndexEntry(1234567, 69306, 139, 610),
        "0012d687 0000000000010eba 0000008b 00000262",
        id="usual",
    ),
    pytest.param(
        IndexEntry(2**31 - 1, 2**63 - 1, 2**31 - 1, -(2**31)),
        "7fffffff 7fffffffffffffff 7fffffff 80000000",
        id="extremes",
    ),
]
HEADER = IndexHeader(1, 2, 3, 4, 5, 6)
ENTRY = IndexEntry(1, 2, 3, 4)


@pytest.mark.parametrize(("header", "text"), HEADERS)
def test_headers_in_both_directions(header: IndexHeader, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_header(header) == data
    assert decode_header(data) == header
    assert decode_header(b"\xff" * 3 + data, 3) == header


@pytest.mark.parametrize(("entry", "text"), ENTRIES)
def test_entries_in_both_directions(entry: IndexEntry, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_entry(entry) == data
    assert decode_entry(data) == entry
    assert decode_entry(b"\xff" + data, 1) == entry
    assert decode_entries(data * 3) == [entry] * 3


@pytest.mark.parametrize("cut", range(HEADER_SIZE))
def test_a_header_cut_at_every_byte(cut: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_header(encode_header(HEADER)[:cut])
    assert caught.value.facts() == {"kind": "index file", "position": 0, "needed": HEADER_SIZE}


@pytest.mark.parametrize("cut", range(3 * ENTRY_SIZE))
def test_entries_cut_at_every_byte(cut: int) -> None:
    data = (encode_entry(ENTRY) * 3)[:cut]
    whole = cut // ENTRY_SIZE
    if cut % ENTRY_SIZE == 0:
        assert decode_entries(data) == [ENTRY] * whole
        return
    for decode in (decode_entries, lambda data: decode_entry(data, whole * ENTRY_SIZE)):
        with pytest.raises(Truncated) as caught:
            decode(data)
        assert caught.value.facts()["position"] == whole * ENTRY_SIZE


@pytest.mark.parametrize("bit", range(HEADER_SIZE * 8))
def test_a_flipped_bit_in_a_header_shows(bit: int) -> None:
    data = bytearray(encode_header(HEADER))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_header(bytes(data)) != HEADER


@pytest.mark.parametrize("bit", range(ENTRY_SIZE * 8))
def test_a_flipped_bit_in_an_entry_shows(bit: int) -> None:
    data = bytearray(encode_entry(ENTRY))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_entry(bytes(data)) != ENTRY


@pytest.mark.parametrize("field", IndexHeader._fields)
def test_a_header_that_does_not_fit(field: str) -> None:
    with pytest.raises(InvalidArgument):
        encode_header(HEADER._replace(**{field: 2**63}))


@pytest.mark.parametrize("field", IndexEntry._fields)
def test_an_entry_that_does_not_fit(field: str) -> None:
    with pytest.raises(InvalidArgument):
        encode_entry(ENTRY._replace(**{field: 2**63}))


def test_places() -> None:
    assert file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES) == 420_000_040
    assert slot_position(0) == HEADER_SIZE
    assert slot_position(3) == 52
    assert entry_position(500, 0) == 2040
    assert entry_position(500, 699) == file_size(500, 700) - ENTRY_SIZE
    assert entry_position(DEFAULT_SLOTS, 2**31 - 1) > 2**32  # no 32-bit arithmetic


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", 0),  # the only hash that abs() leaves negative
        ("zzzzzz", 685785664),  # hash -685785664
        ("日本", 835047),
    ],
)
def test_key_hash(text: str, hashed: int) -> None:
    assert key_hash(text) == hashed


@given(st.text(max_size=40))
def test_key_hash_is_java_abs(text: str) -> None:
    hashed = java_hash(text)
    assert key_hash(text) == (0 if hashed == -(2**31) else abs(hashed))


@pytest.mark.parametrize(
    ("store_ms", "begin_ms", "seconds"),
    [
        (1000, 1000, 0),
        (1999, 1000, 0),
        (2000, 1000, 1),
        (5000, 0, 0),  # no begin time yet
        (5000, -1, 0),
        (1, 5000, 0),  # store times that go backwards
        (2**31 * 1000, 1000, 2**31 - 1),
        (2**31 * 1000 + 1000, 1000, MAX_SECONDS),
        (2**62, 1, MAX_SECONDS),
    ],
)
def test_time_difference(store_ms: int, begin_ms: int, seconds: int) -> None:
    assert time_diff_s(store_ms, begin_ms) == seconds


@pytest.mark.parametrize(
    ("properties", "strings"),
    [
        ({}, []),
        ({"KEYS": "", "TAGS": ""}, []),
        ({"UNIQ_KEY": "7F00"}, ["t#7F00"]),
        ({"KEYS": "a b"}, ["t#a", "t#b"]),
        ({"KEYS": " a  b a "}, ["t#a", "t#b", "t#a"]),
        ({"KEYS": "a,b\tc"}, ["t#a,b\tc"]),
        ({"TAGS": "red"}, ["t#T#red"]),
        ({"TAGS": "red", "KEYS": "a", "UNIQ_KEY": "u"}, ["t#u", "t#a", "t#T#red"]),
    ],
)
def test_strings_that_are_indexed(properties: dict[str, str], strings: list[str]) -> None:
    assert index_keys("t", properties) == strings
    untagged = [text for text in strings if "#T#" not in text]
    assert index_keys("t", properties, with_tags=False) == untagged


def test_strings_that_are_asked_for() -> None:
    assert index_string("orders", "k1") == "orders#k1"
    assert index_string("orders", "red", "T") == "orders#T#red"
