"""Waits for new records: which waiters are woken, and that no publish in between is missed."""

from __future__ import annotations

import asyncio

import pytest

from logserver.errors import Busy
from logserver.service.fetch import Waiters
from storage import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_a_publish_wakes_all_who_wait_there_and_nobody_else() -> None:
    waiters = Waiters(limit=10)
    here = [asyncio.create_task(waiters.changed({T0: waiters.ticket(T0)}, 30)) for _ in range(3)]
    there = asyncio.create_task(waiters.changed({T1: waiters.ticket(T1)}, 0.05))
    await asyncio.sleep(0)
    assert waiters.count == 4
    waiters.notify(T0)
    assert await asyncio.gather(*here) == [True, True, True]
    assert await there is False
    assert waiters.count == 0


async def test_a_publish_between_ticket_and_wait_is_not_missed() -> None:
    waiters = Waiters(limit=10)
    ticket = waiters.ticket(T0)
    waiters.notify(T0)
    assert await waiters.changed({T0: ticket}, 30) is True


@pytest.mark.parametrize("published", [0, 1])
async def test_a_partition_that_goes_away_wakes_too(published: int) -> None:
    """Waiters and readers that do not wait yet are woken; a new partition of the same name counts as new."""
    waiters = Waiters(limit=10)
    for _ in range(published):
        waiters.notify(T0)
    ticket = waiters.ticket(T0)
    waiting = asyncio.create_task(waiters.changed({T0: ticket}, 30))
    await asyncio.sleep(0)
    waiters.forget(T0)
    assert await waiting is True
    assert await waiters.changed({T0: ticket}, 30) is True
    again = waiters.ticket(T0)
    assert await waiters.changed({T0: again}, 0.001) is False
    waiters.notify(T0)
    assert await waiters.changed({T0: again}, 30) is True


async def test_time_runs_out() -> None:
    waiters = Waiters(limit=10)
    assert await waiters.changed({T0: waiters.ticket(T0)}, 0.001) is False
    assert waiters.count == 0


async def test_a_waiter_that_goes_away_disturbs_nobody() -> None:
    waiters = Waiters(limit=10)
    gone = asyncio.create_task(waiters.changed({T0: 0}, 30))
    stays = asyncio.create_task(waiters.changed({T0: 0}, 30))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert waiters.count == 1
    waiters.notify(T0)
    assert await stays is True


async def test_closing_sends_everybody_home() -> None:
    waiters = Waiters(limit=10)
    waiting = asyncio.create_task(waiters.changed({T0: 0}, 30))
    await asyncio.sleep(0)
    waiters.close()
    assert await waiting is False
    assert await waiters.changed({T0: 0}, 30) is False


async def test_one_too_many_is_refused() -> None:
    waiters = Waiters(limit=1)
    waiting = asyncio.create_task(waiters.changed({T0: 0}, 30))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match=r"1 fetches wait .* the limit is 1 .*max_waiting_fetches"):
        await waiters.changed({T1: 0}, 30)
    waiters.notify(T0)
    assert await waiting is True
    assert await waiters.changed({T1: 0}, 0.001) is False
