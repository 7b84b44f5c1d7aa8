"""The `.snapshot` file: the state of every producer BEFORE the offset in the file's name.

Owns the bytes and the order of entries; must not derive producer state. Big-endian; from Kafka's
ProducerStateManager.

    position  bytes  field                     note
    0         2      version                   1, i16
    2         4      CRC-32C                   of everything from position 6 on, u32
    6         4      count                     of entries, i32
    10        8      producer id               i64, each once
    18        2      epoch                     i16
    20        4      last sequence             of the last data batch, i32; -1 none
    24        8      last offset               of the last data batch, i64; -1 none
    32        4      offset delta              last minus base offset of that batch, i32
    36        8      timestamp                 of the last batch or marker, ms, i64; -1 none
    44        4      coordinator epoch         of the last marker, i32; -1 none
    48        8      current txn first offset  i64; -1 when no transaction is open
    56        ...    more entries              46 bytes each
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from storage.coding.checksum import crc32c
from storage.errors import Corrupt, InvalidArgument

KIND: Final = "producer snapshot"
VERSION: Final = 1
_HEADER: Final = struct.Struct(
    ">"
    "h"  # version
    "I"  # CRC-32C
)
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(
    ">"
    "q"  # producer id
    "h"  # epoch
    "i"  # last sequence
    "q"  # last offset
    "i"  # offset delta
    "q"  # timestamp
    "i"  # coordinator epoch
    "q"  # current txn first offset
)
CRC_START: Final = 6
HEADER_SIZE: Final = 10
ENTRY_SIZE: Final = 46
assert _HEADER.size == CRC_START
assert _COUNT.size == HEADER_SIZE - CRC_START
assert _ENTRY.size == ENTRY_SIZE


class ProducerEntry(NamedTuple):
    """One producer's state, in wire order; the defaults are the state of a new producer."""

    producer_id: int
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Encode a whole file. `entries` must be in the order in which their producers were first seen.

    They are written in the order in which a Java HashMap of these ids would list them, as the real
    broker does; readers accept any order. Raises InvalidArgument for a duplicate id or a value that
    does not fit.
    """
    ordered = _java_order(list(entries))
    if len({entry.producer_id for entry in ordered}) != len(ordered):
        raise InvalidArgument(f"{KIND}: a producer id is given twice", field="producer_id")
    try:
        body = b"".join((_COUNT.pack(len(ordered)), *(_ENTRY.pack(*entry) for entry in ordered)))
    except struct.error as error:
        raise InvalidArgument(f"{KIND}: {error}", field="entries") from error
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return all entries of a whole file, in the file's order.

    Raises Corrupt for another version (which no checksum covers), a length that does not match the
    count, a wrong CRC, or a duplicate producer id. The broker drops such a file and continues from
    an earlier one.
    """
    if len(data) < HEADER_SIZE:
        raise _corrupt("length", 0, expected=f"at least {HEADER_SIZE}", found=len(data))
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise _corrupt("version", 0, expected=VERSION, found=version)
    (count,) = _COUNT.unpack_from(data, CRC_START)
    if count < 0 or len(data) != HEADER_SIZE + count * ENTRY_SIZE:
        expected = f"{HEADER_SIZE} + {ENTRY_SIZE} * {count}"
        raise _corrupt("length", CRC_START, expected=expected, found=len(data))
    body = memoryview(data)[CRC_START:]
    actual = crc32c(body)
    if actual != crc:
        raise _corrupt("CRC-32C", 2, expected=crc, found=actual)
    entries = [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]
    if len({entry.producer_id for entry in entries}) != count:
        raise _corrupt("producer ids", HEADER_SIZE, expected="each id once", found="one twice")
    return entries


def _corrupt(field: str, position: int, *, expected: object, found: object) -> Corrupt:
    return Corrupt(
        f"{KIND}: {field} is {found}, expected {expected}",
        kind=KIND,
        position=position,
        expected=expected,
        found=found,
    )


def _java_order(entries: list[ProducerEntry]) -> list[ProducerEntry]:
    """Return the entries as java.util.HashMap<Long, ...> lists them: by bucket, within one bucket by
    insertion (hence a stable sort).

    Buckets of nine and more in a table of 64 and more become red-black trees. Their inner order is
    not imitated.
    """
    hashes = [_spread_hash(entry.producer_id) for entry in entries]
    mask = _capacity(hashes) - 1
    order = sorted(range(len(entries)), key=lambda index: hashes[index] & mask)
    return [entries[index] for index in order]


def _spread_hash(producer_id: int) -> int:
    """Return HashMap's hash: Long.hashCode (the id's low 32 bits xor its high 32 bits), then h ^ (h >>> 16)."""
    low = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
    return low ^ (low >> 16)


def _capacity(hashes: Sequence[int]) -> int:
    """Return the table's size after these insertions: from 16, doubled at more than 3/4 full, or at nine
    entries in a bucket while the size is below 64.
    """
    capacity = 16
    buckets: Counter[int] = Counter()
    for count, value in enumerate(hashes, start=1):
        bucket = value & (capacity - 1)
        buckets[bucket] += 1
        doublings = int(buckets[bucket] > 8 and capacity < 64)
        doublings += int(4 * count > 3 * (capacity << doublings))
        if doublings:
            capacity <<= doublings
            buckets = Counter(earlier & (capacity - 1) for earlier in hashes[:count])
    return capacity
