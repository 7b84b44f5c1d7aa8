"""Messages handed back over crashes: none that was answered is lost on its way to the group or to the dead letters, at
every change of the disk; and disks that fail once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage import TO_DEAD_LETTERS, Record, TopicPartition
from storage.errors import StorageError
from storage.files import FileSystem, OverlayFileSystem
from storage.rocketmq.store import RocketMQStore
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

RETRY = TopicPartition("%RETRY%g", 0)
DEAD = TopicPartition("%DLQ%g", 0)
START_MS = 1_700_000_000_000
LATER_MS = 4 * 3_600_000
MESSAGES = 4
MAX_TIMES = 2
QUICK_STATES = 40
IN = 8  # CI crashes at one moment in IN


def shop_on(fs: FileSystem, now_ms: int) -> Workshop:
    return Workshop(fs, ManualClock(now_ms))


def prepared() -> FileSystem:
    """Return a disk with messages of a topic, all durable, in a store that was stopped."""
    shop = shop_on(OverlayFileSystem(), START_MS)
    store = shop.open_with_topic()
    store.append(T0, [Record(None, b"%d" % number) for number in range(MESSAGES)], publish=False)
    store.flush([T0])
    store.close()
    return shop.fs


def ids(store: RocketMQStore, of: TopicPartition, start: int = 0) -> list[str]:
    if of.topic not in store.topics():
        return []
    records = store.read(of, start).records
    return [store.record_id(of, record.locator) for record in records]


def values(store: RocketMQStore, *of: TopicPartition) -> set[bytes]:
    known = [at for at in of if at.topic in store.topics()]
    return {record.value or b"" for at in known for record in store.read(at, 0).records}


class Group:
    """A group that hands every message back until it is a dead letter. `answered`: (number of events, value, dead)."""

    def __init__(self, fs: FileSystem) -> None:
        self.recorder = Recorder(fs)
        self.answered: list[tuple[int, bytes, bool]] = []
        self._shop = shop_on(self.recorder, START_MS + 1)
        self._store = self._shop.open()

    def hand_back(self, of: TopicPartition, start: int = 0) -> None:
        """Hand the messages of a queue back."""
        records = self._store.read(of, start).records
        for record in records:
            sent = self._store.send_back("g", self._store.record_id(of, record.locator))
            self.answered.append((len(self.recorder.events), record.value or b"", sent.is_dead))

    def run(self) -> None:
        """Hand all messages back, each time after their delays, up to the dead letters; then stop."""
        self._store.change_retries("g", MAX_TIMES)
        self.hand_back(T0)
        for times in range(MAX_TIMES):
            now_ms = self._shop.clock.now_ms = self._shop.clock.now_ms + 60_000
            assert self._store.delays.deliver(now_ms).messages == MESSAGES
            self.hand_back(RETRY, times * MESSAGES)
        assert len(self._store.read(DEAD, 0).records) == MESSAGES
        self._store.close()


def check(state: FileSystem, group: Group, happened: int, name: str) -> None:
    """Check what a crash after `happened` events leaves: after a start and all deliveries every message that was
    answered is in the retry topic, or a dead letter if it was answered as one.
    """
    shop = shop_on(state, START_MS + LATER_MS)
    store = shop.open()
    store.delays.deliver(shop.clock.now_ms)
    for events, value, is_dead in group.answered:
        if events <= happened:
            found = values(store, DEAD) if is_dead else values(store, RETRY)
            assert value in found, f"{name}: {value!r} is lost"
    assert store.retry_settings("g").max_times in (MAX_TIMES, 16)
    for message_id in ids(store, T0):  # the messages can be handed back again
        store.send_back("g", message_id, level=TO_DEAD_LETTERS)
    assert len(values(store, DEAD)) == MESSAGES
    store.close()


def crash(group: Group, every: int, seed: int) -> int:
    """Crash at every `every`-th moment, in several ways each; return the number of states."""
    dice = random.Random(seed)
    looked = 0
    for number, disk in enumerate(moments(group.recorder, History())):
        if (number + seed) % every:
            continue
        for kind, choice in choices(dice):
            check(disk.left(choice), group, number, f"moment {number}, {kind}, seed {seed}")
            looked += 1
    return looked


def test_some_crashes() -> None:
    group = Group(prepared())
    group.run()
    every = max(len(group.recorder.events) * 7 // QUICK_STATES, 1)
    assert crash(group, every, random.randrange(1000)) >= QUICK_STATES // 2


@pytest.mark.slow
def test_a_crash_at_every_change(seed: int, amount: Callable[[int, int], int]) -> None:
    group = Group(prepared())
    group.run()
    every = amount(IN, 1)
    assert crash(group, every, seed) >= len(group.recorder.events) // every


@pytest.mark.parametrize("fault", [disk_full, broken])
def test_a_disk_that_fails_once_loses_nothing(fault: Fault) -> None:
    """Wherever it fails: the message can be handed back again, there or after a start, and is delivered."""
    base = prepared()
    counting = FaultyFileSystem(OverlayFileSystem(base))
    store = shop_on(counting, START_MS).open()
    (first, *_) = ids(store, T0)
    opened = counting.changes
    store.send_back("g", first)
    changes = counting.changes - opened
    failures = 0
    for change in range(1, changes + 1):
        faulty = FaultyFileSystem(OverlayFileSystem(base))
        shop = shop_on(faulty, START_MS)
        store = shop.open()
        faulty.fault = at_change(faulty, change, fault)
        failures += did_fail(store, first)
        faulty.fault = no_fault
        if store.stats().fenced:
            store.close()
            store = shop.open()
        store.send_back("g", first)
        shop.clock.now_ms += 10_000
        store.delays.deliver(shop.clock.now_ms)
        assert values(store, RETRY) == {b"0"}, f"{fault.__name__} at {change}"
        store.close()
    assert failures > changes // 3


def did_fail(store: RocketMQStore, message_id: str) -> bool:
    try:
        store.send_back("g", message_id)
    except StorageError:
        return True
    return False
