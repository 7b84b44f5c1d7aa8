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
    InvalidArgument,
    IoFailure,
    OffsetOutOfRange,
    RecordNotFound,
    UnknownPartition,
    UnknownTopic,
)
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

    Raises InvalidArgument for a bad cursor and for limits below 1, with which no page would end.
    """
    for field in ("limit", "max_scanned"):
        if getattr(budget, field) < 1:
            raise InvalidArgument(f"{field} must be at least 1", field=field)
    found: list[tuple[int, StoredRecord]] = []
    scanned = found_bytes = 0
    for index, record in _candidates(partitions, search, cursor, backward=backward):
        hit = search.matches(record)
        if hit:
            found_bytes += weight_bytes(record)
        full = len(found) >= budget.limit or (found and found_bytes > budget.max_bytes)
        if full or scanned >= budget.max_scanned:
            sign = "-" if backward else ""
            return _page(found, scanned, f"{sign}{index}:{record.offset}")
        scanned += 1
        if hit:
            found.append((partitions[index].partition.partition, record))
    return _page(found, scanned, None)


def _candidates(
    partitions: Sequence[Partition], search: Search, cursor: str | None, *, backward: bool
) -> Iterator[tuple[int, StoredRecord]]:
    """Every record that may match, in the search's order, with its partition's index."""
    walk = _walk_back if backward else _walk
    indexes = range(len(partitions))[:: -1 if backward else 1]
    offset = None
    if cursor is not None:
        first, offset = _parse(cursor, len(partitions), backward=backward)
        indexes = indexes[indexes.index(first) :]
    for index in indexes:
        first_offset = _first_offset(partitions[index], search)
        if first_offset is not None:
            for record in walk(partitions[index], first_offset, offset):
                yield index, record
        offset = None


def _walk(partition: Partition, first: int, offset: int | None) -> Iterator[StoredRecord]:
    """The records from `first`, or from `offset` behind it, to the end."""
    at = first if offset is None else max(offset, first)
    end = partition.bounds().end
    while at < end:
        page = _read(partition, at)
        yield from page.records
        at = page.next_offset


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


def _walk_back(partition: Partition, first: int, offset: int | None) -> Iterator[StoredRecord]:
    """The records from the end, or from `offset` before it, down to `first`."""
    end = partition.bounds().end
    stop = end if offset is None else min(offset + 1, end)
    span = BACKWARD_OFFSETS
    while stop > (first := max(first, partition.bounds().start)):
        low = max(first, stop - span)
        records, size_bytes = _last_records(partition, low, stop)
        if size_bytes > BACKWARD_BYTES:
            low = records[0].offset
            span = stop - low
        elif size_bytes < BACKWARD_BYTES // 4 and len(records) < BACKWARD_OFFSETS:
            span *= 2
        yield from reversed(records)
        stop = low


def _last_records(partition: Partition, low: int, stop: int) -> tuple[deque[StoredRecord], int]:
    """The records with low <= offset < stop, and their bytes; where these are more than
    BACKWARD_BYTES only the last of them, the first of which has passed it.
    """
    records: deque[StoredRecord] = deque()
    size_bytes = 0
    while low < stop:
        page = _read(partition, low)
        for record in page.records:
            if record.offset >= stop:
                break
            records.append(record)
            size_bytes += weight_bytes(record)
            while size_bytes - weight_bytes(records[0]) > BACKWARD_BYTES:
                size_bytes -= weight_bytes(records.popleft())
        low = page.next_offset
    return records, size_bytes


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
