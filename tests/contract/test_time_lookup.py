"""offset_for_time: the first record at or after a time, on the backend's own axis.

Where the axis is the record's time, the order of times does not matter. Where it is the store's clock, the tests set
that clock, which does not go back.
"""

from __future__ import annotations

import random

import pytest

from storage.contract import LogStore
from storage.model import Bound, TopicPartition
from tests.contract.harness import StoreFactory, at_times, texts


def lookup(
    store: LogStore, partition: TopicPartition, time_ms: int, bound: Bound = Bound.LOWER
) -> tuple[int, int] | None:
    """Return offset and time of the found record; the leader epoch depends on the backend."""
    found = store.offset_for_time(partition, time_ms, bound=bound)
    return None if found is None else (found.offset, found.timestamp_ms)


def by_hand(times_ms: list[int], time_ms: int, bound: Bound) -> tuple[int, int] | None:
    """Apply the rule record by record in offset order."""
    if bound is Bound.LOWER:
        hits = [(i, t) for i, t in enumerate(times_ms) if t >= time_ms]
        return hits[0] if hits else None
    hits = [(i, t) for i, t in enumerate(times_ms) if t <= time_ms]
    return hits[-1] if hits else None


def some_times(store: LogStore, *, seed: int, low: int, high: int, count: int) -> list[int]:
    """Return times in any order if records have their own times, or sorted if the store's clock sets them."""
    dice = random.Random(seed)
    times_ms = [dice.randrange(low, high) for _ in range(count)]
    return times_ms if store.capabilities.time_axis == "timestamp" else sorted(times_ms)


@pytest.mark.parametrize("together", [True, False], ids=["one append", "each its own"])
@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [
        (-5, (0, 100)),
        (99, (0, 100)),
        (100, (0, 100)),
        (101, (1, 200)),
        (200, (1, 200)),
        (201, (3, 300)),
        (300, (3, 300)),
        (301, None),
        (1 << 62, None),
    ],
)
def test_times_in_order(
    store_factory: StoreFactory,
    store: LogStore,
    partition: TopicPartition,
    together: bool,
    time_ms: int,
    expected: tuple[int, int] | None,
) -> None:
    """The first record with a time at or after the given time is found; None if all records are earlier."""
    records = at_times(100, 200, 200, 300)
    store_factory.put(store, partition, records, per_append=4 if together else 1)
    assert lookup(store, partition, time_ms) == expected


@pytest.mark.parametrize("bound", Bound)
def test_empty(store: LogStore, partition: TopicPartition, bound: Bound) -> None:
    """In an empty partition no record is found."""
    assert lookup(store, partition, 0, bound) is None


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [
        (99, None),
        (100, (0, 100)),
        (200, (2, 200)),
        (250, (2, 200)),
        (300, (3, 300)),
        (999, (3, 300)),
    ],
)
def test_upper_bound(
    store_factory: StoreFactory,
    store: LogStore,
    partition: TopicPartition,
    time_ms: int,
    expected: tuple[int, int] | None,
) -> None:
    """UPPER finds the last record in offset order with a time at or before the given time."""
    store_factory.put(store, partition, at_times(100, 200, 200, 300), per_append=1)
    assert lookup(store, partition, time_ms, Bound.UPPER) == expected


@pytest.mark.parametrize("per_append", [1, 7])
def test_times_in_any_order(store_factory: StoreFactory, per_append: int) -> None:
    """With times in any order the first record by offset is found, though later records may be nearer in time."""
    store = store_factory.open()
    store.create_topic("mixed", 1, store_factory.flavour.dense_index)
    partition = TopicPartition("mixed", 0)
    times_ms = some_times(store, seed=7, low=1000, high=1400, count=210)
    store_factory.put(store, partition, at_times(*times_ms), per_append=per_append)
    for bound in Bound:
        for time_ms in (0, *range(999, 1402, 3), 5000):
            expected = by_hand(times_ms, time_ms, bound)
            assert lookup(store, partition, time_ms, bound) == expected, (bound, time_ms)


def test_rising_times_over_many_appends(store_factory: StoreFactory) -> None:
    """Each record is found by its own time and by the millisecond before it."""
    store = store_factory.open()
    store.create_topic("rising", 1, store_factory.flavour.dense_index)
    partition = TopicPartition("rising", 0)
    store_factory.put(store, partition, at_times(*range(0, 3000, 10)), per_append=1)
    for offset in range(300):
        assert lookup(store, partition, offset * 10) == (offset, offset * 10)
        assert lookup(store, partition, offset * 10 - 1) == (offset, offset * 10)


def test_append_time_is_looked_up(store_factory: StoreFactory) -> None:
    """Under LogAppendTime, or with a store's own clock, the time of the append counts, not the times of the records:
    the first record of the append is found.
    """
    store = store_factory.open()
    store.create_topic("a", 1, store_factory.flavour.append_time or {})
    partition = TopicPartition("a", 0)
    for now_ms in (1000, 2000):
        store_factory.clock.now_ms = now_ms
        store.append(partition, at_times(1, 2, 3))
    assert lookup(store, partition, 1000) == (0, 1000)
    assert lookup(store, partition, 1001) == (3, 2000)
    assert lookup(store, partition, 2001) is None


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_same_after_a_restart(durable_factory: StoreFactory, stop: str) -> None:
    """The answers are the same after a clean or unclean stop."""
    store = durable_factory.open()
    store.create_topic("a", 1, durable_factory.flavour.dense_index)
    partition = TopicPartition("a", 0)
    times_ms = some_times(store, seed=3, low=0, high=500, count=150)
    durable_factory.put(store, partition, at_times(*times_ms), per_append=1)
    store.flush()
    store = durable_factory.reopen(store) if stop == "close" else durable_factory.after_kill()
    for time_ms in range(0, 505, 5):
        assert lookup(store, partition, time_ms) == by_hand(times_ms, time_ms, Bound.LOWER)
    store.append(partition, texts("now"))
    assert lookup(store, partition, 600) == (150, durable_factory.clock.now_ms)
