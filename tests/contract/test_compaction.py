"""Compaction, of the stores that have it: what a reader sees before, during and after it, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from storage.contract import LogStore, SupportsCompaction, SupportsGroupOffsets
from storage.errors import InvalidConfig, NotOffered, StoreReadOnly, UnrepresentableRecord
from storage.model import (
    CommittedOffset,
    GroupCommit,
    ProducerSequence,
    Record,
    TopicPartition,
)
from tests.contract.harness import StoreFactory, read_all

HAVE_IT = {"kafka"}
SMALL = {"internal.segment.bytes": "600"}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
PARTITION = TopicPartition("t", 0)
KEYS = 5


def opened(factory: StoreFactory, configs: Mapping[str, str] = CONFIGS) -> LogStore:
    """Open a store with small segments and the topic t, if the backend compacts."""
    backend = factory.flavour.backend
    store = factory.open(settings=SMALL if backend in HAVE_IT else {})
    assert isinstance(store, SupportsCompaction) == (backend in HAVE_IT)
    if not isinstance(store, SupportsCompaction):
        pytest.skip(f"{backend} compacts nothing")
    store.create_topic("t", 1, configs)
    return store


def fill(store: LogStore, first: int, count: int) -> None:
    for n in range(first, first + count):
        store.append(PARTITION, [Record(b"k%d" % (n % KEYS), b"%d" % n)])
    store.flush()


def clean(factory: StoreFactory, store: LogStore, *, max_bytes: int | None = None) -> int:
    """Compact until nothing is due; return the number of steps."""
    assert isinstance(store, SupportsCompaction)
    steps = 0
    while store.compact(factory.clock.now_ms, max_bytes=max_bytes).partition is not None:
        steps += 1
        assert steps < 1000
    return steps


def newest(store: LogStore) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in read_all(store, PARTITION)}


def test_offsets_and_newest_records_stay(store_factory: StoreFactory) -> None:
    store = opened(store_factory)
    fill(store, 0, 100)
    before, bounds = newest(store), store.bounds(PARTITION)
    assert clean(store_factory, store) > 0
    assert newest(store) == before
    assert store.bounds(PARTITION) == bounds
    left = read_all(store, PARTITION)
    assert len(left) < 100
    assert all(
        record.offset % KEYS == int(record.key.decode()[1:]) for record in left if record.key
    )
    fill(store, 100, 1)
    assert read_all(store, PARTITION)[-1].offset == 100
    assert clean(store_factory, store) >= 0
    assert clean(store_factory, store) == 0, "nothing is left to do"


def test_a_read_from_a_dropped_offset_begins_at_the_next_record(
    store_factory: StoreFactory,
) -> None:
    store = opened(store_factory)
    fill(store, 0, 60)
    clean(store_factory, store)
    offsets = [record.offset for record in read_all(store, PARTITION)]
    for offset in range(60):
        page = store.read(PARTITION, offset, max_records=1)
        assert page.records[0].offset == min(each for each in offsets if each >= offset)


def test_small_steps_give_the_same(store_factory: StoreFactory) -> None:
    """Appends and reads go on between two steps."""
    store = opened(store_factory)
    assert isinstance(store, SupportsCompaction)
    fill(store, 0, 100)
    count = 100
    while store.compact(store_factory.clock.now_ms, max_bytes=1).partition is not None:
        fill(store, count, 1)
        count += 1
        assert newest(store)[b"k%d" % ((count - 1) % KEYS)] == b"%d" % (count - 1)
        assert count < 1000
    assert newest(store) == {b"k%d" % (n % KEYS): b"%d" % n for n in range(count - KEYS, count)}


def test_a_tombstone_goes_after_its_time(store_factory: StoreFactory) -> None:
    store = opened(store_factory, {**CONFIGS, "delete.retention.ms": "1000"})
    fill(store, 0, 20)
    store.append(PARTITION, [Record(b"k0", None)])
    fill(store, 21, 60)
    store.append(PARTITION, [Record(b"gone", b"x")])
    store.append(PARTITION, [Record(b"gone", None)])
    fill(store, 100, 60)
    clean(store_factory, store)
    assert b"gone" in newest(store)
    assert newest(store)[b"gone"] is None
    store_factory.clock.now_ms += 2000
    fill(store, 160, 60)
    clean(store_factory, store)
    assert b"gone" not in newest(store)


def test_idempotent_producers_and_committed_offsets_survive(
    durable_factory: StoreFactory,
) -> None:
    store = opened(durable_factory)
    producer = store.new_producer_id()
    mark = ProducerSequence(producer, 0, 0)
    first = store.append(PARTITION, [Record(b"k0", b"once")], producer=mark)
    assert isinstance(store, SupportsGroupOffsets)
    store.commit_offsets([GroupCommit("g", {PARTITION: CommittedOffset(1)})])
    fill(store, 1, 100)
    clean(durable_factory, store)
    assert first.base_offset not in [record.offset for record in read_all(store, PARTITION)]
    store.close()
    again = durable_factory.open(settings=SMALL)
    result = again.append(PARTITION, [Record(b"k0", b"once")], producer=mark)
    assert (result.duplicate, result.base_offset) == (True, first.base_offset)
    assert isinstance(again, SupportsGroupOffsets)
    assert again.committed("g")[PARTITION].offset == 1


def test_only_topics_of_the_policy_are_compacted(store_factory: StoreFactory) -> None:
    store = opened(store_factory, {})
    fill(store, 0, 100)
    assert clean(store_factory, store) == 0
    assert len(read_all(store, PARTITION)) == 100
    store.alter_topic("t", CONFIGS)
    assert clean(store_factory, store) > 0
    store.alter_topic("t", {"cleanup.policy": None})
    fill(store, 100, 100)
    left = len(read_all(store, PARTITION))
    assert clean(store_factory, store) == 0
    assert len(read_all(store, PARTITION)) == left


def test_records_without_a_key_are_refused(store_factory: StoreFactory) -> None:
    store = opened(store_factory)
    fill(store, 0, 3)
    with pytest.raises(UnrepresentableRecord) as refused:
        store.append(PARTITION, [Record(b"k", b"v"), Record(None, b"v")])
    assert refused.value.facts()["index"] == 1
    assert store.bounds(PARTITION).end == 3


def test_a_read_only_store_is_not_compacted(durable_factory: StoreFactory) -> None:
    store = opened(durable_factory)
    fill(store, 0, 100)
    store.close()
    shown = durable_factory.open(settings=SMALL, read_only=True)
    assert isinstance(shown, SupportsCompaction)
    with pytest.raises(StoreReadOnly):
        shown.compact(durable_factory.clock.now_ms)
    assert len(read_all(shown, PARTITION)) == 100


def test_a_store_without_compaction_refuses_the_policy(store_factory: StoreFactory) -> None:
    """No topic that asks for compaction is created where it would never come."""
    backend = store_factory.flavour.backend
    if backend in HAVE_IT:
        pytest.skip(f"{backend} compacts")
    store = store_factory.open()
    configs = {"rocketmq": {"attributes": "+cleanup.policy=COMPACTION"}}.get(backend)
    if configs is None:
        pytest.skip(f"{backend} takes the policy and forgets everything at close")
    with pytest.raises((NotOffered, InvalidConfig)):
        store.create_topic("t", 1, configs)
    assert "t" not in store.topics()
