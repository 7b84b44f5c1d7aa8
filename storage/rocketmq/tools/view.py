"""A store opened for inspection: the engine's own recovery, with its changes kept in memory.

Owns the opened store, the selection of its queues, and the findings; must not write to the disk and
takes no lock. The store is opened on first use: verify and rebuild need files that recovery has not
changed. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from storage.contract import Clock, StoreOptions
from storage.errors import Corrupt, InvalidArgument, UnknownPartition, UnknownTopic
from storage.files import FileSystem
from storage.model import Finding, Loss, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.index.record_pass import NOTHING, AllRecords, RecordPass
from storage.rocketmq.lookup.find import LogWindow
from storage.rocketmq.queue import check_address, unreadable
from storage.rocketmq.recovery.losses import refused_record
from storage.rocketmq.state.file_listing import unread_findings
from storage.rocketmq.state.settings import parse_store_settings
from storage.rocketmq.store import RocketMQStore, open_rocketmq
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.queue_gaps import GapWatch
from storage.shared.diagnostics import Meter, Notes
from storage.shared.loss_report import known_losses

WINDOW_BYTES: Final = 256 << 10


class View:
    """One store, or some of its queues: all queues of `topic`, or only its queue `queue_id`."""

    def __init__(
        self,
        root: Path,
        options: StoreOptions,
        *,
        fs: FileSystem,
        clock: Clock,
        topic: str | None = None,
        queue_id: int | None = None,
    ) -> None:
        self.root = root
        self.options = options
        self.base = fs
        self.clock = clock
        self.topic = topic
        self.queue_id = queue_id
        self.notes = Notes()
        self.with_dledger = False  # a summary covers also a store whose log DLedger keeps

    @property
    def is_whole(self) -> bool:
        """Whether the view covers the whole store."""
        return self.topic is None

    @property
    def kind(self) -> str:
        """The kind of the inspected object: store, topic or queue."""
        if self.topic is None:
            return "store"
        return "topic" if self.queue_id is None else "queue"

    @property
    def path(self) -> Path:
        """The folder of the inspected object."""
        parts = [part for part in (self.topic, self.queue_id) if part is not None]
        return self.root.joinpath(*(names.CONSUME_QUEUE, *map(str, parts)) if parts else ())

    @cached_property
    def delays_ms(self) -> Sequence[int] | None:
        """The waiting times of the delay levels, if they were given. Raises InvalidConfig."""
        return parse_store_settings(self.options.settings).delays_ms

    @cached_property
    def store(self) -> RocketMQStore:
        """The store as recovery would leave it, with its index files written (in memory).

        Its clock stands still, so that files made by recovery have the same names in every inspection.
        """
        moment_ms = self.base.mtime_ms(self.root)
        store = open_rocketmq(
            self.root,
            self.options,
            fs=self.base,
            clock=lambda: moment_ms,
            read_only=True,
            with_dledger=self.with_dledger,
        )
        if store.index is not None:
            store.index.write_back()
        self.notes.add(*store.recovery.findings)
        return store

    @cached_property
    def addresses(self) -> Sequence[TopicPartition]:
        """The selected queues, by topic and number."""
        return [
            TopicPartition(name, queue_id)
            for name, info in self.store.topics().items()
            for queue_id in info.partitions
            if self.topic in (None, name) and self.queue_id in (None, queue_id)
        ]

    def select(self, topic: str | None, partition: int | None) -> Sequence[TopicPartition]:
        """Return the queues of a topic and with a number; None selects all topics or all numbers.

        Raises UnknownTopic, UnknownPartition, and InvalidArgument if no topic has a partition with that number.
        """
        of_topic = [a for a in self.addresses if topic in (None, a.topic)]
        if topic is not None and not of_topic:
            raise UnknownTopic(topic, {a.topic for a in self.addresses})
        chosen = [a for a in of_topic if partition in (None, a.partition)]
        if partition is not None and not chosen:
            if topic is not None:
                raise UnknownPartition(topic, partition, len(of_topic))
            raise InvalidArgument(f"no topic has a partition {partition}", field="partition")
        return chosen

    def walk(self, what: str, *, start: int | None = None) -> LogWalk:
        """Return a walk over the log, across damage, from `start` (where a record begins; None: the log start)."""
        log = self.store.log
        meter = Meter(self.options.progress, what, log.end - log.start)
        return LogWalk(
            log.run, self.store.queues, self.notes, start=start, end=log.end, meter=meter
        )

    def note_unqueued(self) -> None:
        """Note each record whose topic cannot be a folder name. Such a record is in no queue: readers of queues do not
        see it, and a start reports only the records after its checkpoint. Reads the whole log.
        """
        log = self.store.log
        meter = Meter(self.options.progress, "finding records in no queue", log.end - log.start)
        walk = LogWalk(log.run, self.store.queues, Notes(), end=log.end, meter=meter)
        record_pass = RecordPass(AllRecords(), with_tags=False, strings_from=NOTHING)
        for item in walk.log_ranges():
            if not isinstance(item, Padding):
                record_pass.take(item.data, 0, item.size_bytes, item.start)
                for refused in record_pass.taken().refused:
                    self.notes.add(refused_record(log.run, refused))

    @cached_property
    def known_losses(self) -> Mapping[TopicPartition, Sequence[Loss]]:
        """The losses that a salvage or a start reported."""
        return known_losses(self.base, self.root)

    def messages(self, queue: Queue) -> Iterator[tuple[int, QueueEntry, Message]]:
        """Yield (offset, entry, record) as readers of a queue see them. Damaged and missing records are noted."""
        bounds = queue.bounds()
        watch = GapWatch(queue, self.known_losses)
        window = LogWindow(self.store.log, WINDOW_BYTES)
        for offset, unit in queue.units.entries(bounds.start, bounds.end):
            if not unit.is_filler:
                message = self._message(queue, window, unit, offset)
                if isinstance(message, Finding):
                    watch.meet_damaged(is_named=self.notes.has(message))
                else:
                    watch.meet(offset, message)
                    yield offset, unit, message
        self.notes.add(*watch.findings())

    def _message(
        self, queue: Queue, window: LogWindow, unit: QueueEntry, offset: int
    ) -> Message | Finding:
        """Return the record of an entry. A damaged record is noted, unless its place has a finding already."""
        log, at, size = self.store.log, unit.physical_offset, unit.size
        try:
            if not unit.is_valid or size > log.largest_record:
                raise log.damage(max(at, 0), f"a unit that leads nowhere: {size} bytes at {at}")
            message = window.message(unit)
            check_address(log, queue.partition, message, at)
        except Corrupt as error:
            damage = unreadable(queue.partition, offset, error)
            self.notes.add(damage)
            return damage
        return message

    def findings(self) -> Sequence[Finding]:
        """Return the findings of opening and reading so far."""
        self.notes.add(*unread_findings(self.base))
        return self.notes.all()

    def close(self) -> None:
        """Close all open files."""
        if "store" in self.__dict__:
            self.store.close()
