"""Timers of groups, on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from logserver.groups.timers import Timers, now_ms

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """A maker of event loops."""
    made: Callable[[], asyncio.AbstractEventLoop] = LOOPS[request.param]
    return made


def test_the_earliest_deadline_counts(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A deadline may be over when it is named: a busy server is late. It too is moved, kept and cancelled."""

    async def run() -> list[str]:
        expired: list[str] = []
        timers = Timers(expired.append)
        now = now_ms()
        for name in ("over", "cancelled"):
            timers.arm(name, now - 100)
            timers.arm(name, now - 200)
            timers.arm(name, now + 60_000)
        timers.arm("later", now + 60_000)
        timers.arm("never", None)
        timers.cancel("cancelled")
        timers.cancel("unknown")
        await asyncio.sleep(0.01)
        timers.arm("over", now - 100)
        await asyncio.sleep(0.01)
        timers.stop()
        return expired

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(run()) == ["over", "over"]
