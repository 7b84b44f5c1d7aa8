"""The worker processes of tests end with the test, whatever ends it."""

from __future__ import annotations

import time
from multiprocessing import active_children

import pytest

from tests.workers import worker_processes

LONG_S = 300.0
SOON_S = 30.0


def refuse(_: int) -> int:
    raise ValueError("this worker fails")


def rest(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def end_busy_workers(ended_by: BaseException) -> None:
    """Raise `ended_by` while two workers are busy and other tasks wait."""
    with worker_processes(2) as pool:
        waiting = [pool.submit(rest, LONG_S) for _ in range(5)]
        assert not waiting[0].done()
        raise ended_by


def fail_in_worker() -> None:
    """Wait for a worker that fails while another is busy."""
    with worker_processes(2) as pool:
        pool.submit(rest, LONG_S)
        pool.submit(refuse, 0).result()


def test_workers_do_what_they_are_given() -> None:
    with worker_processes(2) as pool:
        assert list(pool.map(rest, [0.0, 0.1, 0.2])) == [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    "ended_by",
    [
        pytest.param(pytest.fail.Exception("Timeout >1s"), id="a timeout"),
        pytest.param(KeyboardInterrupt(), id="an interrupt"),
        pytest.param(AssertionError("no"), id="a failure"),
    ],
)
def test_busy_workers_are_ended(ended_by: BaseException) -> None:
    before, started = set(active_children()), time.monotonic()
    with pytest.raises(type(ended_by)):
        end_busy_workers(ended_by)
    assert time.monotonic() - started < SOON_S
    assert set(active_children()) <= before


def test_the_failure_of_one_worker_ends_the_others() -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match="this worker fails"):
        fail_in_worker()
    assert time.monotonic() - started < SOON_S
