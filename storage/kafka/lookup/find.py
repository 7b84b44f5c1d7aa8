"""Search for records by key or tag: a scan bounded by time, in pages that miss no record.

Owns the search, its two directions and its cursor ("partition:offset", where the next page begins; with a "-"
before it in a backward search); must not know topics. Kafka keeps no index of keys, so every record from
the first one in the time range on is scanned, up to a budget.
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
from storage.kafka.log.log_file import INT64_MAX
from storage.kafka.log.reading import Limits
from storage.kafka.log.segment import Segment
from storage.kafka.partition import Partition
from storage.model import FoundPage, Isolation, Page, StoredRecord, TopicPartition, weight_bytes

_RECORD_ID: Final = re.compile(r"([^:]+):([0-9]{1,10}):([0-9]{1,18})")
_CURSOR: Final = re.compile(r"(-?)([0-9]{1,10}):([0-9]{1,19})")
PAGE: Final = Limits(max_records=10_000, max_bytes=1 << 20)

# A backward search reads this many offsets at once. It reads fewer if their records have more than BACKWARD_BYTES, and
# more if compaction left few records.
BACKWARD_OFFSETS: Final = 1024
BACKWARD_BYTES: Final = 4 << 20


class Search(NamedTuple):
    """The conditions of a search; None: any value. `key` is a record's key or one of its lookup keys. Times are
    inclusive.
    """

    key: bytes | None
    tag: str | None
    from_ms: int | None
    to_ms: int | None

    def matches(self, record: StoredRecord) -> bool:
        """Return whether this record fulfils all conditions."""
        return (
            (self.key is None or self._has_key(record))
            and (self.tag is None or record.tag == self.tag)
            and (self.from_ms is None or record.timestamp_ms >= self.from_ms)
            and (self.to_ms is None or record.timestamp_ms <= self.to_ms)
        )

    def _has_key(self, record: StoredRecord) -> bool:
        return record.key == self.key or any(k.encode() == self.key for k in record.lookup_keys)


class _Step(NamedTuple):
    """A step of a search: a record, or damage. A search that ends before this step goes on at offset `at`; one that
    passes over damage goes on at the offset in `behind` (None: no record is left in the partition).
    """

    at: int
    record: StoredRecord | None = None
    damage: Corrupt | None = None
    behind: int | None = None


class Budget(NamedTuple):
    """The limits of a page: records found, records scanned, bytes of the records found."""

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
    """Return one page of matching records, from the cursor on. Partitions and offsets ascend, or descend if `backward`.

    Raises InvalidArgument for a bad cursor, and for limits below 1, with which a search would make no progress.
    Raises Corrupt at damage, with the `cursor` after it (None: no record is left). A page with a match ends before the
    damage instead.
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
    """Return the cursor after damage: in the same partition, or where the next partition begins; None after the last
    partition.
    """
    if behind is not None:
        return _cursor(index, behind, backward=backward)
    index += -1 if backward else 1
    if not 0 <= index < partitions:
        return None
    return _cursor(index, INT64_MAX if backward else 0, backward=backward)


def _steps(
    partitions: Sequence[Partition], search: Search, cursor: str | None, *, backward: bool
) -> Iterator[tuple[int, _Step]]:
    """Yield every record that may match, in the search's order, with the index of its partition, up to the first
    damage of each partition.
    """
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
    """Yield the records from `first` on, or from a later `offset` on, to the end of the log."""
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
            at, behind = part.begin - 1, part.damaged_from - 1
            yield _Step(at, damage=part.damage, behind=behind if behind >= first else None)
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
    """Return the offset at which the scan of a partition begins: all earlier records have a timestamp below `from_ms`.

    None if the largest timestamp of every segment is below `from_ms`. A lookup by time does not suffice: the broker's
    rule stops at a segment that compaction emptied, though records after it match.
    """
    while True:
        start = partition.bounds().start
        if search.from_ms is None:
            return start
        try:
            return _offset_before(partition.segments(), search.from_ms, start)
        except IoFailure:
            if partition.bounds().start == start:  # else retention deleted segments: try again
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
