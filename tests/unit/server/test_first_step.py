"""The first step of a request without a task: it ends there, or a task goes on; also when it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from api.kafka.first_step import begin


class Work:
    """A coroutine that waits `waits` times, and notes what happens to it."""

    def __init__(self, waits: int = 0, error: BaseException | None = None) -> None:
        self.gates = [asyncio.get_running_loop().create_future() for _ in range(waits)]
        self.error = error
        self.notes: list[str] = []

    async def run(self) -> str:
        """Wait, then return or raise."""
        self.notes.append("begun")
        try:
            for gate in self.gates:
                self.notes.append(await gate)
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            raise
        finally:
            self.notes.append("ended")
        if self.error is not None:
            raise self.error
        return "result"


async def test_work_without_a_wait_needs_no_task() -> None:
    work = Work()
    before = asyncio.all_tasks()
    done = begin(work.run())
    assert done.result() == "result"
    assert asyncio.all_tasks() == before
    assert work.notes == ["begun", "ended"]


@pytest.mark.parametrize("waits", [0, 1])
async def test_an_error_is_in_the_future(waits: int) -> None:
    work = Work(waits, ValueError("bad"))
    future = begin(work.run())
    for gate in work.gates:
        gate.set_result("one")
    await asyncio.wait((future,))
    assert isinstance(future.exception(), ValueError)


async def test_work_that_cancels_itself() -> None:
    assert begin(Work(error=asyncio.CancelledError()).run()).cancelled()


@pytest.mark.parametrize("waits", [1, 3])
async def test_a_task_makes_the_other_steps(waits: int) -> None:
    work = Work(waits)
    future = begin(work.run())
    assert work.notes == ["begun"]
    for number, gate in enumerate(work.gates):
        for _ in range(3):
            await asyncio.sleep(0)
        assert not future.done()
        gate.set_result(f"{number}")
    assert await future == "result"
    assert work.notes == ["begun", *map(str, range(waits)), "ended"]


async def test_a_wait_that_is_over_before_the_task_begins() -> None:
    work = Work(1)
    future = begin(work.run())
    work.gates[0].set_result("one")
    assert await future == "result"


async def test_a_wait_that_fails() -> None:
    work = Work(1)
    future = begin(work.run())
    work.gates[0].set_exception(OSError("failed"))
    with pytest.raises(OSError, match="failed"):
        await future
    assert work.notes == ["begun", "ended"]


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_work_is_cancelled_where_it_waits(turns: int) -> None:
    """Also before the task has made a step of its own."""
    work = Work(2)
    future = begin(work.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    assert work.notes == ["begun", "cancelled", "ended"]


async def test_what_cancelled_work_waits_for_is_cancelled() -> None:
    """Also before the task has seen it: a thread's call that has not begun is then not made."""
    for turns in (0, 1):
        work = Work(1)
        future = begin(work.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        future.cancel()
        await asyncio.wait((future,))
        assert work.gates[0].cancelled()


async def test_what_asyncio_offers_to_wait_for() -> None:
    """Locks, timers, threads and turns of the loop, each as the first wait of some work."""
    lock = asyncio.Lock()

    async def locked() -> str:
        async with lock:
            return "lock"

    async def turn() -> str:
        await asyncio.sleep(0)
        return "turn"

    async def timer() -> str:
        await asyncio.sleep(0.001)
        return "timer"

    async def thread() -> str:
        return await asyncio.get_running_loop().run_in_executor(None, lambda: "thread")

    async def several() -> str:
        waiting = [asyncio.ensure_future(turn()), asyncio.ensure_future(timer())]
        done, _ = await asyncio.wait(waiting, timeout=5)
        return f"{len(done)}"

    work: list[Coroutine[Any, Any, str]] = [locked(), turn(), timer(), thread(), several()]
    async with lock:
        futures = [begin(one) for one in work]
        assert not any(future.done() for future in futures)
    assert await asyncio.gather(*futures) == ["lock", "turn", "timer", "thread", "2"]
