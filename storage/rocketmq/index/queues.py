"""All queues of a store: the offset of the next record, and what readers may see of each queue.

Owns the table by topic and queue id (RocketMQ's topic-queue table) and the published end of each queue; must not read
records. The entries of a queue are in consume_queue.py. They follow the append: `next_offset` counts a record at once,
its entry is added when the record is dispatched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from storage.errors import OffsetOutOfRange
from storage.files import HandleCache
from storage.model import OffsetBounds, TopicPartition
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.shared.sequencing import Producers


class EdgeTime(NamedTuple):
    """The record at an end of a queue's file. It does not change until it is deleted."""

    physical_offset: int
    time_ms: int


EdgeTimes: TypeAlias = MutableMapping[int, EdgeTime]
"""The ends of one queue's files that were read, by offset.

A search that begins at the first of many files thus reads each end only once.
"""


class Queue:
    """One queue. Its fields are written under the store's append lock.

    The published end is the exception: a flush moves it too, so `_lock` guards it.
    """

    __slots__ = (
        "_guarded",
        "_lock",
        "edge_times",
        "log_end",
        "next_offset",
        "partition",
        "producers",
        "published",
        "units",
    )

    def __init__(self, partition: TopicPartition, units: ConsumeQueue) -> None:
        self.partition = partition
        self.units = units
        self.producers = Producers()
        self.next_offset = units.end
        self.published = units.end
        self.edge_times: EdgeTimes = {}  # filled by lookups by time
        self.log_end = 0  # where the last record appended in this run ends
        self._guarded = 0  # the end of the last append that waits for a flush to become visible
        self._lock = threading.Lock()

    def forget_outlived_edges(self) -> None:
        """Drop the remembered ends of deleted files."""
        first = self.units.first_offset
        kept = tuple(self.edge_times.items())  # copied in one step: lookups add to it
        self.edge_times = {offset: edge for offset, edge in kept if offset >= first}

    def bounds(self) -> OffsetBounds:
        """Return the first and the next offset as readers see them now."""
        end = self.published
        return OffsetBounds(min(self.units.start, end), end, end)

    def checked_bounds(self, offset: int) -> OffsetBounds:
        """Return `bounds`. Raises OffsetOutOfRange for an offset outside them."""
        bounds = self.bounds()
        if not bounds.start <= offset <= bounds.end:
            raise OffsetOutOfRange(
                *self.partition, offset=offset, earliest=bounds.start, latest=bounds.end
            )
        return bounds

    def advance(self, count: int, *, log_end: int, publish: bool) -> None:
        """Count `count` appended records, the last of which ends at the physical offset `log_end` (append lock held).

        `publish` False: they become visible at the next flush.
        """
        with self._lock:
            self.next_offset += count
            self.log_end = log_end
            if not publish:
                self._guarded = self.next_offset
            elif self._guarded <= self.published:
                self.published = self.next_offset

    def appended(self) -> tuple[int, int]:
        """Return (next offset, physical offset where the record before it ends), both of the same moment."""
        with self._lock:
            return self.next_offset, self.log_end

    def flushed(self, target: int) -> None:
        """Publish the records below the offset `target`, which are on disk."""
        with self._lock:
            self.published = max(self.published, target)
            if self._guarded <= self.published:
                self.published = self.next_offset


class QueueTable:
    """Queues by topic and queue id. Queues are added and removed under the append lock."""

    def __init__(
        self,
        files: HandleCache,
        root: Path,
        file_bytes: int,
        *,
        batch_topics: frozenset[str] = frozenset(),
    ) -> None:
        """Create an empty table. `batch_topics`: topics whose records have no entry in a queue of this kind."""
        self.files = files
        self.root = root
        self.file_bytes = file_bytes
        self.batch_topics = batch_topics
        self._queues: dict[tuple[str, int], Queue] = {}
        self._lock = threading.Lock()  # guards changes of the table and snapshots of it

    def __iter__(self) -> Iterator[Queue]:
        with self._lock:
            queues = [queue for _, queue in sorted(self._queues.items())]
        return iter(queues)

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """Return the queue; None if it does not exist."""
        return self._queues.get((topic, queue_id))

    def at(self, partition: TopicPartition) -> Queue | None:
        """Return the queue of a partition; None if it does not exist."""
        return self._queues.get(partition)

    def of_topic(self, topic: str) -> Sequence[Queue]:
        """Return the queues of a topic in order of their ids."""
        return [queue for queue in self if queue.partition.topic == topic]

    def units_of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a new ConsumeQueue for this queue's folder. No file is created."""
        directory = self.root / topic / str(queue_id)
        return ConsumeQueue(self.files, directory, self.file_bytes)

    def add(self, topic: str, queue_id: int) -> Queue:
        """Return the queue; create it, without any file, if it does not exist."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = Queue(TopicPartition(topic, queue_id), self.units_of(topic, queue_id))
            with self._lock:
                self._queues[topic, queue_id] = queue
        return queue

    def remove_topic(self, topic: str) -> None:
        """Forget the queues of a topic. Its files are left to the caller."""
        with self._lock:
            for key in [key for key in self._queues if key[0] == topic]:
                del self._queues[key]
