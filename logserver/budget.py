"""The budget of bytes in flight: how much of all requests together is held in memory.

Owns the count; must not know what the bytes are. Lives on the event loop.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from logserver.errors import Busy

SMALL_BYTES: Final = 64 << 10
"""An answer that a connection's buffer takes whole: those of 1,000 connections are 64 MiB. They are not counted, so
that clients which read nothing keep no others from small answers."""


class Budget:
    """The bytes of requests in flight: held from the first byte of a body until its records are
    written. Or (`what`) of answers: from the read of their records until the client has taken them.
    """

    def __init__(self, limit_bytes: int, what: str = "requests") -> None:
        self.limit_bytes = limit_bytes
        self.what = what
        self.held_bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    def hold(self, size_bytes: int) -> Hold:
        """Hold bytes for one request. Raises Busy where the limit would be passed."""
        hold = Hold(self)
        hold.grow(size_bytes)
        return hold

    async def hold_when_free(self, size_bytes: int, *, timeout_s: float) -> Hold:
        """Hold bytes once they are within the limit: for who can make its client wait. Raises Busy
        after `timeout_s`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while self.held_bytes + size_bytes > self.limit_bytes and loop.time() < deadline_s:
            waiting = loop.create_future()
            self._waiting.append(waiting)
            await asyncio.wait((waiting,), timeout=deadline_s - loop.time())
        return self.hold(size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Hold that much less, and let those go on who wait for it."""
        self.held_bytes -= size_bytes
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


class Hold:
    """One request's share of a Budget; given back at the end of the `with` block, or of the future
    in `keep_for`.
    """

    __slots__ = ("_budget", "size_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Hold that much more. Raises Busy where the limit would be passed."""
        budget = self._budget
        if budget.held_bytes + size_bytes > budget.limit_bytes:
            raise Busy(
                f"{budget.held_bytes} bytes of {budget.what} are in flight, the limit is "
                f"{budget.limit_bytes}: try again later",
                in_flight_bytes=budget.held_bytes,
                limit_bytes=budget.limit_bytes,
            )
        budget.held_bytes += size_bytes
        self.size_bytes += size_bytes

    def reach(self, size_bytes: int) -> None:
        """Hold at least that much, but nothing for a small answer. Raises Busy where the limit would be passed, but for
        one that is alone: else a record that is larger than the limit could never be read.
        """
        if size_bytes <= max(self.size_bytes, SMALL_BYTES):
            return
        if self._budget.held_bytes > self.size_bytes:
            self.grow(size_bytes - self.size_bytes)
            return
        self._budget.held_bytes = self.size_bytes = size_bytes

    def keep_for(self, future: asyncio.Future[Any]) -> None:
        """The request is answered before it is written: give back when `future` is done."""
        size_bytes, self.size_bytes = self.size_bytes, 0
        future.add_done_callback(lambda _: self._budget.give_back(size_bytes))

    def release(self) -> None:
        """Give all of it back."""
        self._budget.give_back(self.size_bytes)
        self.size_bytes = 0

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()
