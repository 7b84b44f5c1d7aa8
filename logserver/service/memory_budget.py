"""The budget of bytes in flight: how many bytes all requests together may hold in memory.

Owns the count; must not know what the bytes mean. Use it on the event loop only.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from logserver.errors import Busy

SMALL_BYTES: Final = 64 << 10
"""Largest answer, in bytes, that fits whole into the buffer of a connection: for 1,000 connections this is 64 MiB.
Small answers are not counted, so clients that read nothing cannot block the small answers of other clients.
"""


class MemoryBudget:
    """The bytes of requests in flight, or of answers (`what`).

    The bytes of a request are held from the first byte of its body until its records are written. The bytes of an
    answer are held from the read of its records until the client has received them.
    """

    def __init__(self, limit_bytes: int, what: str = "requests") -> None:
        self.limit_bytes = limit_bytes
        self.what = what
        self.held_bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_wanted(self) -> bool:
        """True if a task waits for free bytes."""
        return any(not waiting.done() for waiting in self._waiting)

    def reserve(self, size_bytes: int) -> Reservation:
        """Reserve bytes for one request. Raises Busy if the limit would be exceeded."""
        reservation = Reservation(self)
        reservation.grow(size_bytes)
        return reservation

    async def reserve_when_free(self, size_bytes: int, *, timeout_s: float) -> Reservation:
        """Wait until the bytes fit within the limit, then reserve them. Raises Busy after `timeout_s`.

        For callers that can let their client wait.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while self.held_bytes + size_bytes > self.limit_bytes and loop.time() < deadline_s:
            waiting = loop.create_future()
            self._waiting.append(waiting)
            try:
                await asyncio.wait((waiting,), timeout=deadline_s - loop.time())
            finally:
                waiting.cancel()  # no effect after a release
        return self.reserve(size_bytes)

    def release(self, size_bytes: int) -> None:
        """Release bytes, and wake the tasks that wait for free bytes."""
        self.held_bytes -= size_bytes
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


class Reservation:
    """The share of a Budget that belongs to one request.

    It is released at the end of the `with` block, or when the future passed to `release_when` is done.
    """

    __slots__ = ("_budget", "size_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.size_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Reserve `size_bytes` more. Raises Busy if the limit would be exceeded."""
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

    def grow_to(self, size_bytes: int) -> None:
        """Raise the reservation to at least `size_bytes`; an answer of SMALL_BYTES or less holds nothing.

        Raises Busy if the limit would be exceeded. The limit does not apply to the only reservation of the budget:
        otherwise a record larger than the limit could never be read.
        """
        if size_bytes <= max(self.size_bytes, SMALL_BYTES):
            return
        if self._budget.held_bytes > self.size_bytes:
            self.grow(size_bytes - self.size_bytes)
            return
        self._budget.held_bytes = self.size_bytes = size_bytes

    def release_when(self, future: asyncio.Future[Any]) -> None:
        """Release the bytes when `future` is done: the request is answered before its records are written."""
        size_bytes, self.size_bytes = self.size_bytes, 0
        future.add_done_callback(lambda _: self._budget.release(size_bytes))

    def release(self) -> None:
        """Release all bytes of this reservation."""
        if self.size_bytes:
            self._budget.release(self.size_bytes)
            self.size_bytes = 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.size_bytes:
            self.release()
