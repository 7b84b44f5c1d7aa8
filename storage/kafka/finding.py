"""Looking for records by key or tag: a scan bounded by time, in pages that miss nothing.

Owns the search, its two directions and its cursor ("partition:offset", where to go on; with a "-"
before it on the way back); must not know topics. Kafka keeps no index of keys, so every record from
the first one in the time range on is looked at, up to a budget.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from storage.errors import (
    Corrupt,
    InvalidArgument,
    IoFailure,
    OffsetOutOfRange,
    RecordNotFound,
    UnknownPartition,
    UnknownTopic,
)
from storage.kafka.log_file import INT64_MAX
from storage.kafka.partition import Partition
from storage.kafka.reading import Limits
from storage.kafka.segment import Segment
from storage.model import FoundPage, Isolation, Page, StoredRecord, TopicPartition, weight_bytes

_RECORD_ID: Final = re.compile(r"([^:]+):([0-9]{1,10}):([0-9]{1,18})")
_CURSOR: Final = re.compile(r"(-?)([0-9]{1,10}):([0-9]{1,19})")
PAGE: Final = Limits(max_records=10_000, max_bytes=1 << 20)

# How many offsets the way back takes at once; fewer where they hold more than so many bytes, more
# where compaction left few records.
BACKWARD_OFFSETS: Final = 1024
BACKWARD_BYTES: Final = 4 << 20


class Search(NamedTuple):
    """What is looked for; None: not asked. `key` is a record's key or one of its lookup keys; times
    are inclusive.
    """

    key: bytes | None
    tag: str | None
    from_ms: int | None
    to_ms: int | None

    def matches(self, record: StoredRecord) -> bool:
        """Whether this record is one of those looked for."""
        return (
            (self.key is None or self._has_key(record))
            and (self.tag is None or record.tag == self.tag)
            and (self.from_ms is None or record.timestamp_ms >= self.from_ms)
            and (self.to_ms is None or record.timestamp_ms <= self.to_ms)
        )

    def _has_key(self, record: StoredRecord) -> bool:
        return record.key == self.key or any(k.encode() == self.key for k in record.lookup_keys)


class _Step(NamedTuple):
    """What the search meets: a record, or damage; `at` is the offset from which the search goes on here, and
    `behind` that from which it goes on behind damage (None: nothing is left in the partition).
    """

    at: int
    record: StoredRecord | None = None
    damage: Corrupt | None = None
    behind: int | None = None


class Budget(NamedTuple):
    """Where a page ends: records in it, records looked at, bytes of what is in it."""

    limit: int
    max_scanned: int
    max_bytes: int


def find_records(
    partitions: Sequence[Partition],
    search: Search,
    budget: Budget,
    *,
    cursor: str | None,
    backward: bool,
) -> FoundPage:
    """One page of matches over partitions in order (or exactly the other way), from the cursor on.

    Raises InvalidArgument for a bad cursor and for limits below 1, with which no page would end;
    Corrupt at a damaged place, with the `cursor` behind it (None: nothing is left). A page that has
    found something ends before it.
    """
    for field in ("limit", "max_scanned"):
        if getattr(budget, field) < 1:
            raise InvalidArgument(f"{field} must be at least 1", field=field)
    found: list[tuple[int, StoredRecord]] = []
    scanned = found_bytes = 0
    for index, (at, record, damage, behind) in _steps(
        partitions, search, cursor, backward=backward
    ):
        hit = record is not None and search.matches(record)
        if record is not None and hit:
            found_bytes += weight_bytes(record)
        full = len(found) >= budget.limit or (
            found and (found_bytes > budget.max_bytes or damage is not None)
        )
        if full or scanned >= budget.max_scanned:
            return _page(found, scanned, _cursor(index, at, backward=backward))
        if damage is not None:
            onward = _onward(index, behind, len(partitions), backward=backward)
            raise Corrupt(damage.message, **{**damage.facts(), "cursor": onward}) from damage
        scanned += 1
        if record is not None and hit:
            found.append((partitions[index].partition.partition, record))
    return _page(found, scanned, None)


def _cursor(index: int, offset: int, *, backward: bool) -> str:
    return f"{'-' if backward else ''}{index}:{offset}"


def _onward(index: int, behind: int | None, partitions: int, *, backward: bool) -> str | None:
    """The cursor behind damage: in the same partition, or where the next one begins; None behind the last."""
    if behind is not None:
        return _cursor(index, behind, backward=backward)
    index += -1 if backward else 1
    if not 0 <= index < partitions:
        return None
    return _cursor(index, INT64_MAX if backward else 0, backward=backward)


def _steps(
    partitions: Sequence[Partition], search: Search, cursor: str | None, *, backward: bool
) -> Iterator[tuple[int, _Step]]:
    """Every record that may match, in the search's order, with its partition's index, up to the first damage."""
    walk = _walk_back if backward else _walk
    indexes = range(len(partitions))[:: -1 if backward else 1]
    offset = None
    if cursor is not None:
        first, offset = _parse(cursor, len(partitions), backward=backward)
        indexes = indexes[indexes.index(first) :]
    for index in indexes:
        first_offset = _first_offset(partitions[index], search)
        if first_offset is not None:
            for step in walk(partitions[index], first_offset, offset):
                yield index, step
        offset = None


def _walk(partition: Partition, first: int, offset: int | None) -> Iterator[_Step]:
    """The records from `first`, or from `offset` behind it, to the end."""
    at = first if offset is None else max(offset, first)
    end = partition.bounds().end
    while at < end:
        try:
            page = _read(partition, at)
        except Corrupt as damage:
            behind = _good_behind(damage, at, end)
            yield _Step(at, damage=damage, behind=behind if behind < end else None)
            return
        for record in page.records:
            yield _Step(record.offset, record)
        at = page.next_offset


def _good_behind(damage: Corrupt, at: int, stop: int) -> int:
    """Where good records go on behind damage that was met at an offset, `stop` at most."""
    offset = damage.facts().get("next_good_offset")
    return min(max(offset, at + 1), stop) if isinstance(offset, int) else stop


def _read(partition: Partition, offset: int) -> Page:
    """A page from `offset` on, or from the first record that is left: retention may delete beside a search."""
    while True:
        try:
            return partition.read(offset, PAGE, Isolation.READ_UNCOMMITTED)
        except OffsetOutOfRange:
            start = partition.bounds().start
            if start <= offset:
                raise
            offset = start


def _walk_back(partition: Partition, first: int, offset: int | None) -> Iterator[_Step]:
    """The records from the end, or from `offset` before it, down to `first`."""
    end = partition.bounds().end
    stop = end if offset is None else min(offset + 1, end)
    span = BACKWARD_OFFSETS
    while stop > (first := max(first, partition.bounds().start)):
        low = max(first, stop - span)
        part = _last_records(partition, low, stop)
        if part.damage is not None and part.damaged_from == low > first:
            span *= 2  # it may begin before
            continue
        for record in reversed(part.records):
            yield _Step(record.offset, record)
        if part.size_bytes > BACKWARD_BYTES:
            low = part.records[0].offset
            span = stop - low
        elif part.damage is not None:
            at, behind = part.begin - 1, part.damaged_from - 1
            yield _Step(at, damage=part.damage, behind=behind if behind >= first else None)
            return
        elif part.size_bytes < BACKWARD_BYTES // 4 and len(part.records) < BACKWARD_OFFSETS:
            span *= 2
        stop = low


class _Part(NamedTuple):
    """The last records before a place, from `begin` on, and their bytes. `damage`: the offsets from `damaged_from` to
    `begin` cannot be read.
    """

    records: Sequence[StoredRecord]
    size_bytes: int
    begin: int
    damaged_from: int = -1
    damage: Corrupt | None = None


def _last_records(partition: Partition, low: int, stop: int) -> _Part:
    """The records with low <= offset < stop, or those behind the last damage there; where they have more than
    BACKWARD_BYTES only the last of them, the first of which has passed it.
    """
    records: deque[StoredRecord] = deque()
    size_bytes = 0
    begin, damaged_from, damage = low, -1, None
    while low < stop:
        try:
            page = _read(partition, low)
        except Corrupt as error:
            records.clear()
            size_bytes = 0
            damaged_from, damage = low, error
            begin = low = _good_behind(error, low, stop)
            continue
        for record in page.records:
            if record.offset >= stop:
                break
            records.append(record)
            size_bytes += weight_bytes(record)
            while size_bytes - weight_bytes(records[0]) > BACKWARD_BYTES:
                size_bytes -= weight_bytes(records.popleft())
        low = page.next_offset
    return _Part(records, size_bytes, begin, damaged_from, damage)


def _first_offset(partition: Partition, search: Search) -> int | None:
    """Where the scan of a partition begins: everything before has a smaller time than `from_ms`.

    A lookup by time will not do: the broker's rule gives up at a segment that compaction emptied,
    though records behind it match.
    """
    while True:
        start = partition.bounds().start
        if search.from_ms is None:
            return start
        try:
            return _offset_before(partition.segments(), search.from_ms, start)
        except IoFailure:
            if partition.bounds().start == start:  # else segments were deleted meanwhile
                raise


def _offset_before(segments: Sequence[Segment], from_ms: int, start: int) -> int | None:
    for segment in segments:
        if segment.largest_timestamp_ms() >= from_ms:
            return max(segment.offset_before_time(from_ms - 1), start)
    return None


def _page(found: Sequence[tuple[int, StoredRecord]], scanned: int, cursor: str | None) -> FoundPage:
    return FoundPage(
        records=found,
        scanned=scanned,
        indexed=False,
        complete=cursor is None,
        cursor=cursor,
        time_axis="timestamp",
    )


def _parse(cursor: str, partitions: int, *, backward: bool) -> tuple[int, int]:
    parts = _CURSOR.fullmatch(cursor)
    if parts is None or (parts[1] == "-") is not backward:
        raise InvalidArgument(
            f"cursor {cursor[:80]!r} is none that was given for this direction", field="cursor"
        )
    if int(parts[2]) >= partitions:
        raise InvalidArgument(f"cursor {cursor!r} names no partition here", field="cursor")
    return int(parts[2]), int(parts[3])


def find_by_id(
    partition_at: Callable[[TopicPartition], Partition], record_id: str
) -> tuple[TopicPartition, StoredRecord]:
    """The record that `topic:partition:offset` names. Raises RecordNotFound, for any other text too."""
    missing = RecordNotFound(f"no record has the id {record_id!r}", id=record_id)
    match = _RECORD_ID.fullmatch(record_id)
    if match is None:
        raise missing
    address, offset = TopicPartition(match[1], int(match[2])), int(match[3])
    try:
        page = partition_at(address).read(offset, Limits(1, 0), Isolation.READ_UNCOMMITTED)
    except (UnknownTopic, UnknownPartition, OffsetOutOfRange) as error:
        raise missing from error
    if not page.records or page.records[0].offset != offset:
        raise missing
    return address, page.records[0]
