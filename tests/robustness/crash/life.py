"""The life of a store on a disk that fails at one operation, in the server's own group commit and in one thread.

Owns the operations, the number of retries after an error, and what must hold while the store runs; must not choose
where the disk fails, nor know a backend's files. A life has chapters, each from a start to a stop. So a run with a
fault can begin at the chapter that contains the fault. The notes form a `History`, checked as after any crash
(crash.py).

    full disk    -> DiskFull, nothing of the request is stored, the same request succeeds afterwards
    anything else -> the store is fenced: every later change is refused, reads continue
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from logserver.service.commit import CommitGroup, CommitQueue, Request
from logserver.service.requests import PartitionAppend
from storage import (
    LogStore,
    Record,
    StorageError,
    SupportsDeleteRecords,
    TopicPartition,
    batches_of,
)
from storage.errors import DiskFull, IoFailure, StoreFenced, UnknownTopic
from storage.kafka.format.batch import encode_batch
from tests.contract.harness import ManualClock
from tests.robustness.crash.crash import Crash, partitions_of, refused
from tests.robustness.crash.faulty import SYNCS, FaultyFileSystem
from tests.robustness.crash.history import (
    Acked,
    Committed,
    Committing,
    Flushed,
    HeadGoing,
    History,
    Sent,
    Served,
    TopicGoing,
    TopicGone,
    TopicGrowing,
    TopicMade,
    origin_of,
    value_of,
)
from tests.robustness.crash.invariants import check_store, require
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.workload import (
    HOUR_MS,
    PATH,
    Backend,
    Producer,
    commit_offset,
    delete_head,
    open_at,
)
from tests.unit.rocketmq.workshop import by_hand

CHAPTERS = 2
PRODUCERS = 3
GROUPS = 2
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
CONFIGS = {"kafka": ("retention.ms", "600000"), "rocketmq": ("topicSysFlag", "1")}
Act: TypeAlias = Callable[[], object]
HARMLESS = object()  # the result of an act that a fenced store need not refuse


@dataclass
class Chapter:
    """The start of a chapter: the disk, the history so far, the producers with their next sequence numbers."""

    number: int
    disk: Ram
    history: History = field(default_factory=History)
    producers: list[Producer] = field(
        default_factory=lambda: [Producer(n) for n in range(PRODUCERS)]
    )
    now_ms: int = ManualClock().now_ms

    def copy(self) -> Chapter:
        """Return a copy of this start that can be continued separately."""
        producers = [Producer(p.producer_id, dict(p.next)) for p in self.producers]
        disk = self.disk.copy()
        return Chapter(self.number, disk, self.history.copy(), producers, self.now_ms)


class Life:
    """One chapter of a store's life. `fs` is its disk: set its fault before `run`."""

    def __init__(self, backend: Backend, chapter: Chapter, seed: int) -> None:
        begin = chapter.copy()
        self.backend = backend
        self.chapter = chapter.number
        self.disk = begin.disk
        self.fs = FaultyFileSystem(begin.disk)
        self.history = begin.history
        self.history.closed = False
        self.errors: list[StorageError] = []
        self.opened = False
        self._clock = ManualClock(begin.now_ms)
        self._producers = begin.producers
        self._dice = random.Random(seed * CHAPTERS + chapter.number)

    def run(self) -> Chapter:
        """Start, run all acts and stop; return the next chapter. Raises `Broken`."""
        with by_hand():
            asyncio.run(self._run())
        return Chapter(
            self.chapter + 1, self.disk, self.history, self._producers, self._clock.now_ms + HOUR_MS
        )

    async def _run(self) -> None:
        try:
            store = open_at(self.fs, self.backend, self._clock)
        except StorageError as error:
            self.errors.append(error)
        else:
            self.opened = True
            self._queues = {
                durable: CommitQueue(
                    store, durable=durable, name="queue", finished=lambda group: None
                )
                for durable in (True, False)
            }
            for act in self._acts(store):
                self._clock.now_ms += self._dice.choice([0, 1, 40])
                self._do(store, act)
            if self.fs.failed:
                self._check_running(store)
                self.check_left()
            self._close(store)
        require(
            not self.fs.open_files, "files", f"left open: {[f.path for f in self.fs.open_files]}"
        )

    def _close(self, store: LogStore) -> None:
        try:
            store.close()
        except StorageError as error:
            self.errors.append(error)
        else:
            self.history.closed = not self._is_fenced

    @property
    def _is_fenced(self) -> bool:
        return any(not isinstance(error, DiskFull) for error in self.errors)

    # ---- acts ----

    def _acts(self, store: LogStore) -> Iterator[Act]:
        extra = f"extra-{self.chapter}"
        if self.chapter == 0:
            yield lambda: self._make_topic(store, "a", 2)
            yield lambda: self._make_topic(store, "b", 1)
        yield from self._groups(store)
        yield lambda: self._make_topic(store, extra, 1)
        yield from self._one_group(store, [TopicPartition(extra, 0)])
        yield store.new_producer_id
        yield store.checkpoint
        yield lambda: self._commit_offset(store, PARTITIONS[0])
        yield from self._groups(store)
        yield lambda: self._commit_offset(store, PARTITIONS[1])
        yield lambda: self._commit_offset(store, TopicPartition(extra, 0))
        name, value = CONFIGS[self.backend.name]
        yield lambda: store.alter_topic("b", {name: value})
        if isinstance(store, SupportsDeleteRecords):
            yield lambda: self._delete_head(store, PARTITIONS[0])
        yield lambda: self._retain(store)
        yield lambda: self._grow(store, extra, 3)
        yield lambda: self._delete_topic(store, extra)
        yield lambda: self._flush(store)

    def _groups(self, store: LogStore) -> Iterator[Act]:
        for _ in range(GROUPS):
            size = self._dice.choice([1, 2, 3])
            yield from self._one_group(store, [self._dice.choice(PARTITIONS) for _ in range(size)])

    def _one_group(self, store: LogStore, partitions: Sequence[TopicPartition]) -> Iterator[Act]:
        durable = self._dice.random() < 0.5
        idle = list(self._producers)  # each producer has one request in flight at a time
        group = [self._send(partition, durable, idle) for partition in partitions]
        yield lambda: self._commit(store, group)
        yield lambda: self._read(store, partitions[0])

    def _send(self, partition: TopicPartition, durable: bool, idle: list[Producer]) -> Sent:
        number = max(self.history.sent, default=-1) + 1
        count = self._dice.choice([1, 1, 2, 3])
        size_bytes = self._dice.choice([5, 90, 160])
        records = [
            Record(value=value_of(number, index, size_bytes), key=b"k%d" % (number % 5))
            for index in range(count)
        ]
        producer = self._dice.choice([None, *idle])
        if producer is not None:
            idle.remove(producer)
        mark = None if producer is None else producer.mark(partition, count)
        sent = Sent(number, partition, records, mark, durable)
        self.history.note(sent)
        return sent

    def _make_topic(self, store: LogStore, name: str, partitions: int) -> None:
        store.create_topic(name, partitions)
        self.history.note(TopicMade(name, partitions))

    def _delete_topic(self, store: LogStore, name: str) -> None:
        self.history.note(TopicGoing(name))
        store.delete_topic(name)
        self.history.note(TopicGone(name))

    def _delete_head(self, store: LogStore, partition: TopicPartition) -> None:
        assert isinstance(store, SupportsDeleteRecords)
        for note in delete_head(store, partition, store.bounds(partition)):
            self.history.note(note)

    def _grow(self, store: LogStore, name: str, partitions: int) -> None:
        self.history.note(TopicGrowing(name, partitions))
        store.add_partitions(name, partitions)
        self.history.note(TopicMade(name, partitions))

    def _retain(self, store: LogStore) -> None:
        ends = {partition: store.bounds(partition).end for partition in partitions_of(store)}
        self.history.note(HeadGoing(ends))
        store.enforce_retention(self._clock.now_ms)
        self.history.note(HeadGoing({p: store.bounds(p).start for p in ends}))

    def _flush(self, store: LogStore) -> object:
        answered = frozenset(self.history.acked)
        store.flush()
        self.history.note(Flushed(answered))
        return HARMLESS

    def _read(self, store: LogStore, partition: TopicPartition) -> object:
        bounds = store.bounds(partition)
        page = store.read(partition, max(bounds.start, bounds.end - 3))
        if page.records:
            values = [record.value or b"" for record in page.records]
            self.history.note(Served(partition, page.records[0].offset, values))
        return HARMLESS

    def _commit_offset(self, store: LogStore, partition: TopicPartition) -> None:
        number = max(self.history.commits, default=0) + 1
        commit = Committing(number, "g1", partition, store.bounds(partition).end, durable=True)
        self.history.note(commit)
        commit_offset(store, commit)
        self.history.note(Committed(commit.number))

    def _part(self, store: LogStore, sent: Sent) -> PartitionAppend:
        """Return the part of a request: records, or every second time a client's batch, where the store keeps it."""
        partition, records, mark = sent.partition, sent.records, sent.producer
        if sent.request % 2 or batches_of(store) is None:
            return PartitionAppend(partition, records, range(len(records)), producer=mark)
        batch = encode_batch(
            records,
            base_offset=0,
            leader_epoch=-1,
            now_ms=self._clock.now_ms,
            producer_id=-1 if mark is None else mark.producer_id,
            producer_epoch=-1 if mark is None else mark.epoch,
            base_sequence=-1 if mark is None else mark.sequence,
        )
        return PartitionAppend(partition, batch, ())

    def _commit(self, store: LogStore, group: Sequence[Sent]) -> None:
        """Append the requests of a group that have no answer yet, and note the answers. Raises the first error."""
        loop = asyncio.get_running_loop()
        asked = [sent for sent in group if sent.request not in self.history.acked]
        requests = [Request([self._part(store, s)], loop.create_future()) for s in asked]
        queue = self._queues[group[0].durable]
        queue.commit_promptly(work := CommitGroup(requests))
        queue.commit(work)
        for sent, request in zip(asked, requests, strict=True):
            if request.error is None:
                self.history.note(Acked(sent.request, request.outcomes[0].base_offset))
        failed = [(s, r.error) for s, r in zip(asked, requests, strict=True) if r.error is not None]
        for sent, error in failed:
            if isinstance(error, DiskFull):
                there = {origin_of(r.value)[0] for r in store.scan(sent.partition)}
                require(sent.request not in there, "I3", f"refused, and there: {sent}")
        for _, error in failed:
            raise error

    # ---- errors ----

    def _do(self, store: LogStore, act: Act) -> None:
        """Run an act, a second time after a full disk.

        Check that a fenced store refuses every act that would change it.
        """
        fenced = self._is_fenced
        try:
            try:
                done = act()
            except DiskFull as error:
                self.errors.append(error)
                done = act()
        except (IoFailure, StoreFenced) as error:
            self.errors.append(error)
            stated = store.stats().fenced is not None
            require(stated, "fence", f"{error.message}: the store is not fenced")
        except UnknownTopic as error:
            require(fenced, "I1", error.message)
        else:
            require(not fenced or done is HARMLESS, "fence", f"{act} after {self.errors}")

    def _check_running(self, store: LogStore) -> None:
        """Check the effect of the failure on the running store, and the records that are still served."""
        assert self.fs.failed is not None
        operation, path = self.fs.failed
        if not self.errors and operation == "datasync":
            return  # of a file closed to make room: reported when that file is used next
        cause = type(self.errors[0]) if self.errors else self.fs.error
        full = operation not in SYNCS and cause is not None and issubclass(cause, DiskFull)
        require(
            full is (store.stats().fenced is None), "fence", f"{operation} of {path}: {self.errors}"
        )
        try:
            whole = self.backend.whole_batches
            check_store(self.history, store, killed=True, whole_batches=whole)
        except UnknownTopic as error:
            going = error.facts()["topic"] in self.history.going
            require(going, "reads", f"after {operation} of {path}: {error.message}")
        except StoreFenced as error:
            derived = not {"commitlog", f"{path.stem}.log"} & set(path.parts)  # not a log file
            require(derived, "reads", f"after {operation} of {path}: {error.message}")
        except StorageError as error:
            raise refused(error) from error

    def check_left(self) -> None:
        """Check that the next process finds everything it must: after a kill before the stop, or after the stop."""
        crash = Crash(self.backend, self.history, self.disk, self._clock.now_ms, killed=True)
        crash.check(thorough=False)


def chapters(backend: Backend, seed: int) -> Sequence[tuple[Chapter, int]]:
    """Return the start of each chapter of a life, and how many changes the chapter makes to the disk."""
    found = []
    chapter = Chapter(0, Ram())
    chapter.disk.make_dir(PATH.parent)
    for _ in range(CHAPTERS):
        life = Life(backend, chapter, seed)
        following = life.run()
        assert life.errors == []
        found.append((chapter, life.fs.changes))
        chapter = following
    return found
