"""Timers of groups on the event loop: one for each group, for its next deadline.

Owns the timers; must not know what a deadline means. A group's machine has no clock: it is called with the time of
`now_ms`, and names its next deadline. A deadline may move to a later time without a call here: heartbeats do this all
the time, and most timers never have to act. A timer that fires too early is armed again by its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

TICK_MS: Final = 1  # a timer of the loop may fire a moment early


def now_ms() -> int:
    """Return the loop's time, which only rises."""
    return int(asyncio.get_running_loop().time() * 1000)


class _Timer(NamedTuple):
    """A call that the loop will make. uvloop's handle does not know its time if that is over already."""

    at_s: float
    handle: asyncio.Handle


class Timers:
    """One timer for each name. `expire` is called with the name when its time has come. Use it on the event loop."""

    def __init__(self, expire: Callable[[str], None]) -> None:
        self._expire = expire
        self._timers: dict[str, _Timer] = {}

    def arm(self, name: str, deadline_ms: int | None) -> None:
        """Call `expire` at this time of `now_ms`, unless an earlier call is due. None: nothing is due."""
        if deadline_ms is None:
            return
        timer = self._timers.get(name)
        at_s = (deadline_ms + TICK_MS) / 1000
        if timer is not None:
            if timer.at_s <= at_s:
                return
            timer.handle.cancel()
        handle = asyncio.get_running_loop().call_at(at_s, self._fire, name)
        self._timers[name] = _Timer(at_s, handle)

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self._expire(name)

    def cancel(self, name: str) -> None:
        """Cancel the timer of a name, if any."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.handle.cancel()

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()
