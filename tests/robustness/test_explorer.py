"""The state of a store after crashes: thousands of states of each backend's life, opened and checked one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.robustness.crash.explorer import Explorer, Plan, Report
from tests.robustness.crash.workload import BACKENDS
from tests.workers import worker_processes

WORKERS = 2
STATES, SECOND = 2_500, 500  # of each backend, 3,000 together; different states for each commit
PARTS = 2  # number of tests that share them: each part is short enough for a busy machine
QUICK = Plan(states=60, second=15, seed=1000, share=0.03)
IN_CI = Plan(STATES // PARTS // WORKERS, SECOND // PARTS // WORKERS, share=0.03)


def explored(backend: str, plan: Plan) -> Report:
    """Explore one worker's share."""
    return Explorer(BACKENDS[backend], plan).run()


def summary(report: Report, name: str) -> str:
    """Return one line with the counts of checked states and the broken invariants."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(report.kinds.items()))
    return (
        f"{name}: {report.states} with one crash ({kinds}), {report.second} with a second one during recovery, of "
        f"{report.workloads} workloads; {report.later} later starts, {report.alike} of them from files that were "
        f"looked at before; {len(report.broken)} broken invariants {report.broken or ''}".rstrip()
    )


def check(report: Report, *, states: int, second: int) -> None:
    """Check that nothing is broken and that the planned number of states was checked."""
    assert report.broken == []
    assert report.states >= states
    assert report.second >= second


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_crash_states(backend: str) -> None:
    check(explored(backend, QUICK), states=QUICK.states, second=QUICK.second)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("backend", BACKENDS)
def test_crash_states(backend: str, part: int, seed: int, figures: Callable[[str], None]) -> None:
    total = Report(backend)
    with worker_processes(WORKERS) as workers:
        first = seed + part * WORKERS
        plans = [replace(IN_CI, seed=first + worker) for worker in range(WORKERS)]
        for report in workers.map(explored, [backend] * WORKERS, plans):
            total.add(report)
    figures(summary(total, f"crash states, {backend}, part {part + 1} of {PARTS}, seed {seed:08x}"))
    check(total, states=STATES // PARTS, second=SECOND // PARTS)
