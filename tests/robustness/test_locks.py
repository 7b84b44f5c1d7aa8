"""Fields that several threads share are written under their lock: every row of the table, in a life of a store.

A row is a claim of the code ("written under `_lock`"). Each claim is tested twice: in a workload of everything a store
does, where no write may happen without the lock, and without the lock, where the workload must report it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest

from storage import GroupCommit, LogStore, ProducerSequence, Record, TopicPartition
from storage.model import CommittedOffset
from tests.robustness.crash.guards import Guards, with_owned_locks
from tests.unit.kafka import workshop as kafka
from tests.unit.rocketmq import workshop as rocketmq

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Claim(NamedTuple):
    """The object and its lock, found in an open store, and the fields that the lock guards."""

    name: str
    watched: Callable[[Any], Any]
    holder: Callable[[Any], Any]
    lock: str
    fields: tuple[str, ...]


def claim(
    name: str,
    watched: Callable[[Any], Any],
    lock: str,
    *fields: str,
    holder: Callable[[Any], Any] | None = None,
) -> Claim:
    """Return a claim. The lock is an attribute of the object itself unless another holder is named."""
    return Claim(name, watched, holder or watched, lock, fields)


def store_of(store: Any) -> Any:
    """Return the store itself."""
    return store


def partition(store: Any) -> Any:
    """Return one partition."""
    return store.partition(T0)


def ids(store: Any) -> Any:
    """Return the object that assigns producer ids."""
    return store._producer_ids


KAFKA = [
    claim(
        "partition-appends",
        partition,
        "_append_lock",
        "_next",
        "_epoch",
        "_last_snapshot",
        "_appended",
    ),
    claim("partition-state", partition, "_state_lock", "_published", "_start"),
    claim("topics", store_of, "_lock", "_topics", "_configs"),
    claim("producer-ids", ids, "_lock", "_next_id", "_block", holder=store_of),
    claim("leader-epochs", lambda store: store._shared.epochs, "_lock", "_highest"),
    claim("open-files", lambda store: store._files, "_lock", "_entries", "_forgotten"),
]
ROCKETMQ = [
    claim("log-flush", lambda store: store.log, "_flush_lock", "_flushed"),
    claim("log-end", lambda store: store.log, "_lock", "end", holder=store_of),
    claim("dispatch", lambda store: store._dispatcher, "_lock", "_position"),
    claim("checkpoint", lambda store: store._checkpointer, "gate", "_last"),
    claim("key-index", lambda store: store.index, "_lock", "_run", "_table"),
    claim("queues", lambda store: store.queues, "_lock", "_queues"),
    claim("group-offsets", lambda store: store._group_offsets, "_lock", "_stored"),
    claim("producer-ids", ids, "_lock", "_next_id", "_block", holder=store_of),
    claim("open-files", lambda store: store._files, "_lock", "_entries", "_forgotten"),
]


def open_kafka() -> LogStore:
    """Open a store with segments of three records, so that the life below rolls and deletes segments."""
    settings = {"internal.segment.bytes": "260", "index.interval.bytes": "0"}
    shop = kafka.Workshop()
    with shop.open(settings) as store:
        store.create_topic("t", 2, {"retention.bytes": "300"})
        store.append(T0, [Record(b"k", b"of an earlier life")])
    return shop.open(settings)


def open_rocketmq() -> LogStore:
    """Open a store with files of some records."""
    store = rocketmq.Workshop().open()
    store.create_topic("t", 2)
    return store


def live(store: Any) -> None:
    """Run everything that writes: appends, flushes, ids, topics, groups, checkpoints, retention, lookups, a stop."""
    ticks = count(1)
    store._clock = lambda: next(ticks)
    for turn in range(12):
        store.append(T0, [Record(b"k%d" % turn, b"value")], publish=turn % 3 > 0)
        store.append(T1, [Record(b"k", b"value")], producer=ProducerSequence(7, 0, turn))
        if turn % 4 == 3:
            store.flush()
        store.find("t", key=b"k%d" % turn)
    for _ in range(1002):  # more than one block of ids
        store.new_producer_id()
    store.create_topic("u", 1)
    store.alter_topic("t", {})
    store.append(TopicPartition("u", 0), [Record(b"k", b"v")])
    store.flush()
    store.commit_offsets([GroupCommit("g", {T0: CommittedOffset(1)})])
    store.checkpoint()
    if store.capabilities.messages:
        with store._lock:  # as an append that found the disk full
            store.log.rewind(store.log.end, written_bytes=0)
    store.enforce_retention(1 << 50)
    store.delete_topic("u")
    store.checkpoint()


ROWS = [("kafka", open_kafka, row) for row in KAFKA] + [
    ("rocketmq", open_rocketmq, row) for row in ROCKETMQ
]


@pytest.fixture(params=ROWS, ids=[f"{backend}-{row.name}" for backend, _, row in ROWS])
def row(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Claim]]:
    """A store whose locks know their owner, and one claim."""
    with_owned_locks(monkeypatch)
    _, make, one = request.param
    store = make()
    yield store, one
    store.close()


def test_no_write_without_the_lock(row: tuple[Any, Claim]) -> None:
    store, one = row
    guards = Guards()
    guards.watch(one.watched(store), getattr(one.holder(store), one.lock), *one.fields)
    live(store)
    assert guards.breaches == []
    assert {field for field, writes in guards.writes.items() if not writes} == set(), "never tried"


def test_a_lock_that_is_dropped_is_noticed(row: tuple[Any, Claim]) -> None:
    store, one = row
    guards = Guards()
    lock = getattr(one.holder(store), one.lock)
    guards.watch(one.watched(store), lock, *one.fields)
    lock.is_mine = lambda: False  # as if `with lock:` were missing
    live(store)
    assert guards.breaches
