"""The passes of compaction over the records of a batch: their keys into the offset map, and the records that stay.

Owns the loops over every byte of a log; must not know batches, segments or files. They work on the bytes of a batch
without an object per record, and check each record as a read does. The layout of a record is in
`storage.kafka.format.record`. Compiled if there is a C compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.coding.varint import decode_varint, encode_varint
from storage.errors import DataError
from storage.kafka.compaction.offset_map import OffsetMap
from storage.kafka.format.record import (
    NEAR,
    NO_TIMESTAMP,
    NULL_BYTE,
    check_count,
    check_filled,
    corrupt_record,
    scan_record,
    wrap_timestamp,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

NONE: Final = -1


class Selection:
    """The records of a batch that compaction keeps.

    `runs`: start and end of each run of kept records, one after the other. `first_time_ms` and `latest_time_ms`: of
    the first kept record, and the largest one. `keyless`: the number of records dropped because they have no key.
    """

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.kept: i64 = 0
        self.keyless: i64 = 0
        self.has_tombstone = False
        self.first_time_ms: i64 = NO_TIMESTAMP
        self.latest_time_ms: i64 = NO_TIMESTAMP

    def add_time(self, time_ms: i64) -> None:
        """Count a kept record with this timestamp."""
        if not -NEAR <= time_ms <= NEAR:
            time_ms = wrap_timestamp(time_ms)
        if self.kept == 0:
            self.first_time_ms = time_ms
        if time_ms > self.latest_time_ms:
            self.latest_time_ms = time_ms
        self.kept += 1


def add_keys(
    offsets: OffsetMap,
    data: bytes,
    position: i64,
    *,
    end: i64,
    count: i64,
    base_offset: i64,
    first_offset: i64,
) -> bool:
    """Enter the keys of the `count` records that fill `data[position:end]`, from `first_offset` on. Return False if
    the map was full before the last key. Raises Corrupt.
    """
    check_count(count, end - position)
    index: i64 = 0
    try:
        while index < count:
            position, offset_delta, _, fields_at = scan_record(data, position, end)
            index += 1
            if data[fields_at] == NULL_BYTE or base_offset + offset_delta < first_offset:
                continue
            size, key_at = decode_varint(data, fields_at)
            if size < 0:
                continue
            if not offsets.put(data[key_at : key_at + size], base_offset + offset_delta):
                return False
    except (IndexError, DataError) as cause:
        raise corrupt_record(cause, index) from cause
    check_filled(position, end)
    return True


def select(
    offsets: OffsetMap,
    data: bytes,
    position: i64,
    *,
    end: i64,
    count: i64,
    base_offset: i64,
    base_time_ms: i64,
    drops_tombstones: bool,
) -> Selection:
    """Select the records that stay, of the `count` records that fill `data[position:end]` (Cleaner.shouldRetainRecord).

    A record above the map's latest offset stays. Of the others, one without a key goes, one with a newer record of its
    key goes, and one without a value goes if `drops_tombstones`. Raises Corrupt.
    """
    check_count(count, end - position)
    found = Selection()
    run_start: i64 = NONE
    index: i64 = 0
    try:
        while index < count:
            start = position
            position, offset_delta, time_delta, fields_at = scan_record(data, start, end)
            key_at, size, is_tombstone = _key_and_value(data, fields_at)
            index += 1
            if base_offset + offset_delta <= offsets.latest_offset and (
                size < 0
                or (is_tombstone and drops_tombstones)
                or base_offset + offset_delta < offsets.get(data[key_at : key_at + size])
            ):
                found.keyless += size < 0
                if run_start != NONE:
                    found.runs.append(run_start)
                    found.runs.append(start)
                    run_start = NONE
                continue
            if run_start == NONE:
                run_start = start
            found.has_tombstone |= is_tombstone
            found.add_time(base_time_ms + time_delta)
    except (IndexError, DataError) as cause:
        raise corrupt_record(cause, index) from cause
    check_filled(position, end)
    if run_start != NONE:
        found.runs.append(run_start)
        found.runs.append(end)
    return found


def _key_and_value(data: bytes, fields_at: i64) -> tuple[i64, i64, bool]:
    """Return (position of the key, size of the key, whether the value is null) of a checked record; size -1: no key."""
    size, key_at = decode_varint(data, fields_at)
    value_at = key_at + size if size > 0 else key_at
    return key_at, size, data[value_at] == NULL_BYTE or decode_varint(data, value_at)[0] < 0


def copy_runs(data: bytes, runs: list[int]) -> bytes:
    """Return the bytes of the runs of a selection."""
    parts: list[bytes] = []
    index: i64 = 0
    count: i64 = len(runs)
    while index < count:
        parts.append(data[runs[index] : runs[index + 1]])
        index += 2
    return b"".join(parts)


def rebase_runs(
    data: bytes, runs: list[int], *, from_base_ms: i64, to_base_ms: i64, append_time_ms: int | None
) -> bytes:
    """Return the records of the runs with timestamps that count from another base. `append_time_ms`: the timestamp of
    all records of a batch with LogAppendTime, whatever their own. The other fields stay as they are.
    """
    parts: list[bytes] = []
    index: i64 = 0
    count: i64 = len(runs)
    while index < count:
        position: i64 = runs[index]
        end: i64 = runs[index + 1]
        index += 2
        while position < end:
            position, offset_delta, time_delta, fields_at = scan_record(data, position, end)
            time_ms: i64 = from_base_ms + time_delta if append_time_ms is None else append_time_ms
            body = b"\0%b%b%b" % (
                encode_varint(wrap_timestamp(time_ms - to_base_ms)),
                encode_varint(offset_delta),
                data[fields_at:position],
            )
            parts.append(encode_varint(len(body)))
            parts.append(body)
    return b"".join(parts)
