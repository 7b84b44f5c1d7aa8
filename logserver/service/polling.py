"""The loop of a long poll: wait until a partition has new records.

Owns when a page is enough, and where the next read begins; must not touch the store: the caller reads. Use it on the
event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from logserver.service.fetch import ReadResult, SomePage
from logserver.service.requests import Fetch, Start, StartAt
from logserver.service.waiters import Waiters


async def poll(
    request: Fetch, look: Callable[[Fetch], Awaitable[ReadResult[SomePage]]], waiters: Waiters
) -> SomePage:
    """Read; until `min_bytes` are available or the timeout expires, wait for new records and read again.

    Raises what `look` raises, and Busy if too many requests wait. May be cancelled.
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
