"""Search for records by key or tag: a scan bounded by time, in pages that miss no record.

Owns the search, its two directions and its cursor ("partition:offset", where the next page begins; with a "-"
before it in a backward search); must not know topics. Kafka keeps no index of keys, so every record from
the first one in the time range on is scanned, up to a budget.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from storage.coding.varint import INT64_MAX
from storage.errors import (
    Corrupt,
    IoFailure,
    OffsetOutOfRange,
    RecordNotFound,
    UnknownPartition,
    UnknownTopic,
)
from storage.kafka.log.reading import Limits
from storage.kafka.partition import Partition
from storage.model import (
    FindQuery,
    FoundPage,
    Isolation,
    Page,
    StoredRecord,
    TopicPartition,
    weight_bytes,
)
from storage.shared.query import (
    Inspected,
    RecordSearch,
    check_limits,
    page_of,
    parse_partition_cursor,
    partition_cursor,
)

_RECORD_ID: Final = re.compile(r"([^:]+):([0-9]{1,10}):([0-9]{1,18})")
PAGE: Final = Limits(max_records=10_000, max_bytes=1 << 20)

# A backward search reads this many offsets at once. It reads fewer if their records have more than BACKWARD_BYTES, and
# more if compaction left few records.
BACKWARD_OFFSETS: Final = 1024
BACKWARD_BYTES: Final = 4 << 20


class _Step(NamedTuple):
    """A step of a search: a record, or damage. A search that ends before this step goes on at offset `at`; one that
    passes over damage goes on at the offset in `beyond` (None: no record is left in the partition).
    """

    at: int
    record: StoredRecord | None = None
    damage: Corrupt | None = None
    beyond: int | None = None


def find_records(partitions: Sequence[Partition], query: FindQuery) -> FoundPage:
    """Return one page of matching records, from the cursor on. Partitions and offsets ascend, or descend if `backward`.

    Raises InvalidArgument for a bad cursor, and for limits below 1; Corrupt at damage: see `page_of`.
    """
    check_limits(query)
    return page_of(
        _inspected(partitions, query),
        query,
        lambda place: partition_cursor(*place, backward=query.backward),
        time_axis="timestamp",
    )


def _inspected(
    partitions: Sequence[Partition], query: FindQuery
) -> Iterator[tuple[tuple[int, int], Inspected]]:
    """Yield every record that may match, in the search's order, at its (index of the partition, offset), up to the
    first damage of each partition.
    """
    search, backward = RecordSearch(query), query.backward
    walk = _walk_back if backward else _walk
    indexes = range(len(partitions))[:: -1 if backward else 1]
    offset = None
    start = parse_partition_cursor(query, indexes)
    if start is not None:
        first, offset = start
        indexes = indexes[indexes.index(first) :]
    for index in indexes:
        number = partitions[index].partition.partition
        first_offset = _first_offset(partitions[index], query.from_ms)
        if first_offset is not None:
            for at, record, damage, beyond in walk(partitions[index], first_offset, offset):
                if damage is not None:
                    onward = _onward(index, beyond, len(partitions), backward=backward)
                    yield (index, at), Inspected(number, damage=damage, onward=onward)
                else:
                    hit = record is not None and search.matches(record)
                    yield (index, at), Inspected(number, record if hit else None)
        offset = None


def _onward(index: int, beyond: int | None, partitions: int, *, backward: bool) -> str | None:
    """Return the cursor after damage: in the same partition, or where the next partition begins; None after the last
    partition.
    """
    if beyond is not None:
        return partition_cursor(index, beyond, backward=backward)
    index += -1 if backward else 1
    if not 0 <= index < partitions:
        return None
    return partition_cursor(index, INT64_MAX if backward else 0, backward=backward)


def _walk(partition: Partition, first: int, offset: int | None) -> Iterator[_Step]:
    """Yield the records from `first` on, or from a later `offset` on, to the end of the log."""
    at = first if offset is None else max(offset, first)
    end = partition.bounds().end
    while at < end:
        try:
            page = _read(partition, at)
        except Corrupt as damage:
            beyond = _good_beyond(damage, at, end)
            yield _Step(at, damage=damage, beyond=beyond if beyond < end else None)
            return
        for record in page.records:
            yield _Step(record.offset, record)
        at = page.next_offset


def _good_beyond(damage: Corrupt, at: int, stop: int) -> int:
    """Return the offset of the next good record after damage met at offset `at`; at most `stop`."""
    offset = damage.facts().get("next_good_offset")
    return min(max(offset, at + 1), stop) if isinstance(offset, int) else stop


def _read(partition: Partition, offset: int) -> Page:
    """Read a page from `offset` on, or from the log start: retention may delete records during a search."""
    while True:
        try:
            return partition.read(offset, PAGE, Isolation.READ_UNCOMMITTED)
        except OffsetOutOfRange:
            start = partition.bounds().start
            if start <= offset:
                raise
            offset = start


def _walk_back(partition: Partition, first: int, offset: int | None) -> Iterator[_Step]:
    """Yield the records from the end of the log, or from an earlier `offset`, down to `first`."""
    end = partition.bounds().end
    stop = end if offset is None else min(offset + 1, end)
    span = BACKWARD_OFFSETS
    while stop > (first := max(first, partition.bounds().start)):
        low = max(first, stop - span)
        part = _last_records(partition, low, stop)
        if part.damage is not None and part.damaged_from == low > first:
            span *= 2  # the damage may begin before `low`: read from an earlier offset
            continue
        for record in reversed(part.records):
            yield _Step(record.offset, record)
        if part.size_bytes > BACKWARD_BYTES:
            low = part.records[0].offset
            span = stop - low
        elif part.damage is not None:
            at, beyond = part.begin - 1, part.damaged_from - 1
            yield _Step(at, damage=part.damage, beyond=beyond if beyond >= first else None)
            return
        elif part.size_bytes < BACKWARD_BYTES // 4 and len(part.records) < BACKWARD_OFFSETS:
            span *= 2
        stop = low


class _Part(NamedTuple):
    """The last records before an offset, from `begin` on, and their bytes. With `damage` the offsets from
    `damaged_from` to `begin` cannot be read.
    """

    records: Sequence[StoredRecord]
    size_bytes: int
    begin: int
    damaged_from: int = -1
    damage: Corrupt | None = None


def _last_records(partition: Partition, low: int, stop: int) -> _Part:
    """Return the records with low <= offset < stop, or only the records after the last damage in this range.

    If these records have more than BACKWARD_BYTES, only the last ones are returned: the shortest run above that limit.
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
            begin = low = _good_beyond(error, low, stop)
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


def _first_offset(partition: Partition, from_ms: int | None) -> int | None:
    """Return the offset at which the scan of a partition begins: all earlier records have a timestamp below `from_ms`.

    None if the largest timestamp of every segment is below `from_ms`. A lookup by time does not suffice: the broker's
    rule stops at a segment that compaction emptied, though records after it match.
    """
    while True:
        start = partition.bounds().start
        if from_ms is None:
            return start
        try:
            return partition.reread(partial(_offset_before, partition, from_ms, start))
        except IoFailure:
            if partition.bounds().start == start:  # else retention deleted segments: try again
                raise


def _offset_before(partition: Partition, from_ms: int, start: int) -> int | None:
    for segment in partition.segments():
        if segment.largest_timestamp_ms() >= from_ms:
            return max(segment.offset_before_time(from_ms - 1), start)
    return None


def find_by_id(
    partition_at: Callable[[TopicPartition], Partition], record_id: str
) -> tuple[TopicPartition, StoredRecord]:
    """Return the record with the id `topic:partition:offset`. Raises RecordNotFound, also for any other text."""
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
