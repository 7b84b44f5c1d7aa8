"""Random operations on a backend and on the model: after each, both give the same answers.

The store is in a file system in memory, with files small enough to roll often. A stop is a clean close, a kill or a
power loss.

- After a close or a kill all written data exists and is published.
- A power loss leaves topics, their configs, and the first records of each partition. At least the records that were
  flushed or found by an earlier start are left. The model is then cut to the same records.
- Not compared: page sizes in bytes, locators, topic ids, and after a stop how many of a producer's appends are
  recognised as repeats (the newest append always is).
- Differences by design are in the methods that a backend's machine overrides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage import (
    Bound,
    LogStore,
    ProducerSequence,
    Record,
    StoreOptions,
    TopicPartition,
    open_store,
)
from storage.errors import RecordNotFound
from tests.contract.harness import ManualClock
from tests.robustness.crash.explorer import choices
from tests.robustness.crash.invariants import (
    check_lookups,
    check_positions,
    check_recovery,
    positions,
    require,
)
from tests.robustness.crash.recorder import Recorder
from tests.robustness.stateful.answers import (
    Outcome,
    content,
    everything,
    found_everywhere,
    is_error,
    outcome,
)
from tests.robustness.stateful.journal import Append, Journal, TopicChange

PATH = Path("/store")
TOPICS = ("a", "a-0", "b")
CONFIGS = ("message.timestamp.type", "compression.type", "retention.ms")
KEYS = (None, b"", b"k1", b"k2")
REMEMBERED = 5
FIRST = ProducerSequence(producer_id=0, epoch=3, sequence=2**31 - 4)  # the sequence soon wraps

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
losses = st.sampled_from(("nothing", "names", "prefix", "some", "files", "most", "kill"))


class StoreMachine(RuleBasedStateMachine):
    """The store under test, the model, the journal of changes, and for each partition the end that a power loss must
    leave.

    `whole_batches`: after a power loss all records of an append exist, or none.
    """

    backend: ClassVar[str]
    store_settings: ClassVar[Mapping[str, str]]
    whole_batches: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.fs = Recorder()
        self.model = open_store("memory", PATH, clock=self.clock)
        self.store = self.open()
        self.journal = Journal()
        self.sure = defaultdict[TopicPartition, int](int)
        self.highest_producer_id = self.handed_out = -1
        self.forget_sequences()

    def open(self, *, read_only: bool = False) -> LogStore:
        options = StoreOptions(settings=self.store_settings, open_files=4)
        return open_store(
            self.backend, PATH, options, fs=self.fs, clock=self.clock, read_only=read_only
        )

    def fitting(self, records: Sequence[Record]) -> list[Record]:
        """Return the records in a form that the backend can represent."""
        return list(records)

    def codec(self, name: str | None) -> str | None:
        """Return a codec that both stores have."""
        return name

    def given(self, store: LogStore, configs: Mapping[str, Any]) -> dict[str, Any]:
        """Return topic configs with the names of this store."""
        return dict(configs)

    def shown(self, store: LogStore, configs: Mapping[str, str]) -> dict[str, str]:
        """Return topic configs of this store with the model's names."""
        return dict(configs)

    def id_of(self, store: LogStore, partition: TopicPartition, offset: int) -> str:
        """Return the id of the record at an offset, or an id of no record."""
        return f"{partition.topic}:{partition.partition}:{offset}"

    def forget_sequences(self) -> None:
        """Note that no producer has appended since the store was opened."""
        self.since_start = defaultdict[tuple[TopicPartition, int], int](int)
        self.sent = defaultdict[tuple[TopicPartition, int], list[Append]](list)
        for append in self.journal.appends():
            if append.producer is not None:
                self.sent[append.partition, append.producer.producer_id].append(append)

    def teardown(self) -> None:
        self.store.close()
        self.model.close()

    def same(self, call: Callable[[LogStore], object]) -> object:
        """Make the call on the store and on the model; the outcomes must be equal."""
        expected = outcome(call, self.model)
        assert outcome(call, self.store) == expected
        return expected

    def partitions(self) -> list[TopicPartition]:
        """Return the existing partitions."""
        topics = self.model.topics().values()
        return [TopicPartition(info.name, number) for info in topics for number in info.partitions]

    def pick(self, number: int) -> TopicPartition:
        """Return an existing partition or, rarely, a partition that does not exist."""
        chosen = self.partitions() * 8 + [TopicPartition("none", 0), TopicPartition("a", 7)]
        return chosen[number % len(chosen)]

    @initialize()
    def begin(self) -> None:
        self.change_topic("a", lambda store: list(store.create_topic("a", 2).partitions))

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 2), configs=configs)
    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        def call(store: LogStore) -> object:
            reported = self.given(store, configs)
            return list(store.create_topic(topic, partitions, reported).partitions)

        self.change_topic(topic, call)

    def change_topic(self, topic: str, call: Callable[[LogStore], object]) -> None:
        """Create or alter a topic, and record the change if it succeeds."""
        if not is_error(self.same(call)):
            self.journal.add(TopicChange(self.clock.now_ms, topic, call))

    @rule(topic=st.sampled_from(TOPICS), configs=configs, reset=resets)
    def alter_topic(self, topic: str, configs: dict[str, str], reset: dict[str, None]) -> None:
        def call(store: LogStore) -> object:
            reported = self.given(store, {**configs, **reset})
            return self.shown(store, store.alter_topic(topic, reported).configs)

        self.change_topic(topic, call)

    @rule(topic=st.sampled_from(("a-0", "b", "x/y")))
    def delete_topic(self, topic: str) -> None:
        self.same(lambda store: store.delete_topic(topic))
        self.journal.forget(topic)
        for table in (self.sent, self.since_start):
            for key in [key for key in table if key[0].topic == topic]:
                del table[key]
        for partition in [partition for partition in self.sure if partition.topic == topic]:
            del self.sure[partition]

    @rule(number=numbers, batches=bursts, codec=codecs, publish=st.booleans())
    def append(
        self, number: int, batches: list[list[Record]], codec: str | None, publish: bool
    ) -> None:
        partition = self.pick(number)
        for batch in map(self.fitting, batches):
            self.append_to(partition, batch, codec=self.codec(codec), publish=publish)
            publish = not publish

    def append_to(
        self,
        partition: TopicPartition,
        batch: list[Record],
        producer: ProducerSequence | None = None,
        *,
        codec: str | None = None,
        publish: bool = True,
    ) -> None:
        """Append, and record the append if it was stored."""
        self.clock.now_ms += 1

        def call(store: LogStore) -> Outcome:
            result = store.append(
                partition, batch, compression=codec, producer=producer, publish=publish
            )
            times = () if result.duplicate else (result.timestamp_ms,)
            return result.base_offset, result.last_offset, result.duplicate, *times

        answer = self.same(call)
        if is_error(answer):
            return
        assert isinstance(answer, tuple)
        base, _, duplicate, *_ = answer
        if duplicate:
            return
        append = Append(self.clock.now_ms, partition, base, batch, producer)
        self.journal.add(append)
        if producer is not None:
            self.sent[partition, producer.producer_id].append(append)
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
        """Send the next appends of a producer; the first of them with a gap, in a new epoch or in an old epoch.

        The records have the current time, because a start forgets a producer whose newest record is a day old.
        """
        partition = self.pick(number)
        for batch in map(self.fitting, batches):
            batch = [record._replace(timestamp_ms=None) for record in batch]
            sent = self.sent.get((partition, producer_id))
            count = len(sent[-1].records) if sent else 0
            last = (sent and sent[-1].producer) or FIRST._replace(producer_id=producer_id)
            sequence = (last.sequence + count + gap) % 2**31
            if next_epoch:
                sequence = max(gap, 0)
            if gap != -1 or not self.may_be_a_repeat(partition, producer_id, sequence, len(batch)):
                mark = ProducerSequence(producer_id, last.epoch + next_epoch, sequence)
                self.append_to(partition, batch, mark)
            gap = next_epoch = 0

    def may_be_a_repeat(
        self, partition: TopicPartition, producer_id: int, sequence: int, count: int
    ) -> bool:
        """Return whether an append resembles an earlier append, which after a stop only some stores recognise."""
        return any(
            append.producer is not None
            and (append.producer.sequence, len(append.records)) == (sequence, count)
            for append in self.sent[partition, producer_id]
        )

    @precondition(lambda self: any(self.sent.values()))
    @rule(number=numbers, back=st.integers(0, 6))
    def append_repeated(self, number: int, back: int) -> None:
        """Send the newest append again, or an older append where it is certain whether the store remembers it."""
        keys = sorted(key for key, sent in self.sent.items() if sent)
        partition, producer_id = keys[number % len(keys)]
        sent = self.sent[partition, producer_id]
        since_start = self.since_start[partition, producer_id]
        if back < len(sent) and (back == 0 or back < since_start or back >= REMEMBERED):
            again = sent[-1 - back]
            self.append_to(partition, again.records, again.producer)

    @rule()
    def new_producer_id(self) -> None:
        producer_id = self.store.new_producer_id()
        assert producer_id > self.highest_producer_id
        self.highest_producer_id = self.handed_out = producer_id

    @rule(number=numbers)
    def flush_one(self, number: int) -> None:
        partition = self.pick(number)
        if partition in self.partitions():
            self.same(lambda store: store.flush([partition]))
            self.sure[partition] = self.model.bounds(partition).end

    @rule()
    def flush_all(self) -> None:
        self.same(lambda store: store.flush())
        self.all_is_sure()

    def all_is_sure(self) -> None:
        """Note that all existing records must survive a power loss."""
        self.sure |= {
            partition: self.model.bounds(partition).end for partition in self.partitions()
        }

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    def place(self, partition: TopicPartition, number: int) -> int:
        """Return an existing offset, or an offset at or just after an end."""
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
        self.restart()
        assert self.store.recovery.clean_shutdown
        self.nothing_is_lost()

    @rule()
    def kill_and_open(self) -> None:
        """Kill the store and start another; nothing that the killed store does afterwards has an effect."""
        self.crash(self.fs.after_kill())
        self.restart()
        assert not self.store.recovery.clean_shutdown
        self.nothing_is_lost()

    @rule(kind=losses, seed=st.integers(0, 1 << 32), again=st.booleans())
    def lose_power_and_open(self, kind: str, seed: int, again: bool) -> None:
        """Lose power: the disk keeps synced data and any part of the rest. `again`: also during the next start."""
        dice = Random(seed)
        self.crash(Recorder(self.fs.now().left(dict(choices(dice))[kind])))
        if again:
            self.restart()
            moment = dice.randrange(len(self.fs.events) + 1)
            self.crash(Recorder(self.fs.now(moment).left(dict(choices(dice))[kind])))
        reported = positions(self.fs, PATH, self.backend)
        self.restart()
        check_recovery(self.store)
        check_positions(reported, self.store)
        self.cut_model()
        check_lookups(self.store)

    def crash(self, left: Recorder) -> None:
        """Use this disk from now on; the store that was open continues on the old disk."""
        self.fs = left
        self.store.close()

    def restart(self) -> None:
        self.clock.now_ms += 1000
        self.store = self.open()

    def nothing_is_lost(self) -> None:
        """Check that a start found all written data."""
        assert list(self.store.recovery.losses) == []
        check_recovery(self.store)
        self.model.flush()
        self.all_is_sure()
        self.forget_sequences()
        self.records_agree()

    def cut_model(self) -> None:
        """Cut the model to the records left by a power loss; check that only records that may be lost are missing."""
        ends = {partition: self.store.bounds(partition).end for partition in self.partitions()}
        for partition, end in ends.items():
            sure = self.sure[partition]
            require(end >= sure, "I1", f"{partition} ends at {end}, sure was {sure}")
        for append in self.journal.torn(ends):
            whole = self.whole_batches or append.producer is not None
            require(
                not whole, "I4", f"of {append} records before {ends[append.partition]} are there"
            )
        self.journal.cut(ends)
        self.model.close()
        self.model = open_store("memory", PATH, clock=self.clock)
        self.journal.repeat(self.model, self.clock)
        self.all_is_sure()
        self.forget_sequences()
        ids = [producer_id for _, producer_id in self.sent]
        self.highest_producer_id = max([self.handed_out, *ids])
        self.records_agree()

    @rule()
    def look_beside_it(self) -> None:
        """A read-only store next to the running store has at least all records visible in the running store."""
        with self.open(read_only=True) as view:
            for partition in self.partitions():
                expected = everything(partition, self.model)
                assert everything(partition, view)[: len(expected)] == expected

    @rule()
    def records_agree(self) -> None:
        """All readable records are equal in both stores."""
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
