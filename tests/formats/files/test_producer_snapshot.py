"""`.snapshot`: one table for both directions, every cut and flipped bit found, and the order of Java's HashMap."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.checksum import crc32c
from storage.errors import Corrupt, InvalidArgument
from storage.kafka.format.producer_snapshot import (
    ENTRY_SIZE,
    HEADER_SIZE,
    ProducerEntry,
    decode_snapshot,
    encode_snapshot,
)

AFTER_MARKER = ProducerEntry(
    producer_id=0,
    epoch=23,
    timestamp_ms=1795224726923,
    coordinator_epoch=0,
)
IN_TRANSACTION = ProducerEntry(
    producer_id=0x0102030405060708,
    epoch=0x1112,
    last_sequence=0x21222324,
    last_offset=0x3132333435363738,
    offset_delta=0x41424344,
    timestamp_ms=0x5152535455565758,
    coordinator_epoch=0x61626364,
    current_txn_first_offset=0x7172737475767778,
)
CASES = [
    pytest.param([], "0001 48674bc7 00000000", id="no producers"),
    pytest.param(
        [AFTER_MARKER],
        "0001 72b61272 00000001 0000000000000000 0017 ffffffff ffffffffffffffff 00000000"
        "000001a1fbbb6d8b 00000000 ffffffffffffffff",
        id="after a marker",
    ),
    pytest.param(
        [IN_TRANSACTION],
        "0001 607588b9 00000001 0102030405060708 1112 21222324 3132333435363738 41424344"
        "5152535455565758 61626364 7172737475767778",
        id="every field",
    ),
]

# Key order of a java.util.HashMap<Long, ...> (OpenJDK 17) after putting the first list in its order.
JAVA_ORDERS = [
    ([70000000001, 5, 6, 9], [70000000001, 5, 6, 9]),
    ([0, 16, 1, 32, 17], [0, 16, 32, 1, 17]),
    ([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 16], [16, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    # the thirteenth key doubles the table of 16
    ([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 16], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16]),
    # so does the ninth key in one bucket
    ([0, 16, 32, 48, 64, 80, 96, 112, 128], [0, 32, 64, 96, 128, 16, 48, 80, 112]),
    ([2**63 - 1, 65536, 2**32, 1], [2**63 - 1, 65536, 2**32, 1]),
    ([0, 32, 64, 96, 128, 160, 192, 224, 256, 1], [0, 32, 64, 96, 128, 160, 192, 224, 256, 1]),
    (
        [33, 224, 352, 544, 0, 48, 448, 96, 64, 144, 160],
        [224, 352, 544, 0, 448, 96, 64, 160, 33, 48, 144],
    ),
    # but not in a table of 64
    (
        [*range(1, 26), 256, 0, 768, 1152, 576, 1088, 128, 320, 1024],
        [256, 0, 768, 1152, 576, 1088, 128, 320, 1024, *range(1, 26)],
    ),
]


@pytest.mark.parametrize(("entries", "text"), CASES)
def test_both_directions(entries: list[ProducerEntry], text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_snapshot(entries) == data
    assert decode_snapshot(data) == entries
    assert len(data) == HEADER_SIZE + ENTRY_SIZE * len(entries)


@pytest.mark.parametrize("cut", range(HEADER_SIZE + 2 * ENTRY_SIZE))
def test_cut_at_every_byte(cut: int) -> None:
    data = encode_snapshot([AFTER_MARKER, IN_TRANSACTION])
    with pytest.raises(Corrupt):
        decode_snapshot(data[:cut])


@pytest.mark.parametrize("bit", range((HEADER_SIZE + 2 * ENTRY_SIZE) * 8))
def test_every_flipped_bit_is_found(bit: int) -> None:
    data = bytearray(encode_snapshot([AFTER_MARKER, IN_TRANSACTION]))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt):
        decode_snapshot(bytes(data))


def test_a_new_producer_has_nothing_yet() -> None:
    assert tuple(ProducerEntry(producer_id=5, epoch=1)) == (5, 1, -1, -1, 0, -1, -1, -1)


def test_damage_is_located() -> None:
    data = encode_snapshot([AFTER_MARKER])
    for damaged, position in (
        (data[:9], 0),
        (b"\0\2" + data[2:], 0),
        (data[:2] + bytes(4) + data[6:], 2),
        (data[:-1], 6),
    ):
        with pytest.raises(Corrupt) as caught:
            decode_snapshot(damaged)
        assert caught.value.facts()["position"] == position


def test_more_bytes_than_counted() -> None:
    with pytest.raises(Corrupt, match="length"):
        decode_snapshot(encode_snapshot([AFTER_MARKER]) + b"\0")


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_an_absurd_count(count: int) -> None:
    body = struct.pack(">i", count)
    with pytest.raises(Corrupt, match="length"):
        decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


def test_another_version_names_both() -> None:
    data = b"\0\2" + encode_snapshot([])[2:]
    with pytest.raises(Corrupt) as caught:
        decode_snapshot(data)
    assert caught.value.facts() == {
        "kind": "producer snapshot",
        "position": 0,
        "expected": 1,
        "found": 2,
    }


def test_an_id_twice() -> None:
    with pytest.raises(InvalidArgument):
        encode_snapshot([AFTER_MARKER, AFTER_MARKER])
    body = encode_snapshot([AFTER_MARKER])[HEADER_SIZE:]
    body = struct.pack(">i", 2) + body + body
    with pytest.raises(Corrupt, match="producer ids"):
        decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


def test_too_large_for_the_field() -> None:
    with pytest.raises(InvalidArgument):
        encode_snapshot([ProducerEntry(producer_id=1, epoch=1 << 15)])


@pytest.mark.parametrize(("put", "listed"), JAVA_ORDERS)
def test_the_order_of_a_java_hash_map(put: list[int], listed: list[int]) -> None:
    data = encode_snapshot([ProducerEntry(producer_id=key, epoch=0) for key in put])
    assert [entry.producer_id for entry in decode_snapshot(data)] == listed


def signed(bits: int, *, low: int = -1) -> st.SearchStrategy[int]:
    return st.integers(low, 2 ** (bits - 1) - 1)


entries_strategy = st.lists(
    st.builds(
        ProducerEntry,
        producer_id=signed(64, low=0),
        epoch=signed(16),
        last_sequence=signed(32),
        last_offset=signed(64),
        offset_delta=signed(32, low=0),
        timestamp_ms=signed(64),
        coordinator_epoch=signed(32),
        current_txn_first_offset=signed(64),
    ),
    unique_by=lambda entry: entry.producer_id,
    max_size=40,
)


@given(entries_strategy)
def test_round_trip(entries: list[ProducerEntry]) -> None:
    assert sorted(decode_snapshot(encode_snapshot(entries))) == sorted(entries)
