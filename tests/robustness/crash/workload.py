"""A server's life with files of some KB: producers, readers, rolls, checkpoints, deletions, stops and starts.

Owns the operations on a store, and the notes of them, through the server's own group commit; must not make crashes or
judge what they leave. Every life of the same backend, mode and seed does the same operations. Which appends share a
flush depends on the timing, as in a server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logserver.idempotency.keys import KeyedWriter
from logserver.metrics import Metrics
from logserver.service.commit import Writer
from logserver.service.requests import Acks, PartitionAppend
from storage import (
    AnyStoredGroup,
    CommittedOffset,
    GroupCommit,
    LogStore,
    OffsetBounds,
    ProducerSequence,
    Record,
    StoredGroup,
    StoredMember,
    StoreOptions,
    SupportsDeleteRecords,
    SupportsGroupMembers,
    SupportsGroupOffsets,
    TopicPartition,
    open_store,
)
from storage.files import FileSystem, OverlayFileSystem
from storage.shared.sequencing import MADE_UP_IDS
from tests.contract.harness import ManualClock
from tests.robustness.crash.history import (
    Acked,
    Closed,
    Committed,
    Committing,
    Flushed,
    HeadGoing,
    HeadGone,
    MembersGoing,
    MembersGone,
    Note,
    Sent,
    Served,
    TopicGoing,
    TopicGone,
    TopicGrowing,
    TopicMade,
    modern_group,
    value_of,
)
from tests.robustness.crash.keyed import keys_of, send
from tests.robustness.crash.recorder import Recorder

PATH = Path("/s/store")
LIVES = 3
PRODUCERS = 3
REQUESTS = 6  # of one producer in one life
KEYED_REQUESTS = 4  # in one life
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
HOUR_MS = 3_600_000
MODERN_GROUP = "g3"  # of the new protocol; the others are classic ones


@dataclass(frozen=True)
class Backend:
    """A backend with small files. `whole_batches` as in the checker."""

    name: str
    settings: Mapping[str, str]
    file_bytes: int
    whole_batches: bool
    value_bytes: Sequence[int]


BACKENDS = {
    "kafka": Backend(
        "kafka",
        {
            "internal.segment.bytes": "700",
            "segment.index.bytes": "120",
            "index.interval.bytes": "90",
            "log.retention.bytes": "2500",
            "log.segment.delete.delay.ms": "1",
            "offsets.topic.num.partitions": "2",
        },
        file_bytes=700,
        whole_batches=True,
        value_bytes=(5, 30, 90, 160),
    ),
    "rocketmq": Backend(
        "rocketmq",
        {
            "mappedFileSizeCommitLog": "1536",
            "mappedFileSizeConsumeQueue": "100",
            "maxHashSlotNum": "7",
            "maxIndexNum": "40",
            "fileReservedTime": "1",
        },
        file_bytes=1536,
        whole_batches=False,
        value_bytes=(5, 30, 30, 90, 90, 160, 160, 900, 1100),
    ),
}


def open_at(fs: FileSystem, backend: Backend, clock: ManualClock) -> LogStore:
    """Open the store, and create it if it is missing."""
    options = StoreOptions(settings=backend.settings, open_files=16)
    return open_store(backend.name, PATH, options, fs=fs, clock=clock)


def commit_offset(store: LogStore, commit: Committing) -> None:
    """Execute a commit."""
    assert isinstance(store, SupportsGroupOffsets)
    if commit.offset is None:
        store.delete_offsets(commit.group, [commit.partition])
        return
    offsets = {commit.partition: CommittedOffset(commit.offset)}
    store.commit_offsets([GroupCommit(commit.group, offsets)], durable=commit.durable)


def write_members(store: SupportsGroupMembers, write: MembersGoing) -> None:
    """Execute a write of a group's members: two of them, whose assignments name the generation."""
    if write.generation is None:
        store.forget_groups([write.group])
        return
    members = [
        StoredMember(f"m{n}", None, "c", "/h", 5, 6, b"s", b"%d" % write.generation)
        for n in range(2)
    ]
    generation = write.generation
    group: AnyStoredGroup = StoredGroup(
        write.group, "consumer", generation, "range", "m0", 7, members
    )
    if write.group == MODERN_GROUP:
        group = modern_group(write.group, generation)
    store.write_groups([group], durable=write.durable)


def delete_head(
    store: SupportsDeleteRecords, partition: TopicPartition, bounds: OffsetBounds
) -> Iterator[Note]:
    """Delete the first half of a partition's records, and yield the notes before and after it."""
    start = (bounds.start + bounds.end) // 2
    yield HeadGoing({partition: start})
    store.delete_records(partition, start)
    yield HeadGone(partition, start)


@dataclass
class Producer:
    """One idempotent producer: its next sequence number per partition."""

    producer_id: int
    next: dict[TopicPartition, int] = field(default_factory=dict)

    def mark(self, partition: TopicPartition, count: int) -> ProducerSequence:
        """Return the producer sequence for a request of `count` records."""
        sequence = self.next.get(partition, 0)
        self.next[partition] = sequence + count
        return ProducerSequence(self.producer_id, 0, sequence)


class Workload:
    """The lives of one store on a `Recorder`, one after another. `sync`: flush mode sync, otherwise by interval."""

    def __init__(self, backend: Backend, seed: int, *, sync: bool = True) -> None:
        self.backend = backend
        self.sync = sync
        self.clock = ManualClock()
        self.recorder = Recorder(OverlayFileSystem(clock=self.clock))
        self._dice = random.Random(seed)
        self._requests = 0
        self._commits = 0
        self._writes = 0
        self._answered: set[int] = set()
        self._producers = [Producer(MADE_UP_IDS + number) for number in range(PRODUCERS)]
        self.recorder.make_dir(PATH.parent)
        self.recorder.sync_dir(Path("/"))

    def run(self) -> Recorder:
        """Run all lives; return the recording."""
        for life in range(LIVES):
            store = open_at(self.recorder, self.backend, self.clock)
            asyncio.run(self._live(store, life))
            store.close()
            self._note(Closed())
            self.clock.now_ms += HOUR_MS
        return self.recorder

    def _note(self, note: Note) -> None:
        self.recorder.note(note)

    async def _live(self, store: LogStore, life: int) -> None:
        if life == 0:
            self._make_topic(store, "a", 2)
            self._make_topic(store, "b", 1)
        self._watch_flushes(store)
        writer = Writer(store, sync=self.sync, metrics=Metrics(), published=lambda partition: None)
        keyed = await keys_of(store, writer, self.clock, sync=self.sync)
        async with asyncio.TaskGroup() as tasks:
            for producer in self._producers:
                tasks.create_task(self._produce(store, writer, producer))
            tasks.create_task(self._send_keyed(keyed))
            tasks.create_task(self._keep_up(store, writer, life))
        await writer.close()
        await keyed.close()

    def _watch_flushes(self, store: LogStore) -> None:
        """Let a reader read just before each flush of a group: records that are written but not yet on disk."""
        flush = store.flush

        def watched(partitions: Iterable[TopicPartition] | None = None) -> None:
            for partition in partitions or ():
                self._read(store, partition)
            flush(partitions)

        setattr(store, "flush", watched)  # noqa: B010  (only on this object)

    def _make_topic(self, store: LogStore, name: str, partitions: int) -> None:
        store.create_topic(name, partitions)
        self._note(TopicMade(name, partitions))

    async def _produce(self, store: LogStore, writer: Writer, producer: Producer) -> None:
        for _ in range(REQUESTS):
            partition = self._dice.choice(PARTITIONS)
            acks = Acks.WRITTEN if self._dice.random() < 0.15 else Acks.ALL
            await self._request(writer, producer, partition, acks)
            self._read(store, partition)
            self._commit(store, partition)
            self._write_members(store)
            self.clock.now_ms += self._dice.choice([0, 1, 1, 40])

    async def _request(
        self, writer: Writer, producer: Producer, partition: TopicPartition, acks: Acks
    ) -> None:
        number = self._requests
        self._requests += 1
        count = self._dice.choice([1, 1, 2, 3])
        records = [self._record(number, index) for index in range(count)]
        mark = producer.mark(partition, count)
        self._note(Sent(number, partition, records, mark, self.sync and acks is Acks.ALL))
        part = PartitionAppend(partition, records, range(count), producer=mark)
        (run,) = await writer.submit([part], acks)
        assert run.error is None
        self._note(Acked(number, run.base_offset))
        self._answered.add(number)

    async def _send_keyed(self, keyed: KeyedWriter) -> None:
        """Send requests with a key; repeat some of them at once."""
        for _ in range(KEYED_REQUESTS):
            number = self._requests
            self._requests += 1
            partition = self._dice.choice(PARTITIONS)
            acks = Acks.WRITTEN if self._dice.random() < 0.15 else Acks.ALL
            records = [self._record(number, index) for index in range(self._dice.choice([1, 2]))]
            durable = self.sync and acks is Acks.ALL
            sent = Sent(number, partition, records, None, durable, key=f"key {number}")
            self._note(sent)
            base_offset = await send(keyed, sent, acks)
            self._note(Acked(number, base_offset))
            self._answered.add(number)
            if self._dice.random() < 0.3:
                assert await send(keyed, sent, acks) == base_offset

    def _record(self, request: int, index: int) -> Record:
        size_bytes = self._dice.choice(self.backend.value_bytes)
        return Record(
            value=value_of(request, index, size_bytes),
            key=b"k%d" % self._dice.randrange(5),
            lookup_keys=["also"] if self._dice.random() < 0.2 else [],
        )

    def _read(self, store: LogStore, partition: TopicPartition) -> None:
        bounds = store.bounds(partition)
        page = store.read(partition, max(bounds.start, bounds.end - 3))
        values = [record.value or b"" for record in page.records]
        if values:
            self._note(Served(partition, page.records[0].offset, values))

    def _commit(self, store: LogStore, partition: TopicPartition) -> None:
        """Commit an offset of a consumer, sometimes: of everything published, or delete it."""
        luck = self._dice.random()
        if luck < 0.6:
            return
        offset = None if luck > 0.95 else store.bounds(partition).end
        group = self._dice.choice(["g1", "g2"])
        self._commits += 1
        durable = self.sync or offset is None
        commit = Committing(self._commits, group, partition, offset, durable)
        self._note(commit)
        commit_offset(store, commit)
        self._note(Committed(commit.number))

    def _write_members(self, store: LogStore) -> None:
        """Store the members of a group after a rebalance, sometimes; or delete the group."""
        if not isinstance(store, SupportsGroupMembers) or self._dice.random() < 0.7:
            return
        self._writes += 1
        generation = None if self._dice.random() < 0.1 else self._writes
        durable = self.sync or generation is None
        write = MembersGoing(
            self._writes, self._dice.choice(["g1", "g2", MODERN_GROUP]), generation, durable
        )
        self._note(write)
        write_members(store, write)
        self._note(MembersGone(write.number))

    async def _keep_up(self, store: LogStore, writer: Writer, life: int) -> None:
        """Run the work of a server other than appends, spread over a life."""
        extra = f"extra-{life}"
        acts: list[Callable[[], None]] = [
            lambda: self._make_topic(store, extra, 1),
            lambda: self._flush(store),
            store.checkpoint,
            lambda: self._delete_head(store, self._dice.choice(PARTITIONS)),
            lambda: self._retain(store),
            lambda: self._grow(store, extra, 3),
            lambda: self._delete_topic(store, extra),
            lambda: self._flush(store),
        ]
        for at, act in enumerate(acts):
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            act()
            if at in {0, 4}:  # before and after the checkpoint
                await self._request(writer, self._producers[0], TopicPartition(extra, 0), Acks.ALL)

    def _flush(self, store: LogStore) -> None:
        answered = frozenset(self._answered)
        store.flush()
        self._note(Flushed(answered))

    def _retain(self, store: LogStore) -> None:
        ends = {p: store.bounds(p).end for p in _partitions(store)}
        self._note(HeadGoing(ends))
        store.enforce_retention(self.clock.now_ms)
        self._note(HeadGoing({p: store.bounds(p).start for p in ends}))

    def _delete_head(self, store: LogStore, partition: TopicPartition) -> None:
        if isinstance(store, SupportsDeleteRecords):
            for note in delete_head(store, partition, store.bounds(partition)):
                self._note(note)

    def _grow(self, store: LogStore, name: str, partitions: int) -> None:
        self._note(TopicGrowing(name, partitions))
        store.add_partitions(name, partitions)
        self._note(TopicMade(name, partitions))

    def _delete_topic(self, store: LogStore, name: str) -> None:
        self._note(TopicGoing(name))
        store.delete_topic(name)
        self._note(TopicGone(name))


def _partitions(store: LogStore) -> Iterator[TopicPartition]:
    for name, info in store.topics().items():
        yield from (TopicPartition(name, number) for number in info.partitions)
