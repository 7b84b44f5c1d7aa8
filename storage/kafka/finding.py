"""Looking for records by key or tag: a scan bounded by time, in pages that miss nothing.

Owns the search and its cursor ("partition:offset", where to go on); must not know topics. Kafka
keeps no index of keys, so every record from the first one in the time range on is looked at, up to
a budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from storage.errors import (
    InvalidArgument,
    OffsetOutOfRange,
    RecordNotFound,
    UnknownPartition,
    UnknownTopic,
)
from storage.kafka.partition import Partition
from storage.kafka.reading import Limits
from storage.model import FoundPage, Isolation, StoredRecord, TopicPartition

_RECORD_ID: Final = re.compile(r"([^:]+):([0-9]{1,10}):([0-9]{1,18})")
PAGE: Final = Limits(max_records=10_000, max_bytes=1 << 20)


class Search(NamedTuple):
    """What is looked for; None: not asked. `key` is a record's key or one of its lookup keys; times
    are inclusive.
    """

    key: bytes | None
    tag: str | None
    from_ms: int | None
    to_ms: int | None
    limit: int
    max_scanned: int

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


def find_records(partitions: Sequence[Partition], search: Search, cursor: str | None) -> FoundPage:
    """One page of matches over partitions in order, from the cursor on.

    Raises InvalidArgument for a bad cursor and for limits below 1, with which no page would end.
    """
    for field in ("limit", "max_scanned"):
        if getattr(search, field) < 1:
            raise InvalidArgument(f"{field} must be at least 1", field=field)
    first, offset = (0, None) if cursor is None else _parse(cursor, len(partitions))
    found: list[tuple[int, StoredRecord]] = []
    scanned = 0
    for index in range(first, len(partitions)):
        partition = partitions[index]
        at = _first_offset(partition, search) if offset is None else offset
        offset = None
        end = partition.bounds().end
        while at is not None and at < end:
            page = partition.read(at, PAGE, Isolation.READ_UNCOMMITTED)
            for record in page.records:
                if scanned >= search.max_scanned or len(found) >= search.limit:
                    return _page(found, scanned, f"{index}:{record.offset}")
                scanned += 1
                if search.matches(record):
                    found.append((partition.partition.partition, record))
            at = page.next_offset
    return _page(found, scanned, None)


def _first_offset(partition: Partition, search: Search) -> int | None:
    """Where the scan of a partition begins: everything before has a smaller time than `from_ms`.

    A lookup by time will not do: the broker's rule gives up at a segment that compaction emptied,
    though records behind it match.
    """
    start = partition.bounds().start
    if search.from_ms is None:
        return start
    for segment in partition.segments():
        if segment.largest_timestamp_ms() >= search.from_ms:
            return max(segment.offset_before_time(search.from_ms - 1), start)
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


def _parse(cursor: str, partitions: int) -> tuple[int, int]:
    index, _, offset = cursor.partition(":")
    numbers = [index, offset]
    if not all(n.isascii() and n.isdigit() and len(n) < 20 for n in numbers):
        raise InvalidArgument(f"cursor {cursor!r} is not one of ours", field="cursor")
    if int(index) >= partitions:
        raise InvalidArgument(f"cursor {cursor!r} names no partition here", field="cursor")
    return int(index), int(offset)


def read_by_id(
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
