"""Bytes in flight: which requests may wait for them, for how long, and which are woken."""

from __future__ import annotations

import asyncio

import pytest

from logserver.errors import Busy
from logserver.service.memory_budget import SMALL_BYTES, MemoryBudget


async def test_what_fits_is_held_at_once() -> None:
    budget = MemoryBudget(10)
    with await budget.reserve_when_free(10, timeout_s=0):
        assert budget.held_bytes == 10
    assert budget.held_bytes == 0


async def test_what_does_not_fit_waits_for_room() -> None:
    budget = MemoryBudget(10)
    first, second = budget.reserve(6), budget.reserve(4)
    waiting = [asyncio.create_task(budget.reserve_when_free(6, timeout_s=10)) for _ in range(2)]
    await asyncio.sleep(0)
    second.release()
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in waiting)
    first.release()
    held = await asyncio.wait_for(waiting[0], 10)
    assert budget.held_bytes == 6
    held.release()
    (await asyncio.wait_for(waiting[1], 10)).release()
    assert budget.held_bytes == 0


async def test_who_waited_too_long_is_refused() -> None:
    budget = MemoryBudget(10)
    budget.reserve(6)
    with pytest.raises(Busy):
        await budget.reserve_when_free(6, timeout_s=0.01)
    assert budget.held_bytes == 6


async def test_who_no_longer_waits_is_left_alone() -> None:
    budget = MemoryBudget(10)
    first = budget.reserve(10)
    waiting = asyncio.create_task(budget.reserve_when_free(1, timeout_s=10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.release()
    assert budget.held_bytes == 0


def test_an_answer_that_is_alone_passes_however_large() -> None:
    """Otherwise a large answer could never be read. Next to others it is refused; a small answer is not counted."""
    budget = MemoryBudget(1 << 20, "answers")
    with budget.reserve(0) as first, budget.reserve(0) as second:
        second.grow_to(SMALL_BYTES)
        first.grow_to(3 << 20)
        first.grow_to(4 << 20)
        assert (budget.held_bytes, second.size_bytes) == (4 << 20, 0)
        with pytest.raises(Busy, match="bytes of answers"):
            second.grow_to(SMALL_BYTES + 1)
    assert budget.held_bytes == 0
