"""A disk that fails at one operation: each operation of a life and of a start, each kind of failure, one at a time.

The conditions are stated in life.py (while the store runs), torn.py (a start) and invariants.py (after any crash).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import pytest

from tests.robustness.crash.faulty import (
    Fault,
    at_change,
    broken,
    killed,
    no_fault,
    no_space,
    short_write,
)
from tests.robustness.crash.invariants import Broken
from tests.robustness.crash.life import Chapter, Life, chapters
from tests.robustness.crash.torn_kafka import TornKafka
from tests.robustness.crash.torn_rocketmq import TornRocketMQ
from tests.robustness.crash.workload import BACKENDS
from tests.workers import worker_processes

WORKERS = 2
POINTS = 300  # of each backend at least
IN = 6  # CI tries one operation in so many: the commit chooses which
START_IN = 3  # the same for the operations of a start
QUICK_POINTS = 12  # of each kind
TORN = {"kafka": TornKafka, "rocketmq": TornRocketMQ}


class Kind(NamedTuple):
    """A kind of failure; `halves`: half of a failing write is done."""

    fault: Fault
    halves: bool


KINDS: Mapping[str, Kind] = {
    "EIO": Kind(broken, halves=True),
    "ENOSPC": Kind(no_space, halves=False),
    "short write": Kind(short_write, halves=True),
}


class Point(NamedTuple):
    """One operation of a life: the chapter that contains it, and its number there."""

    chapter: Chapter
    at: int


class Swept(NamedTuple):
    """The number of failures of each kind, and the problems found."""

    failures: Counter[str]
    broken: list[str]


def points(backend: str, seed: int) -> Sequence[Point]:
    """Return every operation of a life that changes the disk."""
    return [
        Point(chapter, at)
        for chapter, changes in chapters(BACKENDS[backend], seed)
        for at in range(1, changes + 1)
    ]


def fail_at(backend: str, point: Point, kind: Kind, seed: int) -> bool:
    """Run a chapter with one failure. Return False if this kind of failure does not apply. Raises `Broken`."""
    life = Life(BACKENDS[backend], point.chapter, seed)
    life.fs.halves = kind.halves
    life.fs.fault = at_change(life.fs, point.at, kind.fault)
    life.run()
    if life.fs.failed is None:
        return False
    life.check_left()
    return True


def failures(backend: str, chosen: Sequence[Point], seed: int) -> Iterator[tuple[str, str | None]]:
    """Yield (kind, problem or None) for each failure at these points."""
    for name, kind in KINDS.items():
        for point in chosen:
            place = f"{name} at change {point.at} of chapter {point.chapter.number}, seed {seed}"
            try:
                if fail_at(backend, point, kind, seed):
                    yield name, None
            except Broken as error:
                yield name, f"{place}: {error}"


def sweep(backend: str, share: slice, seed: int, worker: int) -> Swept:
    """Run the failures at a worker's part of a share of the points."""
    found = list(failures(backend, points(backend, seed)[share][worker::WORKERS], seed))
    return Swept(Counter(name for name, _ in found), [problem for _, problem in found if problem])


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_failures(backend: str) -> None:
    seed = random.randrange(1000)
    chosen = random.Random(seed).sample(points(backend, seed), QUICK_POINTS)
    assert [problem for _, problem in failures(backend, chosen, seed) if problem] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_at_every_operation(
    backend: str,
    turn: Callable[[int], slice],
    figures: Callable[[str], None],
    amount: Callable[[int, int], int],
) -> None:
    lives, share = amount(1, 5), turn(IN)
    tasks = product(range(lives), range(WORKERS))
    with worker_processes(WORKERS) as workers:
        parts = list(workers.map(partial(sweep, backend, share), *zip(*tasks, strict=True)))
    count = sum((part.failures for part in parts), Counter[str]())
    assert [problem for part in parts for problem in part.broken] == []
    assert count["EIO"] >= POINTS * lives // (share.step or 1)
    reported = ", ".join(f"{name} {number}" for name, number in count.items())
    figures(f"error sweep, {backend}: {reported} of {lives} lives; 0 broken invariants")


STARTS = [broken, no_space, short_write, killed]


def fail_start(backend: str, fault: Fault, share: slice) -> None:
    """Start a torn store with one failure, at each operation of a share of the start's operations."""
    torn = TORN[backend]()
    changes = torn.recover(no_fault, at=0).changes
    chosen = range(1, changes + 1)[share]
    assert chosen
    for at in chosen:
        torn.check(torn.recover(fault, at=at))


@pytest.mark.parametrize("fault", STARTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_start_may_fail(backend: str, fault: Fault) -> None:
    fail_start(backend, fault, slice(random.randrange(13), None, 13))


@pytest.mark.slow
@pytest.mark.parametrize("fault", STARTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_start_may_fail_at_every_operation(
    backend: str, fault: Fault, turn: Callable[[int], slice]
) -> None:
    fail_start(backend, fault, turn(START_IN))
