"""Random operations on a backend and on the model: after each, both say the same.

The store lives in a file system in memory, with files small enough to roll often. A stop is clean
(close) or a kill: the next store opens what the old one had written. Either way everything written
is there again and published. What may differ: page sizes in bytes, locators, topic ids, and how
many of a producer's appends are recognised as repeats after a stop (the newest always). What
differs by design is in the methods that a backend's machine overrides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage import (
    Bound,
    LogStore,
    ProducerSequence,
    Record,
    StorageError,
    StoredRecord,
    StoreOptions,
    TopicPartition,
    open_store,
)
from storage.errors import RecordNotFound
from storage.files import OverlayFileSystem
from tests.contract.harness import ManualClock, copy_tree

PATH = Path("/store")
TOPICS = ("a", "a-0", "b")
CONFIGS = ("message.timestamp.type", "compression.type", "retention.ms")
KEYS = (None, b"", b"k1", b"k2")
REMEMBERED = 5
FIRST = ProducerSequence(producer_id=0, epoch=3, sequence=2**31 - 4)  # soon to wrap

times_ms = st.one_of(st.none(), st.integers(0, 400), st.integers(0, 1 << 41))
records = st.builds(
    Record,
    key=st.sampled_from(KEYS),
    value=st.sampled_from([b"v" * 110, b"w" * 60, None, b"", b"\0\xff"]),
    headers=st.lists(
        st.tuples(st.sampled_from(["h", "größe"]), st.one_of(st.none(), st.binary(max_size=8))),
        max_size=2,
    ),
    timestamp_ms=times_ms,
    tag=st.sampled_from([None, "red"]),
    lookup_keys=st.lists(st.sampled_from(["k1", "k3"]), unique=True, max_size=2),
    properties=st.none(),
)
bursts = st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=5)
configs = st.fixed_dictionaries(
    {},
    optional={
        "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "compression.type": st.sampled_from(["gzip", "lz4"]),
    },
)
resets = st.dictionaries(st.sampled_from(CONFIGS), st.none(), min_size=1, max_size=1)
numbers = st.integers(0, 1000)
codecs = st.sampled_from([None, None, "gzip", "zstd"])
Outcome = tuple[object, ...]


def content(record: StoredRecord) -> Outcome:
    """What of a stored record both must agree on."""
    headers = [tuple(h) for h in record.headers if h[0] not in ("TAGS", "KEYS")]
    return (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        headers,
        record.tag,
        list(record.lookup_keys),
    )


def everything(partition: TopicPartition, store: LogStore) -> Sequence[Outcome]:
    """All that can be read of a partition."""
    return [content(record) for record in store.scan(partition)]


def append_one(
    partition: TopicPartition,
    batch: list[Record],
    codec: str | None,
    publish: bool,
    store: LogStore,
) -> Outcome:
    """Append and tell where it went."""
    return store.append(partition, batch, compression=codec, publish=publish)[:3]


def found_everywhere(store: LogStore, topic: str, limit: int, **what: Any) -> Sequence[Outcome]:
    """All pages of a `find`, sorted: the order is a backend's own."""
    found, cursor = list[Outcome](), None
    while True:
        page = store.find(topic, limit=limit, cursor=cursor, max_scanned=7, **what)
        found += [(number, *content(record)) for number, record in page.records]
        if page.complete:
            return sorted(found, key=lambda row: row[:2])
        cursor = page.cursor


def outcome(call: Callable[[LogStore], object], store: LogStore) -> object:
    """The answer, or the error's class and facts."""
    try:
        return call(store)
    except StorageError as error:
        return type(error), error.facts()


class StoreMachine(RuleBasedStateMachine):
    """The store under test, the model, and the appends that producers made."""

    backend: ClassVar[str]
    store_settings: ClassVar[Mapping[str, str]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.fs = OverlayFileSystem(clock=self.clock)
        self.model = open_store("memory", PATH, clock=self.clock)
        self.store = self.open()
        self.highest_producer_id = -1
        self.forget_sequences()

    def open(self, *, read_only: bool = False) -> LogStore:
        options = StoreOptions(settings=self.store_settings, open_files=4)
        return open_store(
            self.backend, PATH, options, fs=self.fs, clock=self.clock, read_only=read_only
        )

    def fitting(self, records: Sequence[Record]) -> list[Record]:
        """These records as the backend can keep them."""
        return list(records)

    def codec(self, name: str | None) -> str | None:
        """A codec that both have."""
        return name

    def given(self, store: LogStore, configs: Mapping[str, Any]) -> dict[str, Any]:
        """Topic configs in the names of this store."""
        return dict(configs)

    def shown(self, store: LogStore, configs: Mapping[str, str]) -> dict[str, str]:
        """Topic configs that this store tells, in the model's names."""
        return dict(configs)

    def id_of(self, store: LogStore, partition: TopicPartition, offset: int) -> str:
        """The id of the record at an offset, or one of no record."""
        return f"{partition.topic}:{partition.partition}:{offset}"

    def forget_sequences(self) -> None:
        """No producer has appended since the store was opened."""
        self.since_start = defaultdict[tuple[TopicPartition, int], int](int)
        self.sent = getattr(self, "sent", defaultdict[Any, list[tuple[Any, ...]]](list))

    def teardown(self) -> None:
        self.store.close()
        self.model.close()

    def same(self, call: Callable[[LogStore], object]) -> object:
        """Do it to both; the outcomes must be equal."""
        expected = outcome(call, self.model)
        assert outcome(call, self.store) == expected
        return expected

    def partitions(self) -> list[TopicPartition]:
        """The partitions there are."""
        topics = self.model.topics().values()
        return [TopicPartition(info.name, number) for info in topics for number in info.partitions]

    def pick(self, number: int) -> TopicPartition:
        """One of the partitions there are, or (seldom) one that is not."""
        chosen = self.partitions() * 8 + [TopicPartition("none", 0), TopicPartition("a", 7)]
        return chosen[number % len(chosen)]

    @initialize()
    def begin(self) -> None:
        self.same(lambda store: list(store.create_topic("a", 2).partitions))

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 2), configs=configs)
    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        def call(store: LogStore) -> object:
            told = self.given(store, configs)
            return list(store.create_topic(topic, partitions, told).partitions)

        self.same(call)

    @rule(topic=st.sampled_from(TOPICS), configs=configs, reset=resets)
    def alter_topic(self, topic: str, configs: dict[str, str], reset: dict[str, None]) -> None:
        def call(store: LogStore) -> object:
            told = self.given(store, {**configs, **reset})
            return self.shown(store, store.alter_topic(topic, told).configs)

        self.same(call)

    @rule(topic=st.sampled_from(("a-0", "b", "x/y")))
    def delete_topic(self, topic: str) -> None:
        self.same(lambda store: store.delete_topic(topic))
        for partition, producer_id in [key for key in self.sent if key[0].topic == topic]:
            del self.sent[partition, producer_id]

    @rule(number=numbers, batches=bursts, codec=codecs, publish=st.booleans())
    def append(
        self, number: int, batches: list[list[Record]], codec: str | None, publish: bool
    ) -> None:
        partition = self.pick(number)
        for batch in map(self.fitting, batches):
            self.clock.now_ms += 1
            call = partial(append_one, partition, batch, self.codec(codec), publish)
            self.same(call)
            publish = not publish

    def append_sequenced(
        self, partition: TopicPartition, batch: list[Record], producer: ProducerSequence
    ) -> None:
        """Append as a producer, and remember it if it was stored."""
        self.clock.now_ms += 1

        def call(store: LogStore) -> Outcome:
            result = store.append(partition, batch, producer=producer)
            return result.base_offset, result.last_offset, result.duplicate

        answer = self.same(call)
        if isinstance(answer, tuple) and answer[-1] is False:
            self.sent[partition, producer.producer_id].append((batch, producer))
            self.since_start[partition, producer.producer_id] += 1
            self.highest_producer_id = max(self.highest_producer_id, producer.producer_id)

    @rule(
        number=numbers,
        batches=bursts,
        producer_id=st.integers(1, 2),
        gap=st.sampled_from([0, 0, 0, 1, -1]),
        next_epoch=st.sampled_from([0, 0, 0, 0, 1, -1]),
    )
    def append_next(
        self,
        number: int,
        batches: list[list[Record]],
        producer_id: int,
        gap: int,
        next_epoch: int,
    ) -> None:
        """What a producer sends next; the first of it with a gap, in a new epoch or in an old one.

        Its records are of now: a producer whose newest record is a day old is forgotten at a start.
        """
        partition = self.pick(number)
        for batch in map(self.fitting, batches):
            batch = [record._replace(timestamp_ms=None) for record in batch]
            sent = self.sent.get((partition, producer_id))
            before, last = sent[-1] if sent else ([], FIRST._replace(producer_id=producer_id))
            sequence = (last.sequence + len(before) + gap) % 2**31
            if next_epoch:
                sequence = max(gap, 0)
            if gap != -1 or not self.may_be_a_repeat(partition, producer_id, sequence, len(batch)):
                mark = ProducerSequence(producer_id, last.epoch + next_epoch, sequence)
                self.append_sequenced(partition, batch, mark)
            gap = next_epoch = 0

    def may_be_a_repeat(
        self, partition: TopicPartition, producer_id: int, sequence: int, count: int
    ) -> bool:
        """Whether this looks like an earlier append, which after a stop only some stores recognise."""
        return any(
            (mark.sequence, len(batch)) == (sequence, count)
            for batch, mark in self.sent[partition, producer_id]
        )

    @precondition(lambda self: any(self.sent.values()))
    @rule(number=numbers, back=st.integers(0, 6))
    def append_repeated(self, number: int, back: int) -> None:
        """Send the newest append again, or an older one where what is remembered is certain."""
        keys = sorted(key for key, sent in self.sent.items() if sent)
        partition, producer_id = keys[number % len(keys)]
        sent = self.sent[partition, producer_id]
        since_start = self.since_start[partition, producer_id]
        if back < len(sent) and (back == 0 or back < since_start or back >= REMEMBERED):
            self.append_sequenced(partition, *sent[-1 - back])

    @rule()
    def new_producer_id(self) -> None:
        producer_id = self.store.new_producer_id()
        assert producer_id > self.highest_producer_id
        self.highest_producer_id = producer_id

    @rule(number=numbers)
    def flush_one(self, number: int) -> None:
        partition = self.pick(number)
        if partition in self.partitions():
            self.same(lambda store: store.flush([partition]))

    @rule()
    def flush_all(self) -> None:
        self.same(lambda store: store.flush())

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    def place(self, partition: TopicPartition, number: int) -> int:
        """An offset there is, or one at or just beyond an end."""
        known = partition in self.partitions()
        return number % (self.model.bounds(partition).end + 4) - 1 if known else number

    @rule(number=numbers, where=numbers, max_records=st.integers(1, 12))
    def read(self, number: int, where: int, max_records: int) -> None:
        partition = self.pick(number)
        offset = self.place(partition, where)

        def call(store: LogStore) -> Outcome:
            page = store.read(partition, offset, max_records=max_records)
            return [content(r) for r in page.records], page.next_offset, page.bounds

        self.same(call)

    @rule(
        number=numbers,
        time_ms=st.one_of(st.integers(0, 410), st.integers(0, 1 << 41)),
        bound=st.sampled_from(Bound),
    )
    def offset_for_time(self, number: int, time_ms: int, bound: Bound) -> None:
        partition = self.pick(number)

        def call(store: LogStore) -> Outcome | None:
            answer = store.offset_for_time(partition, time_ms, bound=bound)
            return None if answer is None else answer[:2]

        self.same(call)

    @rule(
        topic=st.sampled_from(("a", "a", "a-0")),
        key=st.sampled_from([None, "", "k1", "k2", "k3"]),
        tag=st.sampled_from([None, "red"]),
        from_ms=st.one_of(st.none(), st.integers(0, 400)),
        to_ms=st.one_of(st.none(), st.integers(0, 400)),
        limit=st.integers(1, 5),
    )
    def find(self, topic: str, **what: Any) -> None:
        self.same(lambda store: found_everywhere(store, topic, **what))

    @rule(number=numbers, where=numbers)
    def find_by_id(self, number: int, where: int) -> None:
        partition = self.pick(number)
        offset = self.place(partition, where)

        def call(store: LogStore) -> Outcome:
            record_id = self.id_of(store, partition, offset)
            try:
                found, record = store.find_by_id(record_id)
            except RecordNotFound as error:
                return RecordNotFound, error.facts() == {"id": record_id}
            return found, content(record)

        self.same(call)

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.restart(clean=True)

    @rule()
    def kill_and_open(self) -> None:
        """What the killed store does once its files have been copied nobody sees."""
        killed, self.fs = self.fs, OverlayFileSystem(clock=self.clock)
        copy_tree(killed, PATH, self.fs, PATH)
        self.store.close()
        self.restart(clean=False)

    @rule()
    def look_beside_it(self) -> None:
        """Opened read-only beside the running store everything is there that readers of that see."""
        with self.open(read_only=True) as view:
            for partition in self.partitions():
                expected = everything(partition, self.model)
                assert everything(partition, view)[: len(expected)] == expected

    def restart(self, *, clean: bool) -> None:
        self.clock.now_ms += 1000
        self.store = self.open()
        assert self.store.recovery.clean_shutdown == clean
        assert list(self.store.recovery.losses) == []
        assert [f for f in self.store.recovery.findings if f.severity == "error"] == []
        self.model.flush()
        self.forget_sequences()
        self.records_agree()

    @rule()
    def records_agree(self) -> None:
        """Everything that can be read is the same."""
        for partition in self.partitions():
            self.same(partial(everything, partition))

    @invariant()
    def topics_and_bounds_agree(self) -> None:

        def shapes(store: LogStore) -> Sequence[Outcome]:
            topics = store.topics().values()
            return [(t.name, list(t.partitions), self.shown(store, t.configs)) for t in topics]

        self.same(shapes)
        for partition in self.partitions():
            assert self.store.bounds(partition) == self.model.bounds(partition)
