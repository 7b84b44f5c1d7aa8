"""The private parts of the HTTP library that this server needs, under names of its own.

Owns every use of a private name of aiohttp (PRIVATE_NAMES); must not contain a rule of a connection. The upper bound of
the dependency names the last version for which these names were checked: read them again before it is raised.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

PRIVATE_NAMES: Final = frozenset(
    {"_close", "_current_request", "_drain_helper", "_force_close", "_messages", "_task_handler"}
)
"""Attributes of `web.RequestHandler`."""


class OpenHandler(web.RequestHandler):
    """The library's protocol of one connection, with access to its state."""

    __slots__ = ()

    @property
    def is_ending(self) -> bool:
        """True if the connection ends now or after its current request."""
        return self._force_close or self._close

    @property
    def ending(self) -> tuple[bool, bool]:
        """Whether the connection ends at once, and whether it ends after its current request."""
        return self._force_close, self._close

    @ending.setter
    def ending(self, ends: tuple[bool, bool]) -> None:
        self._force_close, self._close = ends

    @property
    def waiting_requests(self) -> int:
        """The number of requests that were received and have no handler yet."""
        return len(self._messages)

    @property
    def last_waiting(self) -> tuple[RawRequestMessage, StreamReader] | None:
        """The last request that was received and has no handler yet, with its body; None without one that could be
        parsed.
        """
        if not self._messages:
            return None
        message, body = self._messages[-1]
        return (message, body) if isinstance(message, RawRequestMessage) else None

    @property
    def unanswered_bodies(self) -> list[StreamReader]:
        """The bodies of the requests that are not answered yet."""
        bodies = [body for _, body in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.content)
        return bodies

    @property
    def serving(self) -> asyncio.Task[Any] | None:
        """The task that serves the connection."""
        return self._task_handler

    def set_current(self, request: web.BaseRequest) -> None:
        """Mark a request as the current one, before the library's own task for it begins."""
        self._current_request = request

    async def drain(self) -> None:
        """Wait while writing is paused."""
        await self._drain_helper()
