"""What crashes leave of a store: thousands of states of each backend's life, opened and checked one by one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from tests.faults.explorer import Explorer, Plan, Report
from tests.faults.workload import BACKENDS

WORKERS = 2
QUICK = Plan(states=60, second=15, seed=1000, share=0.03)
IN_CI = Plan(states=10_000 // WORKERS, second=2_000 // WORKERS, share=0.03)


def explored(backend: str, plan: Plan) -> Report:
    """One worker's share."""
    return Explorer(BACKENDS[backend], plan).run()


def check(report: Report, *, states: int, second: int) -> str:
    """Nothing is broken, and as much was looked at as was planned; gives the figures."""
    assert report.broken == []
    assert report.states >= states
    assert report.second >= second
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(report.kinds.items()))
    return (
        f"crash states, {report.backend}: {report.states} with one crash ({kinds}), {report.second} with a second one "
        f"during recovery, of {report.workloads} workloads; {report.later} later starts, {report.alike} of them from "
        "files that were looked at before; 0 broken invariants"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_crash_states(backend: str) -> None:
    check(explored(backend, QUICK), states=QUICK.states, second=QUICK.second)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_crash_states(backend: str, figures: Callable[[str], None]) -> None:
    total = Report(backend)
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as workers:
        plans = [replace(IN_CI, seed=seed) for seed in range(WORKERS)]
        for report in workers.map(explored, [backend] * WORKERS, plans):
            total.add(report)
    figures(check(total, states=10_000, second=2_000))
