"""Following a partition: page after page from one fetch to the next, until it is enough.

Owns where a stream of records ends, and that its reader is called at least every `beat_ms`; must
not know how pages are fetched or sent. At most one page is held: the next is fetched when its
reader asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeAlias

from msgspec import structs

from logserver.reading import visible_end
from logserver.requests import Fetch, Follow, Start, StartAt
from storage import Page

# Small pages: other requests come in between, and a reader that stops holds up no more than this.
PAGE_RECORDS: Final = 500
PAGE_BYTES: Final = 256 << 10

Fetcher: TypeAlias = Callable[[Fetch], Awaitable[Page]]


async def follow_pages(
    fetch: Fetcher, request: Follow, *, beat_ms: int, page_records: int = PAGE_RECORDS
) -> AsyncGenerator[Page, None]:
    """The pages of a follow, each with the bounds of its moment. The first comes at once; where
    nothing comes for `beat_ms` there is a page without records. Raises what `fetch` raises.
    """
    now = asyncio.get_running_loop().time
    ask = Fetch(
        partition=request.partition,
        start=request.start,
        max_records=page_records,
        max_bytes=PAGE_BYTES,
        isolation=request.isolation,
        tag=request.tag,
        until=request.until,
    )
    stop: int | None = None
    left = request.max_records
    quiet_since_s = now()
    while True:
        page = await fetch(ask)
        is_live = request.live and (request.until is None or not request.until.done())
        if stop is None and not is_live:
            stop = visible_end(page.bounds, request.isolation)
        page = _cut(page, stop=stop, left=left)
        if page.records:
            quiet_since_s = now()
        yield page
        if left is not None:
            left -= len(page.records)
        wait_ms = beat_ms
        if request.idle_ms is not None:
            wait_ms = min(beat_ms, request.idle_ms - round((now() - quiet_since_s) * 1000))
        if left == 0 or wait_ms <= 0 or (stop is not None and page.next_offset >= stop):
            return
        begin = Start(StartAt.OFFSET, page.next_offset)
        ask = structs.replace(ask, start=begin, timeout_ms=wait_ms if request.live else 0)


def _cut(page: Page, *, stop: int | None, left: int | None) -> Page:
    """The page without what lies at `stop` or behind, and with `left` records at most."""
    records, next_offset = page.records, page.next_offset
    if stop is not None and next_offset > stop:
        records = [record for record in records if record.offset < stop]
        next_offset = stop
    if left is not None and len(records) > left:
        next_offset = records[left].offset
        records = records[:left]
    return page._replace(records=records, next_offset=next_offset)
