"""Waiting for a partition to move on: the loop of a long poll.

Owns when a look at the partition is enough, and where the next one begins; must not touch the store: looking is the
caller's. Lives on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from logserver.reading import Look, SomePage
from logserver.requests import Fetch, Start, StartAt
from logserver.waiters import Waiters


async def poll(
    request: Fetch, look: Callable[[Fetch], Awaitable[Look[SomePage]]], waiters: Waiters
) -> SomePage:
    """Look; while that is not enough and there is time, wait for a publish and look again. Raises what `look` raises,
    and Busy where too many wait. May be cancelled.
    """
    now = asyncio.get_running_loop().time
    deadline_s = now() + request.timeout_ms / 1000
    while True:
        ticket = waiters.ticket(request.partition)
        found = await look(request)
        if found.more or found.size_bytes >= max(request.min_bytes, 1):
            return found.page
        left_s = deadline_s - now()
        if left_s <= 0 or (request.until is not None and request.until.done()):
            return found.page
        if not await waiters.changed(request.partition, ticket, left_s, or_done=request.until):
            return found.page
        begin = found.begin if found.size_bytes else found.page.next_offset
        request = structs.replace(request, start=Start(StartAt.OFFSET, begin))
