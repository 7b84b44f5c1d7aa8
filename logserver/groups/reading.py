"""One read of all partitions of a consumer: from which positions, and the records there.

Owns how a poll's bytes are shared among partitions, and how a position that the log no longer holds is reset.
Blocking; it runs in a thread and must not know the event loop.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import structs

from logserver.errors import ConsumerState
from logserver.service.fetch import ReadResult, read_page, visible_end
from logserver.service.requests import Fetch, Start, StartAt
from storage import Isolation, LogStore, Page, StorageError, StoredRecord, TopicPartition
from storage.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic


class Reset(enum.Enum):
    """The start position in a partition without a committed offset, or with a position that the log no longer holds."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


NOT_MOVED: Final = -1
"""In place of both offsets of a slice of records that are delivered again: the position stays where it is."""


class Slice(NamedTuple):
    """Records of one partition. The position was `begin` and becomes `next_offset`."""

    partition: TopicPartition
    begin: int
    records: Sequence[StoredRecord]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRead:
    """The result of one read: at most one slice of each partition, in the order in which they were read.

    `full`: more records are available. `failed`: the partition at which the read ended, and its error.
    """

    slices: Sequence[Slice] = ()
    size_bytes: int = 0
    full: bool = False
    failed: tuple[TopicPartition, StorageError] | None = None

    @property
    def records(self) -> list[tuple[TopicPartition, StoredRecord]]:
        """All records with their partitions; records of a partition are in offset order."""
        return [(part.partition, record) for part in self.slices for record in part.records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The parameters of a read: partitions in the order of their turns, each with the reader's position."""

    positions: Sequence[tuple[TopicPartition, int]]
    max_records: int
    max_bytes: int
    reset: Reset
    isolation: Isolation = Isolation.READ_UNCOMMITTED


def read_batch(store: LogStore, reading: Reading) -> GroupRead:
    """Read the partitions in order until the answer is full.

    The first record is returned whatever its size; later records must fit within `max_bytes`. Partitions that no
    longer exist are skipped. Any other error of a partition (Corrupt, OffsetOutOfRange without a reset, ...) ends the
    read.
    """
    slices: list[Slice] = []
    size_bytes = count = 0
    full = False
    for partition, position in reading.positions:
        wanted = Fetch(
            partition=partition,
            start=Start(StartAt.OFFSET, position),
            max_records=reading.max_records - count,
            max_bytes=reading.max_bytes - size_bytes,
            isolation=reading.isolation,
        )
        if wanted.max_bytes <= 0 or wanted.max_records <= 0:
            return GroupRead(slices=slices, size_bytes=size_bytes, full=True)
        try:
            result = _read(store, wanted, reading.reset)
        except (UnknownTopic, UnknownPartition):
            continue
        except StorageError as error:
            return GroupRead(slices=slices, size_bytes=size_bytes, failed=(partition, error))
        # The page is one record that is too large for the remaining bytes.
        if count and result.size_bytes > wanted.max_bytes:
            full = True
            continue
        page = result.page
        slices.append(Slice(partition, position, page.records, page.next_offset))
        size_bytes += result.size_bytes
        count += len(page.records)
        full = full or result.more
    return GroupRead(slices=slices, size_bytes=size_bytes, full=full)


def read_again(
    store: LogStore, wanted: Mapping[TopicPartition, Sequence[int]], limits: Reading
) -> tuple[GroupRead, Sequence[tuple[TopicPartition, int]]]:
    """Read single records by their offsets, until the answer is full, and return also the offsets that no record has
    any more: retention, compaction or a deletion has removed them. Of `limits` only the limits count.

    Raises Corrupt, ...
    """
    slices: list[Slice] = []
    gone: list[tuple[TopicPartition, int]] = []
    size_bytes = count = 0
    for partition, offsets in wanted.items():
        records: list[StoredRecord] = []
        for offset in offsets:
            try:
                page = store.read(partition, offset, max_records=1, isolation=limits.isolation)
            except (OffsetOutOfRange, UnknownTopic, UnknownPartition):
                gone.append((partition, offset))
                continue
            if not page.records or page.records[0].offset != offset:
                gone.append((partition, offset))
                continue
            record = page.records[0]
            size_bytes += len(record.key or b"") + len(record.value or b"")
            if count and (size_bytes > limits.max_bytes or count >= limits.max_records):
                break
            records.append(record)
            count += 1
        if records:
            slices.append(Slice(partition, NOT_MOVED, records, NOT_MOVED))
    return GroupRead(slices=slices, size_bytes=size_bytes, full=bool(slices)), gone


def reset_positions(
    store: LogStore,
    partitions: Iterable[TopicPartition],
    reset: Reset,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Mapping[TopicPartition, int]:
    """Return the start or the end of the log in each partition, for a reader of this isolation.

    Partitions that no longer exist are left out. Raises ConsumerState if `reset` is NONE.
    """
    positions = {}
    for partition in partitions:
        try:
            bounds = store.bounds(partition)
        except (UnknownTopic, UnknownPartition):
            continue
        if reset is Reset.NONE:
            raise ConsumerState(
                f"{partition} has no committed offset and auto.offset.reset is none",
                topic=partition.topic,
                partition=partition.partition,
            )
        end = visible_end(bounds, isolation)
        positions[partition] = bounds.start if reset is Reset.EARLIEST else end
    return positions


def timed_positions(
    store: LogStore, times_ms: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Return the offset of the first record at or after a time in each partition; its end if there is no such record.

    Raises UnknownTopic, UnknownPartition.
    """
    positions = {}
    for partition, timestamp_ms in times_ms.items():
        record = store.offset_for_time(partition, timestamp_ms)
        positions[partition] = store.bounds(partition).end if record is None else record.offset
    return positions


def check_range(
    store: LogStore, offsets: Mapping[TopicPartition, int], *, from_start: bool = True
) -> None:
    """Raise OffsetOutOfRange for an offset after the end of its partition, with `from_start` also before its start.

    Raises UnknownTopic, UnknownPartition.
    """
    for partition, offset in offsets.items():
        bounds = store.bounds(partition)
        if offset > bounds.end or (from_start and offset < bounds.start):
            raise OffsetOutOfRange(
                *partition, offset=offset, earliest=bounds.start, latest=bounds.end
            )


def _read(store: LogStore, wanted: Fetch, reset: Reset) -> ReadResult[Page]:
    try:
        return read_page(store, wanted)
    except OffsetOutOfRange:
        if reset is Reset.NONE:
            raise
    at = StartAt.EARLIEST if reset is Reset.EARLIEST else StartAt.LATEST
    return read_page(store, structs.replace(wanted, start=Start(at)))
