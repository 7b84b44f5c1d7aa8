"""A RocketMQ store, cut into splits.

Owns the contract of a Splitter and the content of a split. A split is a range of the commit log, and for each queue the
run of its entries that point there. Queues decide which records are rows. Records of deleted topics, paddings and
prepared messages are in no queue.

    log       |     split 0      |     split 1      |
    queue 0   [u0 u1 u2 u3]       [u4 u5]
    queue 1   [u0]                [u1 u2 u3 u4 u5]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.contract import SPLIT_BYTES, Clock, OffsetRange, Split, StoreOptions, check_plan
from storage.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from storage.files import FileSystem
from storage.model import Bound, Finding, Isolation, OffsetBounds, TimedOffset, TopicPartition
from storage.rocketmq.columns.queue_entries import EntryRange, SplitPlan
from storage.rocketmq.columns.split_plan import Asked, borders, cut_log
from storage.rocketmq.columns.tail import KnownStore
from storage.rocketmq.format.names import is_system_topic
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.lookup.by_time import find_time
from storage.rocketmq.recovery.evidence import QUEUE_ENDS_EARLY
from storage.rocketmq.state.root import BACKEND


def open_splitter(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> RocketMQSplitter:
    """See storage.open_splitter."""
    return RocketMQSplitter(KnownStore(path, options, fs=fs, clock=clock))


class RocketMQSplitter:
    """See Splitter."""

    backend = BACKEND

    def __init__(self, known: KnownStore) -> None:
        self._known = known

    def partitions(self) -> Sequence[TopicPartition]:
        """See Splitter."""
        return [queue.partition for queue in self._known.queues]

    def is_internal(self, topic: str) -> bool:
        """See Splitter."""
        return is_system_topic(topic)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """See Splitter."""
        return self._queue(partition).bounds()

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See Splitter. The search is by store time, with the answers of the real store."""
        queue = self._queue(partition)
        end = queue.bounds().end
        return find_time(self._known.log, queue.units, timestamp_ms, end=end, bound=Bound.LOWER)

    def offset_before_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """See Splitter. Return the start: lookups use the store time, but the column is the born time."""
        return self._queue(partition).bounds().start

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        *,
        split_bytes: int = SPLIT_BYTES,
        min_splits: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Sequence[Split]:
        """See Splitter. `isolation` changes nothing: a prepared message is in no queue that consumers read."""
        check_plan(split_bytes=split_bytes, min_splits=min_splits)
        asked = [self._asked(wanted) for wanted in ranges if self._checked(wanted)]
        if not asked:
            return []
        cuts = cut_log(
            asked,
            record_bytes=self._record_bytes(),
            split_bytes=split_bytes,
            min_splits=min_splits,
        )
        found = [borders(queue, cuts.places) for queue in asked]
        edges = [
            [queue.first, *inner, queue.end] for queue, inner in zip(asked, found, strict=True)
        ]
        splits = [
            self._split(asked, [(edge[number], edge[number + 1]) for edge in edges], size_bytes)
            for number, size_bytes in enumerate(cuts.size_bytes)
        ]
        return [split for split in splits if split is not None]

    def refresh(self) -> None:
        """See Splitter."""
        self._known.refresh()

    def missing(self) -> Sequence[Finding]:
        """See Splitter."""
        return [
            found
            for found in self._known.findings
            if found.code == QUEUE_ENDS_EARLY and found.severity == "error"
        ]

    def findings(self) -> Sequence[Finding]:
        """See Splitter."""
        return self._known.findings

    def close(self) -> None:
        """See Splitter."""
        self._known.close()

    def _queue(self, partition: TopicPartition) -> Queue:
        queue = self._known.queues.get(*partition)
        if queue is None:
            count = len(self._known.queues.of_topic(partition.topic))
            if not count:
                raise UnknownTopic(partition.topic)
            raise UnknownPartition(*partition, partitions=count)
        return queue

    def _checked(self, wanted: OffsetRange) -> bool:
        """Return whether the range has an offset. Raises UnknownTopic, UnknownPartition, OffsetOutOfRange."""
        bounds = self._queue(wanted.partition).bounds()
        for offset in (wanted.start, wanted.end):
            if not bounds.start <= offset <= bounds.end:
                raise OffsetOutOfRange(
                    *wanted.partition, offset=offset, earliest=bounds.start, latest=bounds.end
                )
        return wanted.start < wanted.end

    def _asked(self, wanted: OffsetRange) -> Asked:
        known = self._known.queues.add_known(*wanted.partition)
        return Asked(wanted.partition, known, wanted.start, wanted.end)

    def _record_bytes(self) -> int:
        """Return the mean bytes of the log for each record, including bytes that are no record."""
        log = self._known.log
        records = sum(queue.units.end - queue.units.start for queue in self._known.queues)
        return (log.end - log.start) // max(records, 1) + 1

    def _split(
        self, asked: Sequence[Asked], parts: Sequence[tuple[int, int]], size_bytes: int
    ) -> Split | None:
        """Return the split of these parts of the queues; None if they have no entry."""
        log = self._known.log
        runs = [
            EntryRange(queue.partition, first, end, queue.units.carried(first, end))
            for queue, (first, end) in zip(asked, parts, strict=True)
            if first < end
        ]
        plan = SplitPlan(
            root=str(self._known.path),
            log_file_bytes=log.run.file_bytes,
            queue_file_bytes=self._known.queues.file_bytes,
            log_start=log.start,
            log_end=log.end,
            log_bases=log.run.bases,
            log_folders=[str(folder) for folder in log.run.folders],
            runs=runs,
        )
        return Split(backend=BACKEND, size_bytes=size_bytes, plan=plan) if runs else None
