"""The entry ("unit") of a consume queue: the position in the commit log of the record with one queue offset.

Owns the bytes and the meaning of the tags code; must not know which entries a queue has. Big-endian;
from RocketMQ's ConsumeQueue, MessageExtBrokerInner and ScheduleMessageService.

    position  bytes  field            note
    0         8      physical offset  of the record, i64
    8         4      size             of the record, i32
    12        8      tags code        Java's hash of the tag, 32 bits with its sign extended, i64;
                                      in SCHEDULE_TOPIC_XXXX the time when it is to be delivered

An entry's number is its record's queue offset: position in the queue divided by 20. Twenty zero bytes
are free space. A filler (0, 2^31 - 1, 0) precedes the first entry of a queue whose beginning was deleted.

Queues of compacted topics have sparse entries of 46 bytes, which name their queue offset (BatchConsumeQueue):

    0         8      physical offset  in the log of the compacted queue, i64; -1 in the entry that ends a file
    8         4      size             of the record, i32
    12        8      tags code        Java's hash of the tag, i64
    20        8      store timestamp  of the record, ms, i64
    28        8      queue offset     of the record, i64
    36        2      batch size       number of records, i16; 1
    38        4      compacted offset i32; -1
    42        4      reserved         0
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from storage.coding.hashes import java_hash
from storage.coding.native import (
    BytesWriter,
    i64,
    is_native,
    read_i32_be,
    read_i64_be,
    write_i64_be,
)
from storage.errors import InvalidArgument, Truncated
from storage.rocketmq.format.names import SCHEDULE_TOPIC

KIND: Final = "consume queue"
UNIT: Final = struct.Struct(
    ">"
    "q"  # physical offset
    "i"  # size
    "q"  # tags code
)
UNIT_SIZE: Final = 20
assert UNIT.size == UNIT_SIZE

SPARSE_UNIT: Final = struct.Struct(
    ">"
    "q"  # physical offset
    "i"  # size
    "q"  # tags code
    "q"  # store timestamp
    "q"  # queue offset
    "h"  # batch size
    "i"  # compacted offset
    "4x"  # reserved
)
SPARSE_UNIT_SIZE: Final = 46
assert SPARSE_UNIT.size == SPARSE_UNIT_SIZE

_SIZE_POSITION: Final = 8
POSITION_BYTES: Final = 8
_POSITION: Final = struct.Struct(">q")
assert _POSITION.size == POSITION_BYTES
_pack_position: Final = _POSITION.pack
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)

DELAYS_MS: Final = tuple(
    seconds * 1000
    for seconds in (
        *(1, 5, 10, 30),
        *(minutes * 60 for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
        *(hours * 3600 for hours in (1, 2)),
    )
)
"""Waiting time of each delay level, from level 1 on, unless a broker is configured with other levels."""
MAX_DELAY_LEVEL: Final = len(DELAYS_MS)

_new_entry: Final = tuple.__new__
"""`QueueEntry._make` without its length check."""

_LEVEL = re.compile(r"[+-]?[0-9]{1,10}")


class QueueEntry(NamedTuple):
    """A queue entry: position, size and tags code of one record."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """Whether the entry is a filler for a lost or deleted record."""
        return self.size == FILLER_SIZE and self.physical_offset == 0

    @property
    def is_valid(self) -> bool:
        """Whether the entry counts when a queue is loaded; a filler does."""
        return self.physical_offset >= 0 and self.size > 0


class SparseEntry(NamedTuple):
    """A queue entry of a compacted topic: it names the queue offset of its record."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    queue_offset: int
    batch_size: int
    compacted_offset: int

    @property
    def is_valid(self) -> bool:
        """Whether the entry leads to a record. The first entry that does not ends its file (SparseConsumeQueue)."""
        return (
            self.physical_offset >= 0
            and self.size > 0
            and self.queue_offset >= 0
            and self.batch_size > 0
        )


def decode_sparse_units(data: bytes) -> list[SparseEntry]:
    """Return all whole entries as they are stored; bytes after the last of them are ignored."""
    whole = data[: len(data) // SPARSE_UNIT_SIZE * SPARSE_UNIT_SIZE]
    return [SparseEntry(*fields) for fields in SPARSE_UNIT.iter_unpack(whole)]


def encode_unit(physical_offset: int, size: int, tags_code: int) -> bytes:
    """Return the 20 bytes of an entry. Raises InvalidArgument for values that would not be read as an entry."""
    if not 0 <= physical_offset < 1 << 63:
        raise InvalidArgument(
            f"physical offset {physical_offset} is outside [0, 2^63)", field="physical_offset"
        )
    if not 0 < size < 1 << 31:
        raise InvalidArgument(f"size {size} is outside (0, 2^31)", field="size")
    if not -1 << 63 <= tags_code < 1 << 63:
        raise InvalidArgument(f"tags code {tags_code} does not fit 64 bits", field="tags_code")
    return UNIT.pack(physical_offset, size, tags_code)


def decode_units(data: bytes) -> list[QueueEntry]:
    """Return all entries as they are stored; check `is_valid` to detect free space and damage.

    Raises Truncated if the data ends inside an entry.
    """
    whole = len(data) // UNIT_SIZE * UNIT_SIZE
    if whole < len(data):
        raise Truncated(
            f"{KIND}: {len(data) - whole} bytes at position {whole}, a unit has {UNIT_SIZE}",
            kind=KIND,
            position=whole,
            needed=UNIT_SIZE,
        )
    # fmt: off
    found: list[QueueEntry] = [_new_entry(QueueEntry, fields) for fields in UNIT.iter_unpack(data)]
    # fmt: on
    return found


def first_after(entries: Sequence[QueueEntry], now_ms: int) -> int:
    """Return the index of the first entry of a delayed record that is due after this time; their number if none is."""
    for at, entry in enumerate(entries):
        if entry.tags_code > now_ms and not entry.is_filler:
            return at
    return len(entries)


def reach(entries: Sequence[QueueEntry], at: int, *, near_bytes: int, limit_bytes: int) -> int:
    """Return the number of bytes from the record of `entries[at]` to the end of the last record of the next entries
    that are at most `near_bytes` apart in the log, in the same order. `limit_bytes`: of more than one record.
    """
    start = entries[at].physical_offset
    end = start + entries[at].size
    for other in range(at + 1, len(entries)):
        physical_offset, size, _ = entries[other]
        following = physical_offset + size
        if size <= 0 or physical_offset < 0 or not end <= physical_offset <= end + near_bytes:
            break
        if following - start > limit_bytes:
            break
        end = following
    return end - start


@lru_cache(maxsize=1024)  # a store has few tags
def tags_code(tags: str | None) -> int:
    """Return Java's hash of TAGS, 0 for no tag. Different tags may have the same hash."""
    return java_hash(tags) if tags else 0


def delay_code(level: int, store_timestamp_ms: int, delays_ms: Sequence[int] | None = None) -> int:
    """Return the delivery time of a delayed record, which SCHEDULE_TOPIC_XXXX stores instead of the tag's hash.

    A level above the highest counts as the highest. `delays_ms`: waiting time of each level, None for RocketMQ's
    defaults. Raises InvalidArgument below level 1.
    """
    if level < 1:
        raise InvalidArgument(f"delay level {level} is below 1", field="level")
    waits = delays_ms or DELAYS_MS
    return store_timestamp_ms + waits[min(level, len(waits)) - 1]


def code_of(
    topic: str,
    properties: dict[str, str],
    store_timestamp_ms: int,
    delays_ms: Sequence[int] | None = None,
) -> int:
    """Return the tags code of a record with these properties: the hash of its tag, or in the schedule topic its
    delivery time by these levels (see `delay_code`).
    """
    if topic == SCHEDULE_TOPIC:
        level = properties.get("DELAY", "")
        if _LEVEL.fullmatch(level) and int(level) > 0:
            return delay_code(int(level), store_timestamp_ms, delays_ms)
    tags = properties.get("TAGS")
    return tags_code(tags) if tags else 0


def positions_in(units: bytes) -> bytes:
    """Return the physical offsets in whole entries, without fillers and invalid entries, 8 bytes each: an entry of
    zeros must not point to the log's first record.
    """
    found = BytesWriter()
    physical_offset: i64
    size: i64
    at: i64 = 0
    end: i64 = len(units)
    if not _NATIVE:
        return b"".join(
            _pack_position(physical_offset)
            for physical_offset, size, _ in UNIT.iter_unpack(units)
            if size > 0 and (size != FILLER_SIZE or physical_offset)
        )
    while at < end:
        physical_offset = read_i64_be(units, at)
        size = i64(read_i32_be(units, at + _SIZE_POSITION))
        if size > 0 and (size != FILLER_SIZE or physical_offset != 0):
            write_i64_be(found, physical_offset)
        at += UNIT_SIZE
    return found.getvalue()


def in_order(parts: Sequence[bytes], doubted: frozenset[int]) -> bytes:
    """Return the physical offsets of all parts, as `positions_in` packs them, in ascending order and without these."""
    if _NATIVE and not doubted:
        rest = [part for part in parts if part]
        if all(_is_ascending(part) for part in rest):
            while len(rest) > 1:
                rest = [b"".join(_merged(rest[at : at + 2])) for at in range(0, len(rest), 2)]
            return b"".join(rest)
    found = array("q", b"".join(parts))
    if sys.byteorder == "little":
        found.byteswap()
    found = array("q", sorted(at for at in found if at not in doubted))
    if sys.byteorder == "little":
        found.byteswap()
    return found.tobytes()


def _is_ascending(positions: bytes) -> bool:
    last: i64 = read_i64_be(positions, 0)
    at: i64 = POSITION_BYTES
    end: i64 = len(positions)
    while at < end:
        position: i64 = read_i64_be(positions, at)
        if position < last:
            return False
        last = position
        at += POSITION_BYTES
    return True


def _merged(parts: list[bytes]) -> list[bytes]:
    """Return one or two ascending parts as pieces that are in ascending order together."""
    if len(parts) == 1:
        return parts
    first, second = parts
    found = BytesWriter()
    at: i64 = 0
    other: i64 = 0
    end: i64 = len(first)
    other_end: i64 = len(second)
    while at < end and other < other_end:
        one: i64 = read_i64_be(first, at)
        two: i64 = read_i64_be(second, other)
        if one <= two:
            write_i64_be(found, one)
            at += POSITION_BYTES
        else:
            write_i64_be(found, two)
            other += POSITION_BYTES
    return [found.getvalue(), first[at:], second[other:]]


def sound_part(units: bytes, last: i64) -> tuple[int, int]:
    """Return the number of bytes of whole entries before the first that is invalid or does not point after `last` and
    all entries before it, and the last offset then. A filler points to 0 and may stand anywhere.
    """
    physical_offset: i64
    size: i64
    at: i64 = 0
    end: i64 = len(units)
    unpack = UNIT.unpack_from
    while at < end:
        if _NATIVE:
            physical_offset = read_i64_be(units, at)
            size = i64(read_i32_be(units, at + _SIZE_POSITION))
        else:
            physical_offset, size, _ = unpack(units, at)
        if physical_offset > last and size > 0:
            last = physical_offset
        elif physical_offset != 0 or size != FILLER_SIZE:
            break
        at += UNIT_SIZE
    return at, last


_NATIVE: Final = is_native(sound_part)
