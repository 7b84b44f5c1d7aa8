"""kill -9 during producing, fetching and recovery, again and again.

No acknowledged or served record is lost, none is stored twice (I1-I5, I8, I9, I12 of
tests/robustness/crash/invariants.py). A client sees no difference between the backends, except that a message store
also answers lookups by key.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runner import fine, settings_options
from tests.golden.rocketmq_stores import by_golden_order, shown
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.robustness.process.backends import BACKENDS, ROCKETMQ_SIZES, Backend
from tests.robustness.process.faults import KILL, PASS, Faults, Rule
from tests.robustness.process.life import Life
from tests.robustness.process.server import Server, start

CYCLES = 8  # in CI, and in a soak of an hour 25
SOAKED = 2_500
LIFE = 25  # cycles of one store: each start checks all its records
STARTS_KILLED = (3, 0, 1, 0, 1, 0)  # after each cycle in turn, before a start succeeds

Figures = Callable[[str], None]


@pytest.mark.slow
def test_nothing_acknowledged_or_served_is_lost(
    tmp_path: Path, backend: Backend, figures: Figures, amount: Callable[[int, int], int], seed: int
) -> None:
    cycles = amount(CYCLES, SOAKED)
    for number, first in enumerate(range(0, cycles, LIFE)):
        length = min(LIFE, cycles - first)
        life = Life(tmp_path / f"{number}", backend, seed=seed + number)
        live(life, length)
        figures(
            f"kill -9, {backend.name}: {length} cycles, {life.starts_killed} more before a start was done: "
            f"{life.counts()}"
        )
        shutil.rmtree(life.data)


def live(life: Life, cycles: int) -> None:
    """Kill the server of a store again and again; check the store at each start, and after a clean stop."""
    life.make()
    for cycle in range(cycles):
        life.work_and_kill(life.random.uniform(0.05, 0.5))
        for _ in range(STARTS_KILLED[cycle % len(STARTS_KILLED)]):
            life.kill_starting()
    with Server(life.data, *life.backend.options) as server:
        life.check(server)
        server.stop()
    with Server(life.data, *life.backend.options) as server:
        life.check(server)
        assert "unclean" not in server.stop()
    assert len(life.book.history.acked) > 10 * cycles
    assert life.starts_killed > 0


def test_a_start_that_is_killed_at_a_change_of_the_disk(
    tmp_path: Path, backend: Backend, thorough: bool, faults: Faults, figures: Figures
) -> None:
    """All kills hit one store: each start is killed later than the start before it."""
    kills = 8 if thorough else 1
    life = Life(tmp_path / "data", backend, seed=1)
    life.make()
    life.work_and_kill(0.5)
    whole = shutil.copytree(life.data, tmp_path / "copy")
    faults.begin(Rule("any", f"{whole}/*", PASS))
    with Server(whole, *backend.options, environment=faults.environment):
        changes = len(faults.calls())
    served = 0
    for kill in range(kills):
        first = 1 + kill * changes // kills
        faults.begin(Rule("any", f"{life.data}/*", KILL, first=first))
        process = start(life.data, *backend.options, environment=faults.environment)
        served += bool(process.stdout.readline())  # if it has less to do than the first
        process.kill()
        process.communicate()
    faults.end()
    with Server(life.data, *backend.options) as server:
        life.check(server)
        server.stop()
    figures(
        f"kill -9 in a start, {backend.name}: {kills} of its {changes} changes, {kills - served} before it was done: "
        f"{life.counts()}"
    )


@pytest.mark.java
def test_the_real_store_opens_what_is_left_of_a_kill(tmp_path: Path) -> None:
    """The real store reads the same records from the files of the killed server and from the files of our own start."""
    life = Life(tmp_path / "data", BACKENDS["rocketmq"], seed=2)
    life.make()
    life.work_and_kill(0.5)
    left = peers.run_rocketmq_opens(life.data, ROCKETMQ_SIZES)
    assert left.store["lastExit"] == "abnormal"
    with Server(life.data, *life.backend.options) as server:
        life.check(server)
        server.stop()
    recovered = peers.run_rocketmq_opens(life.data, ROCKETMQ_SIZES)
    assert recovered.store["lastExit"] == "normal"
    rows = fine("dump", life.data, *settings_options(ROCKETMQ_SIZES)).rows
    mine = [by_golden_order(shown(row)) for row in rows]
    assert [row for part in recovered.messages.values() for row in part] == mine
    for place, found in left.messages.items():
        assert recovered.messages[place][: len(found)] == found
