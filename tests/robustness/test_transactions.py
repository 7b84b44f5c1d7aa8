"""Transactions over crashes and failing operations of the disk; crash/transactions.py has the guarantees."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import StorageError
from storage.files import OverlayFileSystem
from tests.contract.harness import ManualClock
from tests.robustness.crash.explorer import choices, rarely_collected
from tests.robustness.crash.faulty import (
    Fault,
    FaultyFileSystem,
    at_change,
    broken,
    no_space,
    short_write,
)
from tests.robustness.crash.invariants import Broken
from tests.robustness.crash.recorder import Noted, Recorder
from tests.robustness.crash.transactions import PATH, Book, Workload, check, service_on
from tests.workers import worker_processes

WORKERS = 2
LIVES = 2
EACH = 3  # transactions of a client in one life
QUICK_STATES, STATES = 40, 1_000
QUICK_POINTS, POINTS = 6, 120
FAULTS = {"EIO": broken, "ENOSPC": no_space, "short write": short_write}


def recorded(seed: int) -> tuple[Recorder, ManualClock]:
    """Run the workload over a few lives of a store; return the recording."""
    clock = ManualClock()
    recorder = Recorder(OverlayFileSystem(clock=clock))
    recorder.make_dir(PATH.parent)
    recorder.sync_dir(Path("/"))

    async def live(life: int) -> None:
        service = service_on(recorder, clock)
        await service.start()
        await Workload(service, seed + life, recorder.note, 1000 * life).run(EACH)
        await service.transactions.expire(clock.now_ms)
        await service.stop()

    for life in range(LIVES):
        asyncio.run(live(life))
        clock.now_ms += 1000
    return recorder, clock


def explore(seed: int, states: int) -> Counter[str]:
    """Check the states of a workload after crashes at random moments; return their number by the kind of crash."""
    dice = random.Random(seed)
    checked: Counter[str] = Counter()
    with rarely_collected():
        while checked.total() < states:
            recorder, clock = recorded(dice.randrange(1 << 30))
            share = min(1.0, states / (5 * len(recorder.events)))
            book, disk = Book(), recorder.disk.after_kill()
            for number, event in enumerate(recorder.events):
                if isinstance(event, Noted):
                    book.note(event.note)
                    continue
                disk.feed(number, event)
                if dice.random() > share or checked.total() >= states:
                    continue
                for kind, choice in choices(dice):
                    now = ManualClock(clock.now_ms)
                    left = disk.left(choice)
                    try:
                        asyncio.run(check(book, left, now, killed=kind == "kill"))
                    except Broken as error:
                        raise AssertionError(
                            f"seed {seed}, event {number}, {kind}: {error}"
                        ) from error
                    checked[kind] += 1
    return checked


def test_some_crash_states(seed: int) -> None:
    assert explore(seed, QUICK_STATES).total() >= QUICK_STATES


@pytest.mark.slow
def test_crash_states(seed: int, figures: Callable[[str], None]) -> None:
    with worker_processes(WORKERS) as workers:
        seeds, shares = [seed, seed + 1], [STATES // WORKERS] * WORKERS
        checked = sum(workers.map(explore, seeds, shares), Counter[str]())
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(checked.items()))
    figures(f"crash states, transactions: {checked.total()} ({kinds}); 0 broken guarantees")
    assert checked.total() >= STATES


def fail_at(change: int, fault: Fault, seed: int) -> bool:
    """Run the workload with one failing operation of the disk, then start again and check. Return False if there are
    fewer operations.
    """
    clock, book = ManualClock(), Book()
    fs = FaultyFileSystem(OverlayFileSystem(clock=clock))
    fs.make_dir(PATH.parent)
    fs.fault = at_change(fs, change, fault)

    async def live() -> None:
        service = service_on(fs, clock)
        try:
            await service.start()
            await Workload(service, seed, book.note).run(2)
            await service.transactions.expire(clock.now_ms)
        finally:
            await service.stop()

    try:
        asyncio.run(live())
    except StorageError:
        assert fs.failed is not None
    fs.fault = lambda operation, path: None
    asyncio.run(check(book, fs, clock, killed=True))
    return fs.failed is not None


def sweep(seed: int, points: int) -> Counter[str]:
    """Fail at random operations, with each kind of failure; return their number by kind."""
    dice = random.Random(seed)
    counter = FaultyFileSystem(OverlayFileSystem())
    counter.make_dir(PATH.parent)

    async def count() -> None:
        service = service_on(counter, ManualClock())
        await service.start()
        await Workload(service, seed, lambda fact: None).run(2)
        await service.stop()

    asyncio.run(count())
    failed: Counter[str] = Counter()
    for name, fault in FAULTS.items():
        for _ in range(points):
            change = dice.randrange(1, counter.changes)
            try:
                failed[name] += fail_at(change, fault, seed)
            except Broken as error:
                raise AssertionError(f"{name} at change {change}, seed {seed}: {error}") from error
    return failed


def test_some_failures(seed: int) -> None:
    assert sweep(seed, QUICK_POINTS).total() > QUICK_POINTS


@pytest.mark.slow
def test_a_failing_operation(seed: int, figures: Callable[[str], None]) -> None:
    with worker_processes(WORKERS) as workers:
        parts = workers.map(sweep, [seed, seed + 1], [POINTS // WORKERS] * WORKERS)
        failed = sum(parts, Counter[str]())
    kinds = ", ".join(f"{name} {count}" for name, count in failed.items())
    figures(f"error sweep, transactions: {kinds}; 0 broken guarantees")
    assert failed.total() > POINTS
