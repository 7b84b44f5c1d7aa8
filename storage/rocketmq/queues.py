"""All queues of a store: which offset the next record gets, and what readers may see of each.

Owns the table by topic and queue id (RocketMQ's topic-queue table) and the published end of each
queue; must not read records. A queue's units lie in consume_queue.py, behind the append: `next_offset`
counts at once, the units follow when the record is dispatched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from storage.errors import OffsetOutOfRange
from storage.files import HandleCache
from storage.model import OffsetBounds, TopicPartition
from storage.rocketmq.consume_queue import ConsumeQueue
from storage.sequencing import Producers


class EdgeTime(NamedTuple):
    """The record at an end of a queue's file: it stays as it is until it is deleted."""

    physical_offset: int
    time_ms: int


EdgeTimes: TypeAlias = MutableMapping[int, EdgeTime]
"""By offset, of the ends of one queue's files that were looked at, so that a search that begins at the
first of many files reads each of them once.
"""


class Queue:
    """One queue. The fields are written under the store's append lock, but for the published end,
    which a flush moves too: `_lock` guards that.
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
        self.edge_times: EdgeTimes = {}  # for lookups by time, which fill it
        self.log_end = 0  # where the last record that was appended in this run ends
        self._guarded = 0  # the end of the last append that waits for a flush to be seen
        self._lock = threading.Lock()

    def forget_outlived_edges(self) -> None:
        """After files were deleted: what was remembered of them goes too."""
        first = self.units.first_offset
        kept = tuple(self.edge_times.items())  # in one step: lookups add to it
        self.edge_times = {offset: edge for offset, edge in kept if offset >= first}

    def bounds(self) -> OffsetBounds:
        """First and next offset as readers see them now."""
        end = self.published
        return OffsetBounds(min(self.units.start, end), end, end)

    def checked_bounds(self, offset: int) -> OffsetBounds:
        """As `bounds`. Raises OffsetOutOfRange for an offset outside them."""
        bounds = self.bounds()
        if not bounds.start <= offset <= bounds.end:
            raise OffsetOutOfRange(
                *self.partition, offset=offset, earliest=bounds.start, latest=bounds.end
            )
        return bounds

    def advance(self, count: int, *, log_end: int, publish: bool) -> None:
        """`count` records were appended, the last of which ends at the physical offset `log_end`
        (append lock held).
        """
        with self._lock:
            self.next_offset += count
            self.log_end = log_end
            if not publish:
                self._guarded = self.next_offset
            elif self._guarded <= self.published:
                self.published = self.next_offset

    def appended(self) -> tuple[int, int]:
        """(next offset, physical offset at which the record before it ends), as of one moment."""
        with self._lock:
            return self.next_offset, self.log_end

    def flushed(self, target: int) -> None:
        """Everything below the offset `target` is on disk: readers may see it."""
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
        """`batch_topics`: those whose records have no unit in any queue of this kind."""
        self.files = files
        self.root = root
        self.file_bytes = file_bytes
        self.batch_topics = batch_topics
        self._queues: dict[tuple[str, int], Queue] = {}
        self._lock = threading.Lock()  # over changes of the table and snapshots of it

    def __iter__(self) -> Iterator[Queue]:
        with self._lock:
            queues = [queue for _, queue in sorted(self._queues.items())]
        return iter(queues)

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, None where there is none."""
        return self._queues.get((topic, queue_id))

    def of_topic(self, topic: str) -> Sequence[Queue]:
        """The queues of a topic by number."""
        return [queue for queue in self if queue.partition.topic == topic]

    def units_of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new ConsumeQueue at its place; no file is made."""
        directory = self.root / topic / str(queue_id)
        return ConsumeQueue(self.files, directory, self.file_bytes)

    def add(self, topic: str, queue_id: int) -> Queue:
        """The queue, made (without any file) where it is not there yet."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = Queue(TopicPartition(topic, queue_id), self.units_of(topic, queue_id))
            with self._lock:
                self._queues[topic, queue_id] = queue
        return queue

    def remove_topic(self, topic: str) -> None:
        """Forget the queues of a topic; their files are somebody else's affair."""
        with self._lock:
            for key in [key for key in self._queues if key[0] == topic]:
                del self._queues[key]
