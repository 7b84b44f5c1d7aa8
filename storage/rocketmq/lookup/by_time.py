"""Search from a store time to an offset, as the real store does it (ConsumeQueue.getOffsetInQueueByTime).

Owns that one search; must not write. It picks a file of the queue by the times at its ends, then bisects inside that
file. Where store times go backwards, the answer is that of this search, not of a scan.

- LOWER: the first record with a time at or after the requested time.
- UPPER: the last record with a time at or before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.model import Bound, TimedOffset
from storage.rocketmq.format.message import BORN_HOST_V6, HOST_SIZE_V4, HOST_SIZE_V6
from storage.rocketmq.format.queue_entry import UNIT_SIZE, QueueEntry
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.queues import EdgeTime, EdgeTimes
from storage.rocketmq.log.commit_log import CommitLog

NO_TIME: Final = -1  # of an entry without a readable record
SYS_FLAG_END: Final = 40  # the position after the last byte of the sys flag
STORE_TIME_V4: Final = 56  # position of the store time with an IPv4 born host


class _Files(NamedTuple):
    """The part of a queue that is searched: offsets [start, end), and how many entries a file holds."""

    start: int
    end: int
    per_file: int
    first: int

    def file_of(self, offset: int) -> tuple[int, int]:
        """Return (first offset, stop) of the file that holds an offset, within the part."""
        begin = offset - offset % self.per_file
        return begin, min(begin + self.per_file, self.end)


class _Times:
    """The store times of a queue's records.

    `known`: the times at the ends of files, which any number of threads read and extend at once.
    """

    def __init__(self, log: CommitLog, units: ConsumeQueue, known: EdgeTimes) -> None:
        self._log = log
        self._units = units
        self._known = known

    def at(self, offset: int) -> int:
        """Return the store time for an entry; see `store_time`."""
        return store_time(self._log, self._units.unit(offset))

    def at_edge(self, offset: int) -> int:
        """Return the store time for the first or last entry of a file, which is read only once."""
        edge = self._known.get(offset)
        if edge is not None:
            return edge.time_ms if edge.physical_offset >= self._log.start else NO_TIME
        unit = self._units.unit(offset)
        time_ms = store_time(self._log, unit)
        if time_ms != NO_TIME:
            self._known[offset] = EdgeTime(unit.physical_offset, time_ms)
        return time_ms


def find_time(
    log: CommitLog,
    units: ConsumeQueue,
    timestamp_ms: int,
    *,
    end: int,
    bound: Bound,
    known: EdgeTimes | None = None,
) -> TimedOffset | None:
    """Return the offset below `end` that the real store answers with, and the store time of its record.

    None if all records are earlier (LOWER) or later (UPPER). `known`: what earlier searches of the queue read.
    """
    start = min(units.start, end)
    if start == end:
        return None
    part = _Files(start, end, units.run.file_bytes // UNIT_SIZE, units.first_offset)
    times = _Times(log, units, {} if known is None else known)
    picked = _pick_file(part, timestamp_ms, bound, times.at_edge)
    found = start if picked is None else _search(part, picked, timestamp_ms, bound, times.at)
    offset = max(found, start)
    if offset >= end:
        return None
    time_ms = times.at(offset)
    if bound is Bound.UPPER and time_ms > timestamp_ms:
        return None
    return TimedOffset(offset, time_ms)


def newest_time(log: CommitLog, units: ConsumeQueue, visible: range) -> TimedOffset | None:
    """Return the last visible offset whose record can be read, and its store time; None if there is none."""
    for offset in reversed(visible):
        time_ms = store_time(log, units.unit(offset))
        if time_ms != NO_TIME:
            return TimedOffset(offset, time_ms)
    return None


def store_time(log: CommitLog, unit: QueueEntry) -> int:
    """Return the store time of the record that an entry points to; NO_TIME if that record cannot be read."""
    if unit.physical_offset < log.start or unit.physical_offset + unit.size > log.end:
        return NO_TIME
    extra = HOST_SIZE_V6 - HOST_SIZE_V4
    try:
        head = log.read(unit.physical_offset, STORE_TIME_V4 + extra + 8)
    except DataError:
        return NO_TIME
    if len(head) < STORE_TIME_V4 + 8:
        return NO_TIME
    position = STORE_TIME_V4
    if head[SYS_FLAG_END - 1] & BORN_HOST_V6:
        position += extra
    return int.from_bytes(head[position : position + 8], "big", signed=True)


def _search(
    part: _Files,
    file: tuple[int, int],
    timestamp_ms: int,
    bound: Bound,
    time_at: Callable[[int], int],
) -> int:
    begin, stop = file
    floor, ceiling = max(begin, part.start), stop - 1
    if time_at(ceiling) < timestamp_ms:
        return ceiling + 1 if bound is Bound.LOWER else ceiling
    if time_at(floor) > timestamp_ms:
        return begin if bound is Bound.LOWER else part.start
    low, high = floor, ceiling
    left = right = begin
    while high >= low:
        middle = begin + (low - begin + high - begin) // 2
        time_ms = time_at(middle)
        if time_ms == timestamp_ms:
            return _last_alike(middle, floor, ceiling, bound, time_at)
        if time_ms > timestamp_ms:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    return right if bound is Bound.LOWER else left


def _pick_file(
    part: _Files, timestamp_ms: int, bound: Bound, time_at: Callable[[int], int]
) -> tuple[int, int] | None:
    """Return the file to search (MappedFileQueue.getConsumeQueueMappedFileByTime).

    LOWER: the first file with a last record that is not too early. UPPER: the last file with a first record that is not
    too late.
    """
    last = part.file_of(part.end - 1)
    if bound is Bound.LOWER:
        begin, stop = part.file_of(part.first)
        while begin < last[0] and time_at(stop - 1) < timestamp_ms:
            begin, stop = part.file_of(stop)
        return begin, stop
    begin, stop = last
    while begin >= part.first:
        if time_at(begin) <= timestamp_ms:
            return begin, stop
        begin, stop = part.file_of(begin - 1) if begin else (-1, -1)
    return None


def _last_alike(
    offset: int, floor: int, ceiling: int, bound: Bound, time_at: Callable[[int], int]
) -> int:
    """Return the outermost of the adjacent records with the time of `offset`."""
    step = -1 if bound is Bound.LOWER else 1
    time_ms = time_at(offset)
    while floor <= offset + step <= ceiling and time_at(offset + step) == time_ms:
        offset += step
    return offset
