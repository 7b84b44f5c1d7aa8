"""Half messages over crashes: what was answered as prepared can be ended, what was answered as committed is delivered,
each message once, and nothing else is; at every change of the disk, and on disks that fail once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage import HalfEnd, HalfOutcome, Prepared, Record, TopicPartition
from storage.errors import StorageError
from storage.files import FileSystem, OverlayFileSystem
from storage.rocketmq import transactions
from storage.rocketmq.half_queues import GROUP
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.transactions import HALF, MAX_TIME
from tests.contract.harness import ManualClock
from tests.robustness.crash.explorer import choices, moments
from tests.robustness.crash.faulty import (
    Fault,
    FaultyFileSystem,
    at_change,
    broken,
    disk_full,
    no_fault,
)
from tests.robustness.crash.history import History
from tests.robustness.crash.recorder import Recorder
from tests.unit.rocketmq.workshop import T0, Workshop

T1 = TopicPartition("t", 1)
START_MS = 1_700_000_000_000
STEP_MS = 40_000
SETTINGS = {"transactionCheckMax": "2"}
QUICK_STATES = 40
IN = 8  # CI crashes at one moment in IN


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check takes several steps."""
    monkeypatch.setattr(transactions, "CHECKED_AT_ONCE", 2)


def shop_on(fs: FileSystem, now_ms: int) -> Workshop:
    return Workshop(fs, ManualClock(now_ms))


def values(store: RocketMQStore, *of: TopicPartition) -> list[str]:
    known = [at for at in of if at.topic in store.topics()]
    return [(record.value or b"").decode() for at in known for record in store.read(at, 0).records]


class Producer:
    """A producer of transactions until all are ended: committed, rolled back or discarded.

    `prepared`: (events, transaction, value) of each answered half message; `ended`: (events, transaction, outcome) of
    each answered end; `begun`: transactions whose end was asked for, with the wish.
    """

    def __init__(self) -> None:
        shop = shop_on(OverlayFileSystem(), START_MS)
        shop.open_with_topic(SETTINGS, partitions=2).close()
        self.recorder = Recorder(shop.fs)
        self.prepared: list[tuple[int, str, str]] = []
        self.ended: list[tuple[int, str, HalfOutcome]] = []
        self.begun: dict[str, tuple[int, bool]] = {}
        self._shop = shop_on(self.recorder, START_MS + 1)
        self._store = self._shop.open(SETTINGS)

    @property
    def now_ms(self) -> int:
        return self._shop.clock.now_ms

    def put(self, transaction: str, *values: str) -> None:
        """Append half messages, in turn for two queues, and make them durable."""
        prepared = Prepared(transaction, "g", 10_000)
        for at, value in enumerate(values):
            record = Record(None, value.encode() * 20)
            target, half = self._store.half_messages.prepared(record, (T0, T1)[at % 2], prepared)
            self._store.append(target, [half], publish=False)
        self._store.flush([HALF])
        events = len(self.recorder.events)
        self.prepared += [(events, transaction, value * 20) for value in values]

    def end(self, **wishes: bool) -> None:
        """End transactions in one call."""
        for name, commit in wishes.items():
            self.begun[name] = (len(self.recorder.events), commit)
        ends = [HalfEnd(name, commit) for name, commit in wishes.items()]
        for name, ended in zip(wishes, self._store.half_messages.end(ends), strict=True):
            assert ended.error is None
            assert ended.outcome is not None
            self.ended.append((len(self.recorder.events), name, ended.outcome))

    def check(self) -> None:
        self._shop.clock.now_ms += STEP_MS
        for name in self._store.half_messages.check(self.now_ms).ended:
            self.ended.append((len(self.recorder.events), name, HalfOutcome.DISCARDED))

    def run(self) -> None:
        self.put("a", "a0", "a1", "a2")
        self.put("b", "b0")
        self.put("c", "c0", "c1")
        self.check()
        self.end(b=True)
        self.put("d", "d0", "d1")
        self.put("a", "a3")
        self.end(a=True, d=False)
        self.check()
        self.put("e", "e0")
        self.check()
        self.end(e=True)
        assert [name for _, name, _ in self.ended] == ["b", "a", "d", "c", "e"]
        self._store.close()


def check(state: FileSystem, producer: Producer, happened: int, name: str) -> None:
    """Check what a crash after `happened` events leaves, and that its client can go on."""
    shop = shop_on(state, producer.now_ms)
    store = shop.open(SETTINGS)
    halves = store.half_messages
    delivered = values(store, T0, T1)
    assert len(delivered) == len(set(delivered)), f"{name}: delivered twice"
    ended = {one: outcome for events, one, outcome in producer.ended if events <= happened}
    for value in delivered:
        wish = producer.begun.get(value[0])
        assert wish is not None, f"{name}: {value} was never committed"
        assert wish[0] <= happened, f"{name}: {value} was delivered before its commit"
        assert wish[1], f"{name}: {value} was rolled back"
    is_open = {one.id: one.messages for one in halves.transactions()}
    for events, one, value in producer.prepared:
        if events > happened:
            continue
        outcome = ended.get(one)
        if outcome is HalfOutcome.COMMITTED:
            assert value in delivered, f"{name}: {value} is lost"
        elif outcome is HalfOutcome.DISCARDED:
            assert value in values(store, MAX_TIME), f"{name}: {value} is in no topic"
        elif outcome is None:
            assert one in is_open or halves.find(one) is not None, f"{name}: {one} is lost"
        if outcome is not None:
            assert halves.find(one) is outcome, f"{name}: {one}"
    finish(store, producer, happened, name)
    store.close()


def finish(store: RocketMQStore, producer: Producer, happened: int, name: str) -> None:
    """Repeat the wishes; commit the other transactions. Then each prepared message is delivered once, or nowhere."""
    halves = store.half_messages
    left = {one for events, one, _ in producer.prepared if events <= happened}
    left |= {one.id for one in halves.transactions()}  # without an answer
    outcomes = {}
    for one in sorted(left):
        wish = producer.begun.get(one, (0, True))[1]
        (ended,) = halves.end([HalfEnd(one, wish)])
        assert ended.error is None
        outcomes[one] = ended.outcome
    assert halves.transactions() == [], name
    delivered = values(store, T0, T1)
    assert len(delivered) == len(set(delivered)), f"{name}: delivered twice after a repeat"
    for events, one, value in producer.prepared:
        if events <= happened:
            is_committed = outcomes[one] is HalfOutcome.COMMITTED
            assert (value in delivered) is is_committed, f"{name}: {value}, {outcomes[one]}"
    halves.check(producer.now_ms)
    progress = {at: one.offset for at, one in store.committed(GROUP).items()}
    assert all(offset == store.bounds(at).end for at, offset in progress.items()), name


def crash(producer: Producer, every: int, seed: int) -> int:
    """Crash at every `every`-th moment, in several ways each; return the number of states."""
    dice = random.Random(seed)
    looked = 0
    for number, disk in enumerate(moments(producer.recorder, History())):
        if (number + seed) % every:
            continue
        for kind, choice in choices(dice):
            check(disk.left(choice), producer, number, f"moment {number}, {kind}, seed {seed}")
            looked += 1
    return looked


def test_some_crashes() -> None:
    producer = Producer()
    producer.run()
    every = max(len(producer.recorder.events) * 7 // QUICK_STATES, 1)
    assert crash(producer, every, random.randrange(1000)) >= QUICK_STATES // 2


@pytest.mark.slow
def test_a_crash_at_every_change(seed: int, amount: Callable[[int, int], int]) -> None:
    producer = Producer()
    producer.run()
    every = amount(IN, 1)
    assert crash(producer, every, seed) >= len(producer.recorder.events) // every


WISHES = {"a": True, "b": False, "d": True}
"""Of transactions; c is discarded by the checks."""


def prepared_disk() -> FileSystem:
    """Return a disk with transactions a to d, all durable, in a store that was stopped."""
    shop = shop_on(OverlayFileSystem(), START_MS)
    store = shop.open_with_topic(SETTINGS, partitions=2)
    for name, count in {"a": 3, "b": 2, "c": 2, "d": 1}.items():
        prepared = Prepared(name, "g", 10_000)
        for at in range(count):
            record = Record(None, b"%s%d" % (name.encode(), at))
            target, half = store.half_messages.prepared(record, (T0, T1)[at % 2], prepared)
            store.append(target, [half], publish=False)
    store.flush()
    store.close()
    return shop.fs


def work(shop: Workshop, store: RocketMQStore) -> bool:
    """End transactions by WISHES, and check the others until they are discarded; return whether something failed."""
    halves = store.half_messages
    ends = halves.end([HalfEnd(name, commit) for name, commit in WISHES.items()])
    if any(ended.error for ended in ends):
        return True  # without the checks, which would discard the transactions
    for _ in range(3):
        shop.clock.now_ms += STEP_MS
        try:
            halves.check(shop.clock.now_ms)
        except StorageError:
            return True
    return False


def check_ended(store: RocketMQStore, name: str) -> None:
    """Check that each transaction has its outcome, and each message is once where consumers read it. A message that is
    discarded may be in its topic twice, as by the broker.
    """
    halves = store.half_messages
    assert halves.transactions() == [], name
    assert sorted(values(store, T0, T1)) == ["a0", "a1", "a2", "d0"], name
    assert set(values(store, MAX_TIME)) == {"c0", "c1"}, name
    committed, rolled_back = HalfOutcome.COMMITTED, HalfOutcome.ROLLED_BACK
    wanted = [committed, rolled_back, HalfOutcome.DISCARDED, committed]
    assert [halves.find(each) for each in "abcd"] == wanted, name


@pytest.mark.parametrize("fault", [disk_full, broken])
def test_a_disk_that_fails_once_loses_nothing(
    fault: Fault, seed: int, amount: Callable[[int, int], int]
) -> None:
    """Wherever an end or a check fails: its repeat, there or after a start, delivers each message once."""
    base = prepared_disk()
    counting = FaultyFileSystem(OverlayFileSystem(base))
    shop = shop_on(counting, START_MS)
    store = shop.open(SETTINGS)
    opened = counting.changes
    assert not work(shop, store)
    changes = counting.changes - opened
    check_ended(store, "without a fault")
    failures, every = 0, amount(4, 1)
    for change in range(1 + seed % every, changes + 1, every):
        name = f"{fault.__name__} at {change}"
        faulty = FaultyFileSystem(OverlayFileSystem(base))
        shop = shop_on(faulty, START_MS)
        store = shop.open(SETTINGS)
        faulty.fault = at_change(faulty, change, fault)
        failures += work(shop, store)
        faulty.fault = no_fault
        if store.stats().fenced:
            store.close()
            store = shop.open(SETTINGS)
        assert not work(shop, store), name
        check_ended(store, name)
        store.close()
        check_ended(shop.open(SETTINGS), f"{name}, after a start")
    assert failures > changes // every // 5
