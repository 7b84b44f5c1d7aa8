"""Deliberate faults in our own code, one at a time: the explorer or the error sweep catches each of them.

A fault is in the code while a life is recorded, while its crashes are recovered from and while the result is checked.
Lives with new seeds are tried until an invariant is broken. Without a fault no invariant is broken, as
test_explorer.py and test_error_sweep.py show.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from storage import StorageError
from tests.robustness.crash import seeded_kafka, seeded_rocketmq
from tests.robustness.crash.explorer import Explorer, Plan
from tests.robustness.crash.seeded import FAULTS
from tests.robustness.crash.workload import BACKENDS
from tests.robustness.test_error_sweep import failures, points
from tests.workers import worker_processes

WORKERS = 2
ENOUGH = 20  # faults of each backend
PARTS = 8  # CI hunts one of them: the commit chooses which
# An upper limit: most faults are caught after tens of states, the rarest after 900.
PLAN = Plan(states=20_000, second=0, share=0.01)
QUICK = [
    ("kafka", "answered before the flush"),
    ("kafka", "topic made without a sync of the root"),
    ("kafka", "the fence never closes"),
    ("rocketmq", "the log is never synced"),
    ("rocketmq", "no note of a deleted topic"),
]


class Catch(NamedTuple):
    """The check that caught a fault (None: not caught), and the number of states until then."""

    backend: str
    fault: str
    by: str | None
    states: int

    def __str__(self) -> str:
        return f"{self.backend:8} | {self.fault:45} | {self.states:4} states | {self.by or 'NOT CAUGHT'}"


def hunt(backend: str, name: str) -> Catch:
    """Search for a planted fault until an invariant is broken."""
    fault = FAULTS[backend, name]
    with fault.planted():
        if fault.by_sweep:
            return sweep(backend, name)
        return explore(backend, name, again=fault.at_start, seed=fault.seed)


def explore(backend: str, name: str, *, again: bool, seed: int) -> Catch:
    """Search by crash states; `again`: with as many second crashes."""
    explorer = Explorer(
        BACKENDS[backend], replace(PLAN, second=PLAN.states if again else 0, seed=seed)
    )
    report, by = explorer.report, None
    try:
        explorer.run()
    except* (StorageError, AssertionError) as group:
        by = f"the life itself: {group.exceptions[0]!r}"[:90]
    if report.broken:
        by = report.broken[0].split("): ", 1)[1][:90]
    return Catch(backend, name, by, report.states + report.second)


def sweep(backend: str, name: str) -> Catch:
    """Search by a disk that fails."""
    every = points(backend, seed=0)
    count = 0
    for point in random.Random(0).sample(every, len(every)):
        for _, problem in failures(backend, [point], seed=0):
            count += 1
            if problem is not None:
                return Catch(backend, name, problem.split(": ", 1)[1][:90], count)
    return Catch(backend, name, None, count)


@pytest.mark.parametrize("backend", BACKENDS)
def test_there_are_enough_faults(backend: str) -> None:
    assert {module.__name__.rpartition("_")[2] for module in (seeded_kafka, seeded_rocketmq)} == {
        *BACKENDS
    }
    assert sum(of == backend for of, _ in FAULTS) >= ENOUGH


@pytest.mark.parametrize(("backend", "name"), FAULTS)
def test_faults_can_be_planted(backend: str, name: str) -> None:
    """The code that a fault changes is still there: CI hunts only a part of the faults."""
    with FAULTS[backend, name].planted():
        pass


@pytest.mark.parametrize(("backend", "name"), QUICK)
def test_some_faults_are_caught(backend: str, name: str) -> None:
    assert hunt(backend, name).by is not None


@pytest.mark.slow
@pytest.mark.one_in(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_faults_are_caught(part: int, figures: Callable[[str], None]) -> None:
    with worker_processes(WORKERS) as workers:
        catches = list(workers.map(hunt, *zip(*list(FAULTS)[part::PARTS], strict=True)))
    for catch in catches:
        figures(f"seeded bug: {catch}")
    assert [str(catch) for catch in catches if catch.by is None] == []
