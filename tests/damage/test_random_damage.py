"""Random damage of any golden store, one to three kinds at once, checked in every way of reading it; see promise.py.

A failed case is repeated with `run("kafka", SEED, [NUMBER])` of tests/damage/promise.py; the seed is printed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.damage.promise import run, run_in_processes
from tests.damage.sources import BACKENDS

WORKERS = 2
CASES, SOAKED = 300, 1_000_000  # of each format
QUICK = range(10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_damage(backend: str) -> None:
    assert run(backend, "quick", QUICK).broken == []


# Cases that broke the promise once: a checkpoint that ends after its version, a transaction index that recovery
# removes in a view before the index files are verified, and emptied logs of compacted partitions.
BROKEN_ONCE = [
    ("kafka", "50f6ff39", 124),
    ("kafka", "76057c43", 117),
    ("kafka", "round26", 1297),
    ("kafka", "round26", 1443),
    ("kafka", "round26", 2580),
    ("rocketmq", "e9959caf", 14),
    ("rocketmq", "round26", 5999),
    ("rocketmq", "round26", 7698),
]


@pytest.mark.parametrize(("backend", "seed_name", "number"), BROKEN_ONCE)
def test_a_case_that_broke_once(backend: str, seed_name: str, number: int) -> None:
    assert run(backend, seed_name, [number]).broken == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_record_that_is_missing_is_named(
    backend: str,
    seed: int,
    amount: Callable[[int, int], int],
    figures: Callable[[str], None],
) -> None:
    name, count = f"{seed:08x}", amount(CASES, SOAKED)
    tally = run_in_processes(backend, name, 0, count, workers=WORKERS)
    figures(
        f"random damage, {backend}: seed {name}: {tally.cases} cases, {tally.refused} of which no start takes, "
        f"{len(tally.broken)} broken promises"
    )
    assert tally.broken == []
    assert tally.cases == count
