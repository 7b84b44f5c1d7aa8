"""Reading of a queue: its entries, then the records they point to, then records as callers see them.

Owns the way from an offset to records, the judgement which entries can be right, and the mapping from a message to a
StoredRecord; must not write. The opposite mapping is encoding.py. Source: DefaultMessageStore.getMessage of RocketMQ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from storage.errors import Corrupt
from storage.findings import finding
from storage.model import Finding, Header, StoredRecord, TopicPartition
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.properties import (
    KEYS,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    decode_properties,
)
from storage.rocketmq.format.queue_entry import UNIT_SIZE, QueueEntry
from storage.rocketmq.format.suspect import suspect_parts
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.light_queues import is_in_lmq
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.encoding import SEQUENCE_PROPERTY
from storage.rocketmq.log.file_sequence import FileRun

WINDOW_BYTES: Final = 1 << 20
NEAR_BYTES: Final = 8 << 10  # records closer than this are read together
UNITS_AT_ONCE: Final = 1024
UNITS_BESIDE: Final = 32  # read on both sides, to judge which of two entries is out of order
UNITS_PROBED: Final = 15  # their median directs a bisection, so that a few damaged ones do not
MAX_BODY_BYTES: Final = 64 << 20  # limit for a body after decompression
WRONG_PLACE: Final = "the unit leads to no record of this queue"
V6_MARK: Final = 1 << 224  # distinguishes an id of 28 bytes from one of 16 in a locator
HIDDEN_PROPERTIES: Final = RESERVED | {SHARDING_KEY, SEQUENCE_PROPERTY}


class Limits(NamedTuple):
    """The limits of one read: it returns at least one record, and then no more than these."""

    max_records: int
    max_bytes: int


def locator_of(store_host: bytes, physical_offset: int) -> int:
    """Return the offset id (CommitLog's msgId) as one number."""
    number = int.from_bytes(store_host, "big") << 64 | physical_offset
    return number | V6_MARK if len(store_host) > 8 else number


def locator_text(locator: int) -> str:
    """Return the offset id as RocketMQ writes it: 32 hex digits, 56 for an IPv6 host."""
    return f"{locator - V6_MARK:056X}" if locator >= V6_MARK else f"{locator:032X}"


def to_stored(message: Message, offset: int, physical_offset: int) -> StoredRecord:
    """Convert a message to a record. Raises Corrupt for a body that cannot be decompressed."""
    properties = decode_properties(message.properties)
    key = properties.get(SHARDING_KEY)
    lookup_keys = [k for k in properties.get(KEYS, "").split(" ") if k]
    if key in lookup_keys:
        lookup_keys.remove(key)
    headers: Sequence[Header] = [
        (name, value.encode())
        for name, value in properties.items()
        if name not in HIDDEN_PROPERTIES
    ]
    return StoredRecord(
        offset,
        message.born_timestamp_ms,
        None if key is None else key.encode("utf-8", "surrogateescape"),
        decompress(message.body, message.sys_flag, MAX_BODY_BYTES),
        headers,
        "CreateTime",
        properties.get(TAGS),
        lookup_keys,
        locator_of(message.store_host, physical_offset),
        message.store_timestamp_ms,
        properties,
        suspect_parts(message, physical_offset),
    )


class QueueReader:
    """A reader of one queue of a store, for any number of threads at any time."""

    def __init__(self, log: CommitLog, units: ConsumeQueue, partition: TopicPartition) -> None:
        self._log = log
        self._units = units
        self._partition = partition

    def read(self, offset: int, end: int, limits: Limits) -> tuple[Sequence[StoredRecord], int]:
        """Return (records from `offset` on below `end`, offset to continue from). See LogStore.read."""
        records: list[StoredRecord] = []
        size_bytes = 0
        while offset < end and len(records) < max(limits.max_records, 1):
            try:
                units = self._units_at(offset, end, max(limits.max_records, 1) - len(records))
            except Corrupt:
                if records:
                    break
                raise
            stop = offset + len(units)
            for unit, record in self._records(units, offset, bool(records)):
                if record is not None:
                    size_bytes += unit.size
                    if records and size_bytes > limits.max_bytes:
                        return records, offset
                    records.append(record)
                offset += 1
            if offset < stop:
                break  # stopped before a damaged record
        return records, offset

    def _units_at(self, offset: int, end: int, count: int) -> Sequence[QueueEntry]:
        """Return entries from `offset` on, all of one file.

        If there are none, raises Corrupt with the offset after the gap.
        """
        run = self._units.run
        in_file = run.file_bytes // UNIT_SIZE
        count = min(end - offset, count, UNITS_AT_ONCE, in_file - offset % in_file)
        try:
            units = self._units.read(offset, count)
        except Corrupt as error:
            behind = [base // UNIT_SIZE for base in run.bases if base > offset * UNIT_SIZE]
            stop = min([*behind, end])
            raise damaged(error, self._partition, offset, next_good_offset=stop) from error
        if not units:
            missing = unit_error(run, offset, "the queue ends before this unit")
            raise damaged(missing, self._partition, offset, next_good_offset=end)
        return units

    def _stored(self, message: Message, offset: int, unit: QueueEntry) -> StoredRecord:
        try:
            record = to_stored(message, offset, unit.physical_offset)
        except Corrupt as error:
            raise self._log.damage(unit.physical_offset, error.message) from error
        if record.suspect:
            self._log.suspect_records += 1
        return record

    def _records(
        self, units: Sequence[QueueEntry], offset: int, begun: bool
    ) -> Iterator[tuple[QueueEntry, StoredRecord | None]]:
        """Yield the entries with their records; a filler has no record.

        Stops before a damaged record. If nothing was read before it, raises Corrupt instead.
        """
        data, start = b"", 0
        fitting = frozenset(_fitting(self._log, units))
        for at, unit in enumerate(units):
            if unit.is_filler:
                yield unit, None
                continue
            position = unit.physical_offset - start
            try:
                if at not in fitting:
                    raise unit_error(self._units.run, offset + at, WRONG_PLACE, unit)
                if not 0 <= position <= len(data) - unit.size:
                    start, position = unit.physical_offset, 0
                    data = self._window(units, at)
                record = self._stored(self._checked(data, position, unit), offset + at, unit)
            except Corrupt as error:
                if begun or at:
                    return
                raise damaged(error, self._partition, offset + at) from error
            yield unit, record

    def _window(self, units: Sequence[QueueEntry], at: int) -> bytes:
        """Return the bytes of the record of `units[at]` and of the records close after it."""
        return self._log.read(units[at].physical_offset, _window_bytes(units, at))

    def _checked(self, data: bytes, position: int, unit: QueueEntry) -> Message:
        message = self._log.checked(data, position, unit.physical_offset)
        check_address(self._log, self._partition, message, unit.physical_offset)
        return message


def check_address(
    log: CommitLog, partition: TopicPartition, message: Message, physical_offset: int
) -> None:
    """Raise Corrupt unless the record at a physical offset belongs to this queue."""
    if (message.topic, message.queue_id) != partition and not is_in_lmq(message, partition):
        raise log.damage(
            physical_offset,
            f"the unit of {partition} points to a record of another queue",
            expected=str(partition),
            found=f"{message.topic}-{message.queue_id}",
        )


def damaged(
    error: Corrupt, partition: TopicPartition, offset: int, *, next_good_offset: int | None = None
) -> Corrupt:
    """Return the error with the offsets of the damaged record and of the record to continue with."""
    facts = {
        **error.facts(),
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": offset,
        "next_good_offset": offset + 1 if next_good_offset is None else next_good_offset,
    }
    return Corrupt(f"{partition} offset {offset}: {error.message}", **facts)


def unreadable(partition: TopicPartition, offset: int, error: Corrupt) -> Finding:
    """Return the finding for a record that cannot be read."""
    facts = error.facts()
    path, position = facts.get("path"), facts.get("position")
    return finding(
        "damaged-record",
        str(path),
        position=position if isinstance(position, int) else None,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        expected=_text(facts.get("expected")),
        found=_text(facts.get("found")),
        message=error.message.removeprefix(f"{path}: position {position}: "),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def unit_error(run: FileRun, offset: int, what: str, unit: QueueEntry | None = None) -> Corrupt:
    """Return the error for an entry of a queue with these files: the file, the position in it, and what was found."""
    position = offset * UNIT_SIZE
    base = run.base_of(position)
    path = run.directory if base is None else run.path(base)
    position -= base or 0
    return Corrupt(
        f"{path}: position {position}: {what}",
        kind="consumequeue",
        path=str(path),
        position=position,
        found=None if unit is None else f"{unit.size} bytes at {unit.physical_offset}",
    )


def _window_bytes(units: Sequence[QueueEntry], at: int) -> int:
    """Return how many bytes to read for the record of `units[at]` and for the records close after it."""
    start = units[at].physical_offset
    end = start + units[at].size
    for unit in units[at + 1 :]:
        following = unit.physical_offset + unit.size
        if not unit.is_valid or not end <= unit.physical_offset <= end + NEAR_BYTES:
            break
        if following - start > WINDOW_BYTES:
            break
        end = following
    return end - start


# ---- queue entries, some of which may be damaged ----


def judged_units(
    log: CommitLog, units: ConsumeQueue, visible: range, part: range, *, backward: bool
) -> Iterator[tuple[int, QueueEntry, bool]]:
    """Yield (offset, entry, whether it can be right) for a part of the visible offsets, without fillers.

    An entry can be right if it points into the log and its position rises with the positions of most others.
    """
    blocks = range(part.start // UNITS_AT_ONCE, -(-part.stop // UNITS_AT_ONCE))
    order = -1 if backward else 1
    for block in blocks[::order]:
        low = max(part.start, block * UNITS_AT_ONCE)
        high = min(part.stop, (block + 1) * UNITS_AT_ONCE)
        begin = max(visible.start, low - UNITS_BESIDE)
        found = units_as_they_stand(units, begin, min(visible.stop, high + UNITS_BESIDE) - begin)
        right = _right(log, found)
        for offset in range(low, high)[::order]:
            unit = found[offset - begin]
            if not unit.is_filler:
                yield offset, unit, offset - begin in right


def units_as_they_stand(units: ConsumeQueue, offset: int, count: int) -> Sequence[QueueEntry]:
    """Return `count` entries. Each entry of a missing file is replaced by an invalid entry."""
    try:
        return units.read(offset, count)
    except Corrupt:
        if count == 1:
            return [QueueEntry(-1, 0, 0)]
        half = count // 2
        return [
            *units_as_they_stand(units, offset, half),
            *units_as_they_stand(units, offset + half, count - half),
        ]


def offsets_near(units: ConsumeQueue, visible: range, physical_offset: int) -> range:
    """Narrow the visible offsets down to a range around the first record at or after a physical offset.

    Where they exist, the range also has an entry before that position and one at or after it.
    """
    low, high = visible.start, visible.stop
    while high - low > 4 * UNITS_PROBED:
        middle = (low + high) // 2
        probed = units_as_they_stand(units, middle, UNITS_PROBED)
        places = sorted(u.physical_offset for u in probed if u.is_valid and not u.is_filler)
        if not places:
            break
        if places[len(places) // 2] < physical_offset:
            low = middle
        else:
            high = middle + UNITS_PROBED
    return range(low, high)


def _fitting(log: CommitLog, units: Sequence[QueueEntry]) -> Sequence[int]:
    """Return which entries point to a place in the log with room for the record."""
    low, high, largest = log.start, log.end, log.largest_record
    return [
        index
        for index, (at, size, _) in enumerate(units)
        if low <= at <= high - size and 0 < size <= largest
    ]


def _right(log: CommitLog, units: Sequence[QueueEntry]) -> Container[int]:
    """Return which entries can be right.

    Of entries out of order, those where no record of their size begins are rejected, and then as few others as
    possible.
    """
    fitting = _fitting(log, units)
    falls = [
        pair
        for pair in pairwise(fitting)
        if units[pair[0]].physical_offset >= units[pair[1]].physical_offset
    ]
    if not falls:
        return range(len(units)) if len(fitting) == len(units) else set(fitting)
    doubtful = {index for pair in falls for index in pair}
    kept = [index for index in fitting if index not in doubtful or _is_record(log, units[index])]
    return _longest_rise(kept, [units[index].physical_offset for index in kept])


def _is_record(log: CommitLog, unit: QueueEntry) -> bool:
    try:
        return log.size_at(unit.physical_offset) == unit.size
    except Corrupt:
        return False


def _longest_rise(indexes: Sequence[int], places: Sequence[int]) -> set[int]:
    """Return the indexes of the longest series of places in which each place is above the one before."""
    least: list[int] = []  # the smallest place that ends a series of this length
    ends: list[int] = []  # the number of that place
    before: list[int] = []  # for each place, the number of the one before it in its series
    for number, place in enumerate(places):
        length = bisect_left(least, place)
        before.append(ends[length - 1] if length else -1)
        least[length : length + 1] = [place]
        ends[length : length + 1] = [number]
    rise = set()
    number = ends[-1] if ends else -1
    while number >= 0:
        rise.add(indexes[number])
        number = before[number]
    return rise
