"""The partitions and offsets of a read: combines options with a store's bounds into offset ranges and splits.

Owns the choice of partitions, the rate limits of a stream (the arithmetic is the same as in Spark's Kafka source), the
meaning of earliest, latest and a time, and the reaction to offsets that no longer
exist. Must not read records or know Spark.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from logserver.pipeline.read.options import (
    EARLIEST,
    LATEST,
    STREAM_SPLIT_BYTES,
    Limit,
    ReadOptions,
    store_settings,
    wrong,
)
from storage import (
    Isolation,
    OffsetBounds,
    OffsetRange,
    Split,
    Splitter,
    StoreOptions,
    TopicPartition,
    detect,
    open_splitter,
)
from storage.errors import (
    CallerError,
    Corrupt,
    InvalidArgument,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)

Offsets: TypeAlias = Mapping[TopicPartition, int]
JsonOffsets: TypeAlias = Mapping[str, Mapping[str, int]]

SHOWN: Final = 5  # maximum number of names that a message lists

_log = logging.getLogger(__name__)


def open_chosen(options: ReadOptions) -> Chosen:
    """Open the store that the options name.

    Raises InvalidArgument for a setting that its backend does not have, and what `open_splitter` raises.
    """
    detected = detect(options.path)
    settings = store_settings(options.settings, detected.backend if detected else None)
    chosen = StoreOptions(settings=settings)
    return Chosen(open_splitter(options.path, chosen, permissive=options.permissive), options)


class Chosen:
    """The part of a store that the options choose. Not thread-safe."""

    def __init__(self, splitter: Splitter, options: ReadOptions) -> None:
        self.splitter = splitter
        self._options = options

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the existing partitions that are read, in order.

        Without a choice, these are the partitions of all topics that are not internal.
        """
        return [address for address in self.splitter.partitions() if self._chooses(address)]

    def _chooses(self, partition: TopicPartition) -> bool:
        options = self._options
        if options.assigned is not None:
            return partition in options.assigned
        if options.topics is not None:
            return partition.topic in options.topics
        if options.pattern is not None:
            return options.pattern.fullmatch(partition.topic) is not None
        return not self.splitter.is_internal(partition.topic)

    def require_named(self) -> None:
        """Raise InvalidArgument for a topic or partition that the options name and the store does not have."""
        there, options = self.splitter.partitions(), self._options
        _refuse_missing("assign", options.assigned or (), there)
        _refuse_missing("subscribe", options.topics or (), [address.topic for address in there])

    def missing(self, partition: TopicPartition) -> CallerError:
        """Return the error for a partition that was read before and is not read any more."""
        topic, number = partition
        there = self.splitter.partitions()
        if partition in there:
            return InvalidArgument(
                f"{partition} was read until now, and the options do not choose it any more: begin with a new "
                "checkpoint, or leave it out for good with failOnDataLoss=false",
                field="subscribe",
            )
        left = sum(address.topic == topic for address in there)
        return UnknownPartition(topic, number, left) if left else UnknownTopic(topic)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """Return the bounds that a reader sees: under read_committed the end is the last stable offset."""
        bounds = self.splitter.bounds(partition)
        if self._options.isolation is Isolation.READ_COMMITTED:
            return bounds._replace(end=bounds.stable)
        return bounds

    def latest(self) -> Offsets:
        """Return the end offset of every partition that is read."""
        return {address: self.bounds(address).end for address in self.partitions()}

    def offsets(self, limit: Limit) -> Offsets:
        """Return the offset that a limit means in every partition that is read. A named offset is returned unchanged.

        Raises InvalidArgument if the limit does not name exactly these partitions, or if no record is at or after its
        time.
        """
        partitions = self.partitions()
        if limit.each is not None and set(limit.each) != set(partitions):
            reason = (
                f"names {_listed(sorted(limit.each))}, but the partitions are {_listed(partitions)}"
            )
            raise wrong(limit.option, f"must name every partition: it {reason}")
        values = limit.each or dict.fromkeys(partitions, limit.every or 0)
        find = self._at_time if limit.by_time else self._at_offset
        return {address: find(address, values[address], limit) for address in partitions}

    def _at_offset(self, partition: TopicPartition, offset: int, limit: Limit) -> int:
        if offset == EARLIEST:
            return self.bounds(partition).start
        return self.bounds(partition).end if offset == LATEST else offset

    def _at_time(self, partition: TopicPartition, timestamp_ms: int, limit: Limit) -> int:
        end = self.bounds(partition).end
        found = self.splitter.offset_for_time(partition, timestamp_ms)
        if found is not None:
            return min(found.offset, end)
        if limit.option.startswith("starting") and not self._options.no_match_is_latest:
            raise wrong(
                limit.option,
                f"{partition} has no record at or after {timestamp_ms} ms; with "
                "startingOffsetsByTimestampStrategy=latest it begins at its end",
            )
        return end

    def batch_ranges(self) -> Sequence[OffsetRange]:
        """Return the ranges that a batch reads.

        Raises InvalidArgument for options that contradict each other or the store, OffsetOutOfRange if offsets no
        longer exist and failOnDataLoss is on, and what `check_missing` raises.
        """
        self.require_named()
        starts, ends = self.offsets(self._options.start), self.offsets(self._options.end)
        self.check_missing(ends)
        named = self._options.start.each is not None and self._options.end.each is not None
        for address, start in starts.items():
            if named and not self._options.start.by_time and start > ends[address]:
                reason = f"{address} would begin at {start}, after its end {ends[address]}"
                raise wrong(self._options.start.option, reason)
        return list(self.checked(OffsetRange(at, starts[at], ends[at]) for at in starts))

    def check_missing(self, ends: Offsets) -> None:
        """Raise Corrupt if a chosen partition is missing, or records are missing from a partition that is read to its
        end.

        With mode=PERMISSIVE, or without failOnDataLoss, log each of them instead.
        """

        def is_read(partition: TopicPartition) -> bool:
            end = ends.get(partition)
            to_end = end is None or end >= self.bounds(partition).end
            return self._chooses(partition) and to_end

        lenient = self._options.permissive or not self._options.fail_on_data_loss
        check_missing(self.splitter, is_read, lenient=lenient)

    def checked(self, ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
        """Yield the ranges that are not empty, cut to the bounds.

        A range outside the bounds raises OffsetOutOfRange; without failOnDataLoss it is logged and the rest is yielded.
        """
        for address, start, end in ranges:
            bounds = self.bounds(address)
            for offset in (start, end):
                if start != end and not bounds.start <= offset <= bounds.end:
                    self.lose(_gone(address, offset, bounds))
            start, end = max(start, bounds.start), min(end, bounds.end)
            if start < end:
                yield OffsetRange(address, start, end)

    def lose(self, error: CallerError) -> None:
        """Raise the error of a data loss; without failOnDataLoss, log it."""
        if self._options.fail_on_data_loss:
            raise error
        _log.warning(
            "%s; failOnDataLoss is off: reading continues with the existing records", error
        )

    def plan(self, ranges: Sequence[OffsetRange]) -> Sequence[Split]:
        """Plan the splits of checked ranges, by maxPartitionBytes, minPartitions and maxRecordsPerPartition.

        A stream without maxPartitionBytes gets one split for each task that can run at once, or fewer for little data:
        an additional task costs as much as reading 25 MB.
        """
        options = self._options
        splits = self._planned(ranges, options.max_partition_bytes, options.min_partitions)
        small = -(-sum(split.size_bytes for split in splits) // STREAM_SPLIT_BYTES)
        shared_by = min(options.shared_by or 1, small)
        if len(splits) >= shared_by:
            return splits
        least = max(shared_by, options.min_partitions)
        return self._planned(ranges, options.max_partition_bytes, least)

    def _planned(
        self, ranges: Sequence[OffsetRange], split_bytes: int, min_splits: int
    ) -> Sequence[Split]:
        options, splits = self._options, list[Split]()
        pieces = list(_cut(ranges, options.max_records_per_partition))
        if not pieces:
            return splits
        together = [pieces] if options.max_records_per_partition is None else [[p] for p in pieces]
        for part in together:
            splits += self.splitter.plan(
                part,
                split_bytes=split_bytes,
                min_splits=-(-min_splits // len(together)),
                isolation=options.isolation,
            )
        return splits


def _cut(ranges: Sequence[OffsetRange], most: int | None) -> Iterator[OffsetRange]:
    """Yield the ranges, cut into ranges of at most `most` offsets."""
    for address, start, end in ranges:
        step = most or max(1, end - start)
        for first in range(start, end, step):
            yield OffsetRange(address, first, min(first + step, end))


def _gone(address: TopicPartition, offset: int, bounds: OffsetBounds) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        address.topic, address.partition, offset=offset, earliest=bounds.start, latest=bounds.end
    )


def _refuse_missing(
    option: str,
    wanted: Sequence[str] | Sequence[TopicPartition],
    there: Iterable[str] | Iterable[TopicPartition],
) -> None:
    missing = sorted(map(str, set(wanted) - set(there)))
    if missing:
        has = sorted(set(map(str, there)))
        raise wrong(option, f"the store has no {_listed(missing)}; it has {_listed(has)}")


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:SHOWN]))
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown or "none"


def check_missing(
    splitter: Splitter, is_read: Callable[[TopicPartition], bool], *, lenient: bool
) -> None:
    """Raise Corrupt for a partition that is read and is missing or misses records; if `lenient`, log each instead."""
    for found in splitter.missing():
        partition = TopicPartition(str(found.topic), found.partition or 0)
        if not is_read(partition):
            continue
        what = f"{found.path}: topic {found.topic!r} partition {found.partition}: {found.message}"
        if not lenient:
            raise Corrupt(
                f"{what}. With mode=PERMISSIVE the rest is read",
                kind=found.code,
                path=found.path,
                topic=found.topic,
                partition=found.partition,
            )
        _log.warning("left out: %s", what)


# ---- rate limits of a stream ---------------------------------------------------------------------


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Convert offsets to {"topic": {"0": 12}}, sorted, as Spark's Kafka source writes them into its checkpoints."""
    found: dict[str, dict[str, int]] = {}
    for address in sorted(offsets):
        found.setdefault(address.topic, {})[str(address.partition)] = offsets[address]
    return found


def from_json(offsets: JsonOffsets) -> dict[TopicPartition, int]:
    """Convert JSON offsets back; the inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def share_out(limit: int, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Return end offsets such that about `limit` offsets are between `starts` and the result.

    Each partition gets a share in proportion to its available offsets. A partition with any offset gets at least one,
    so that a small partition does not starve.
    """
    sizes = {at: max(0, end - starts[at]) for at, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    shared = {}
    for address, end in ends.items():
        share = limit * sizes[address] / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        shared[address] = min(end, starts[address] + taken) if sizes[address] else end
    return shared


def waiting(starts: Offsets, ends: Offsets) -> int:
    """Return the number of offsets between `starts` and `ends`."""
    return sum(max(0, end - starts[address]) for address, end in ends.items())
