"""Delayed messages over crashes: none is lost, none is early, and each level keeps its order, at every change of the
disk; and disks that fail once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage import Record, TopicPartition
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

T1 = TopicPartition("t", 1)
START_MS = 1_700_000_000_000
LEVELS = (1, 2, 1, 3, 1, 2, 1, 1, 3, 2)
TIMES_MS = (999, 1000, 5000, 10_000)
EARLY_MS = 4999
LATER_MS = 3_600_000
QUICK_STATES = 40
IN = 8  # CI crashes at one moment in IN


def shop_on(fs: FileSystem, now_ms: int) -> Workshop:
    return Workshop(fs, ManualClock(now_ms))


def prepared() -> FileSystem:
    """Return a disk with messages of three levels for two partitions, all durable, in a store that was stopped."""
    shop = shop_on(OverlayFileSystem(), START_MS)
    store = shop.open_with_topic(partitions=2)
    for number, level in enumerate(LEVELS):
        target, record = store.delays.delayed(
            Record(None, b"%d:%d" % (level, number)), (T0, T1)[number % 2], level
        )
        store.append(target, [record], publish=False)
        store.flush([target])
    store.close()
    return shop.fs


def values(store: RocketMQStore) -> list[bytes]:
    found: list[bytes] = []
    for partition in (T0, T1):
        found += [record.value or b"" for record in store.read(partition, 0).records]
    return found


def deliver_in_steps(fs: FileSystem, *times_ms: int) -> Recorder:
    """Record a delivery at each time after START_MS, with new messages between them, and a part of a last one."""
    recorder = Recorder(fs)
    shop = shop_on(recorder, START_MS + 10)
    store = shop.open()
    for time_ms in times_ms:
        now_ms = shop.clock.now_ms = START_MS + time_ms
        store.delays.deliver(now_ms)
        target, record = store.delays.delayed(Record(None, b"1:new-%d" % now_ms), T0, 1)
        store.append(target, [record], publish=False)
        store.flush([target])
    store.delays.deliver(shop.clock.now_ms + 1000, max_records=2)
    store.close()
    return recorder


def check(state: FileSystem, name: str) -> None:
    """Check what a crash leaves: after a start and all deliveries every message of `prepared` has been delivered, those
    of a level and partition first in their order.
    """
    shop = shop_on(state, START_MS + LATER_MS)
    store = shop.open()
    store.delays.deliver(shop.clock.now_ms)
    found = values(store)
    for partition, places in ((T0, 0), (T1, 1)):
        for level in (1, 2, 3):
            wanted = [
                b"%d:%d" % (one, number)
                for number, one in enumerate(LEVELS)
                if one == level and number % 2 == places
            ]
            read = [record.value for record in store.read(partition, 0).records]
            firsts = [value for value in dict.fromkeys(read) if value in wanted]
            assert firsts == wanted, f"{name}: {partition} level {level}: {firsts}"
    store.delays.deliver(shop.clock.now_ms)
    assert values(store) == found, f"{name}: delivered twice without a crash between"
    assert store.delays.waiting(10).records == []
    store.close()


def check_early(state: FileSystem, now_ms: int, name: str) -> None:
    """Check that a start at a time delivers the messages that are due then, and no other."""
    shop = shop_on(state, now_ms)
    store = shop.open()
    store.delays.deliver(now_ms)
    assert values(store)
    for value in values(store):
        level = int(value.split(b":")[0])
        due_ms = START_MS + store.delays.levels[level - 1].delay_ms
        assert due_ms <= now_ms, f"{name}: {value!r} at {now_ms}"
    store.close()


def crash(recorder: Recorder, every: int, seed: int) -> int:
    """Crash at every `every`-th moment, in several ways each; return the number of states."""
    dice = random.Random(seed)
    looked = 0
    for number, disk in enumerate(moments(recorder, History())):
        if (number + seed) % every:
            continue
        for kind, choice in choices(dice):
            name = f"moment {number}, {kind}, seed {seed}"
            check(disk.left(choice), name)
            looked += 1
    return looked


def test_some_crashes() -> None:
    recorder = deliver_in_steps(prepared(), *TIMES_MS)
    every = max(len(recorder.events) * 7 // QUICK_STATES, 1)
    assert crash(recorder, every, random.randrange(1000)) >= QUICK_STATES // 2


@pytest.mark.slow
def test_a_crash_at_every_change(seed: int, amount: Callable[[int, int], int]) -> None:
    recorder = deliver_in_steps(prepared(), *TIMES_MS)
    every = amount(IN, 1)
    assert crash(recorder, every, seed) >= len(recorder.events) // every


def test_no_crash_makes_a_message_early() -> None:
    recorder = deliver_in_steps(prepared(), 999, 1000, EARLY_MS - 1000)
    dice = random.Random(random.randrange(1000))
    for number, disk in enumerate(moments(recorder, History())):
        kind, choice = dice.choice(list(choices(dice)))
        if not number % 4:
            check_early(disk.left(choice), START_MS + EARLY_MS, f"moment {number}, {kind}")


def test_a_crash_in_the_next_start_and_delivery() -> None:
    recorder = deliver_in_steps(prepared(), *TIMES_MS)
    dice = random.Random(random.randrange(1000))
    chosen = dice.sample(range(len(recorder.events)), 6)
    for number, disk in enumerate(moments(recorder, History())):
        if number not in chosen:
            continue
        _, choice = dice.choice(list(choices(dice)))
        second = Recorder(OverlayFileSystem(disk.left(choice)))
        shop = shop_on(second, START_MS + LATER_MS)
        store = shop.open()
        store.delays.deliver(shop.clock.now_ms)
        crash(second, max(len(second.events) // 3, 1), dice.randrange(100))


@pytest.mark.parametrize("fault", [disk_full, broken])
def test_a_disk_that_fails_once_loses_nothing(fault: Fault) -> None:
    """Wherever a delivery fails: the next ones, or those after a start, deliver everything, in order."""
    base = prepared()
    counting = FaultyFileSystem(OverlayFileSystem(base))
    store = shop_on(counting, START_MS + 20_000).open()
    opened = counting.changes
    store.delays.deliver(START_MS + 20_000)
    changes = counting.changes - opened
    failures = 0
    for change in range(1, changes + 1):
        faulty = FaultyFileSystem(OverlayFileSystem(base))
        shop = shop_on(faulty, START_MS + 20_000)
        store = shop.open()
        faulty.fault = at_change(faulty, change, fault)
        failures += did_fail(store, shop.clock.now_ms)
        faulty.fault = no_fault
        if not store.stats().fenced:
            store.delays.deliver(shop.clock.now_ms)
            assert set(values(store)) == {b"%d:%d" % (lv, n) for n, lv in enumerate(LEVELS)}
        store.close()
        check(OverlayFileSystem(faulty), f"{fault.__name__} at {change}")
    assert failures > changes // 3


def did_fail(store: RocketMQStore, now_ms: int) -> bool:
    try:
        store.delays.deliver(now_ms)
    except StorageError:
        return True
    return False
