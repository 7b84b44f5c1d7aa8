"""Compaction, killed or without power at every change, and on a disk that fails: no newest record is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from storage.errors import DiskFull, IoFailure, StoreFenced
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.format import names
from tests.robustness.crash.compacted import (
    DELETE_DELAY_MS,
    DELETE_RETENTION_MS,
    FOLDER,
    CompactedTopic,
)
from tests.robustness.crash.explorer import choices, moments
from tests.robustness.crash.faulty import (
    Fault,
    FaultyFileSystem,
    at_change,
    broken,
    no_space,
    short_write,
)
from tests.robustness.crash.history import History
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.workload import PATH

REQUESTS = 40
IN = 12  # CI crashes at one moment in so many, the soak at every one
QUICK_MOMENTS = 6


def lived(seed: int) -> tuple[CompactedTopic, Recorder]:
    """Record a cleaning of a stopped store that was cleaned before: it drops what got a delete horizon then."""
    dice = random.Random(seed)
    topic, base = CompactedTopic(), OverlayFileSystem()
    base.make_dir(PATH.parent)
    store = topic.open(base)
    topic.fill(store, dice, REQUESTS)
    assert topic.clean(store) >= 1
    topic.fill(store, dice, REQUESTS)
    store.close()
    topic.clock.now_ms += 2 * DELETE_RETENTION_MS
    recorder = Recorder(base)
    store = topic.open(recorder)
    assert topic.clean(store) >= 1
    topic.clock.now_ms += DELETE_DELAY_MS
    assert topic.clean(store) == 0  # the replaced files are removed
    assert leftovers(recorder) == []
    assert topic.problem(store) is None
    return topic, recorder


def leftovers(fs: FileSystem) -> list[str]:
    """Return the names of the files that a start or a later step removes."""
    return [name for name in fs.list_dir(FOLDER) if name.endswith(names.LEFTOVER_SUFFIXES)]


def go_on(topic: CompactedTopic, state: FileSystem, name: str) -> None:
    """Start from a state, compare, clean the rest, stop, start again and compare."""
    end, values, sequences = topic.end, dict(topic.values), dict(topic.sequences)
    store = topic.open(state)
    assert topic.problem(store) is None, name
    topic.clean(store)
    assert topic.problem(store) is None, f"{name}, cleaned"
    topic.check_repeats(store)
    assert topic.problem(store) is None, f"{name}, and appended to"
    store.close()
    assert all(left.endswith(names.DELETED) for left in leftovers(state)), name
    with topic.open(state) as again:
        assert leftovers(state) == [], name
        assert again.recovery.clean_shutdown
        assert topic.problem(again) is None, f"{name}, stopped"
    topic.end, topic.values, topic.sequences = end, values, sequences


def crash_at_some(seed: int, every: int, *, again: bool) -> int:
    """Crash at every `every`-th moment, in several ways each; return the number of states checked."""
    topic, recorder = lived(seed)
    dice = random.Random(seed)
    looked = 0
    for number, disk in enumerate(moments(recorder, History())):
        if (number + seed) % every:
            continue
        for kind, choice in choices(dice):
            name = f"moment {number}, {kind}, seed {seed}"
            state = disk.left(choice)
            if again:
                crash_again(topic, state, name, dice)
            go_on(topic, disk.left(choice), name)
            looked += 1
    return looked


def crash_again(topic: CompactedTopic, state: Ram, name: str, dice: random.Random) -> None:
    """Crash at two moments of the next start."""
    recorder = Recorder(OverlayFileSystem(state))
    topic.open(recorder).close()
    chosen = dice.sample(range(len(recorder.events)), 2)
    for number, disk in enumerate(moments(recorder, History())):
        if number in chosen:
            _, choice = dice.choice(list(choices(dice)))
            go_on(topic, disk.left(choice), f"{name}, again")


def test_some_crashes() -> None:
    seed = random.randrange(1000)
    changes = len(lived(seed)[1].events)
    assert crash_at_some(seed, changes // QUICK_MOMENTS, again=False) >= QUICK_MOMENTS


@pytest.mark.slow
def test_a_crash_at_every_change(
    seed: int, amount: Callable[[int, int], int], figures: Callable[[str], None]
) -> None:
    states = crash_at_some(seed % 1000, amount(IN, 1), again=False)
    figures(f"crash states of compaction: {states}")
    assert states >= 100 // amount(IN, 1)


@pytest.mark.slow
def test_a_second_crash_in_the_next_start(seed: int, amount: Callable[[int, int], int]) -> None:
    assert crash_at_some(seed % 1000, 4 * amount(IN, 1), again=True) > 0


# ---- a disk that fails ----


def prepared(seed: int) -> tuple[CompactedTopic, OverlayFileSystem]:
    """Return a stopped store with a log to clean."""
    topic, base = CompactedTopic(), OverlayFileSystem()
    base.make_dir(PATH.parent)
    with topic.open(base) as store:
        topic.fill(store, random.Random(seed), REQUESTS)
    return topic, base


@pytest.mark.parametrize("fault", [broken, no_space, short_write])
def test_a_disk_that_fails_once_loses_nothing(
    fault: Fault, amount: Callable[[int, int], int]
) -> None:
    """After EIO the store is fenced and goes on reading; after a full disk the next step cleans."""
    seed = random.randrange(1000)
    topic, base = prepared(seed)
    counting = FaultyFileSystem(OverlayFileSystem(base))
    store = topic.open(counting)
    begin = counting.changes
    topic.clean(store)
    changes = counting.changes - begin
    every = amount(5, 1)
    for at in range(1 + seed % every, changes + 1, every):
        left = OverlayFileSystem(base)
        fs = FaultyFileSystem(left)
        store = topic.open(fs)
        fs.fault = at_change(fs, at, fault)
        with suppress(DiskFull, IoFailure, StoreFenced):
            topic.clean(store)
        if fs.failed is None:
            continue
        name = f"{fs.failed} at {at}, seed {seed}"
        if store.stats().fenced is None:
            assert topic.problem(store) is None, name
            topic.clean(store)
            assert topic.problem(store) is None, name
        elif fs.failed[0] != "rename" and fs.failed[0] != "sync_dir":
            assert topic.problem(store) is None, name
        go_on(topic, OverlayFileSystem(left), name)
