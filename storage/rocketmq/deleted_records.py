"""Which records of the log belong to no topic any more: topics are deleted, and their records stay in the log.

Owns that question, for recovery and for the tools; must not write. What answers it:

- the note of a deletion here: records of the topic below a position are gone;
- after a clean stop, a topic that has neither an entry in topics.json nor a folder was deleted by the real broker,
  which removes both (TopicConfigManager.deleteTopicConfig, DefaultMessageStore.deleteTopics) and leaves no note;
- a queue that begins with a record of the log's, while one before it bears that number or a higher one: the topic was
  deleted and made again, and its present life begins with the first record that a unit of it leads to.

    log     | old 0 | old 1 | old 2 |  deleted, made again  | new 0 | new 1 | ...
    queue                                                   | unit 0 | unit 1 | ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from storage.errors import Corrupt
from storage.rocketmq.commit_log import record_at
from storage.rocketmq.dispatch import Dispatch
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.names import is_system_topic
from storage.rocketmq.queues import Queue, QueueTable

Key: TypeAlias = tuple[str, int]
"""A queue: its topic and number."""

EVERYTHING: Final = 1 << 62
_NOTHING: Final[Mapping[str, int]] = {}


class DeletedRecords:
    """Records that count as deleted. `found` are topics that no note tells of yet, with the physical offset below
    which their records are gone: those that `holds` was asked about, and those that `begin` told.
    """

    def __init__(
        self, noted: Mapping[str, int] = _NOTHING, living: frozenset[str] | None = None
    ) -> None:
        """`noted`: by topic, the physical offset below which its records are gone. `living`: the topics that have an
        entry or a folder; None where that tells nothing of the others.
        """
        self._ends = dict(noted)
        self._living = living
        self.found: dict[str, int] = {}

    def holds(self, topic: str, physical_offset: int) -> bool:
        """Whether a record of this topic at this place is deleted. The broker's own topics cannot be."""
        if physical_offset < self._ends.get(topic, 0):
            return True
        if self._living is None or topic in self._living or is_system_topic(topic):
            return False
        self.begin(topic, EVERYTHING)
        return True

    def begin(self, topic: str, physical_offset: int) -> None:
        """The present life of a topic begins here."""
        self._ends[topic] = self.found[topic] = physical_offset


class First(NamedTuple):
    """The first record that a unit of a queue leads to."""

    queue_offset: int
    physical_offset: int


class Lives:
    """Where queues begin, and with them the present lives of their topics, as far as units tell. `begun`: topics that
    turned out to be made again, and where; `deleted` is told of them.
    """

    def __init__(self, run: FileRun, queues: QueueTable, deleted: DeletedRecords) -> None:
        self.begun: dict[str, int] = {}
        self._run = run
        self._queues = queues
        self._deleted = deleted
        self._firsts: dict[Key, First | None] = {}

    def without(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Those of records that were not deleted; see `are_over`."""
        return [
            d
            for d in dispatches
            if not (
                self.are_over((d.topic, d.queue_id), d.queue_offset, d.physical_offset)
                if d.is_queued
                else self._deleted.holds(d.topic, d.physical_offset)
            )
        ]

    def are_over(self, key: Key, queue_offset: int, position: int) -> bool:
        """Whether a record that has a number in its queue was deleted, with its topic or with an earlier life of that.
        For one behind all that the units of its queue lead to no file is read.

        Records of queues without units tell nothing of lives: who met some before `begun` grew is to look again.
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
        """Whether a record lies in front of its queue's first, and bears the number of that or a higher one."""
        queue = self._queues.get(*key)
        first = None if queue is None else self._first_of(queue)
        return (
            first is not None
            and position < first.physical_offset
            and queue_offset >= first.queue_offset
        )

    def _begin_of(self, topic: str) -> int:
        """The place of the first record of all that units of the topic lead to."""
        firsts = [self._first_of(queue) for queue in self._queues.of_topic(topic)]
        return min((first.physical_offset for first in firsts if first is not None), default=0)

    def _first_of(self, queue: Queue) -> First | None:
        key = queue.partition.topic, queue.partition.partition
        if key not in self._firsts:
            self._firsts[key] = self._read_first(queue)
        return self._firsts[key]

    def _read_first(self, queue: Queue) -> First | None:
        """A queue's first record; None where the unit does not fit it."""
        units = queue.units
        try:
            offset = units.first_at(self._run.start)
            if offset >= units.end:
                return None
            at = units.unit(offset).physical_offset
            message = record_at(self._run, at)
        except Corrupt:  # a file is gone
            return None
        if message is None or (message.topic, message.queue_id) != queue.partition:
            return None
        return First(offset, at) if message.queue_offset == offset else None
