"""Incarnations of a topic: a deletion leaves its records in the log, and the topic may be created again.

Owns the question which records are deleted, for recovery and for the tools; must not write. Sources of the answer:

- the note of a deletion by logserver: records of the topic below a physical offset are deleted;
- after a clean stop, a topic with neither an entry in topics.json nor a folder was deleted by RocketMQ, which
  removes both (TopicConfigManager.deleteTopicConfig, DefaultMessageStore.deleteTopics) and leaves no note;
- an earlier record of a queue with the offset of the queue's first record, or a higher one: the topic was deleted and
  created again, and its current life begins with the first record that one of its entries points to.

    log     | old 0 | old 1 | old 2 |  deleted, made again  | new 0 | new 1 | ...
    queue                                                   | unit 0 | unit 1 | ...
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from storage.errors import Corrupt
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state.topics import DeletedRecords

Key: TypeAlias = tuple[str, int]
"""A queue: its topic and queue id."""


class FirstRecord(NamedTuple):
    """The first record that an entry of a queue points to."""

    queue_offset: int
    physical_offset: int


class TopicIncarnations:
    """The beginnings of queues, and so of the current lives of their topics, as their entries show. `begun`: topics
    found to be created again, and the physical offset; `deleted` gets them too.
    """

    def __init__(self, run: FileSequence, queues: QueueTable, deleted: DeletedRecords) -> None:
        self.begun: dict[str, int] = {}
        self._run = run
        self._queues = queues
        self._deleted = deleted
        self._firsts: dict[Key, FirstRecord | None] = {}

    def is_over(self, dispatch: Dispatch) -> bool:
        """Return whether a record was deleted; see `are_over`."""
        if dispatch.is_queued:
            key = dispatch.topic, dispatch.queue_id
            return self.are_over(key, dispatch.queue_offset, dispatch.physical_offset)
        return self._deleted.holds(dispatch.topic, dispatch.physical_offset)

    def alive_from(self, topic: str, queue_id: int) -> int:
        """Return the physical offset from which on `are_over` holds for no record of a queue."""
        queue = self._queues.get(topic, queue_id)
        first = None if queue is None else self._first_of(queue)
        return max(self._deleted.end_of(topic), 0 if first is None else first.physical_offset)

    def are_over(self, key: Key, queue_offset: int, position: int) -> bool:
        """Return whether a record with a queue offset was deleted, with its topic or with an earlier life of the topic.
        No file is read for a record after the last entry's record.

        Records of queues without entries show no lives: a caller that asked about them before `begun` grew must ask
        again.
        """
        topic = key[0]
        if self._deleted.holds(topic, position):
            return True
        queue = self._queues.get(*key)
        if queue is None or position >= queue.units.last_end:
            return False
        if not self.is_earlier(key, queue_offset, position):
            return False
        begin = self._begin_of(topic)
        if position >= begin:
            return False
        self._deleted.begin(topic, begin)
        self.begun[topic] = begin
        return True

    def is_earlier(self, key: Key, queue_offset: int, position: int) -> bool:
        """Return whether a record is stored before its queue's first record and has the same or a higher offset."""
        queue = self._queues.get(*key)
        first = None if queue is None else self._first_of(queue)
        return (
            first is not None
            and position < first.physical_offset
            and queue_offset >= first.queue_offset
        )

    def _begin_of(self, topic: str) -> int:
        """Return the lowest physical offset that a first entry of the topic's queues points to; 0 if none does."""
        firsts = [self._first_of(queue) for queue in self._queues.of_topic(topic)]
        return min((first.physical_offset for first in firsts if first is not None), default=0)

    def _first_of(self, queue: Queue) -> FirstRecord | None:
        key = queue.partition
        if key not in self._firsts:
            self._firsts[key] = self._read_first(queue)
        return self._firsts[key]

    def _read_first(self, queue: Queue) -> FirstRecord | None:
        """Return a queue's first record; None if the record does not match the entry."""
        units = queue.units
        try:
            offset = units.first_at(self._run.start)
            if offset >= units.end:
                return None
            at = units.unit(offset).physical_offset
            message = record_at(self._run, at)
        except Corrupt:  # a file is missing
            return None
        if message is None or (message.topic, message.queue_id) != queue.partition:
            return None
        return FirstRecord(offset, at) if message.queue_offset == offset else None
