"""Following a partition: page after page, one fetch after the other, until the request is fulfilled.

Owns where a stream of records ends, and that its reader gets a page at least every `beat_ms`; must not know how pages
are fetched or sent. At most one page is held: the next page is fetched when the reader asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeAlias

from msgspec import structs

from logserver.service.fetch import visible_end
from logserver.service.requests import Fetch, Follow, Start, StartAt
from storage import Page

# Small pages: other requests run in between, and a slow reader holds no more memory than one page.
PAGE_RECORDS: Final = 500
PAGE_BYTES: Final = 256 << 10

Fetcher: TypeAlias = Callable[[Fetch], Awaitable[Page]]


async def follow_pages(
    fetch: Fetcher, request: Follow, *, beat_ms: int, page_records: int = PAGE_RECORDS
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a follow request, each with the current offset bounds.

    The first page is yielded at once. If no record arrives for `beat_ms`, a page without records is yielded. Raises
    what `fetch` raises.
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
    """Return the page without records at or after offset `stop`, and with at most `left` records."""
    records, next_offset = page.records, page.next_offset
    if stop is not None and next_offset > stop:
        records = [record for record in records if record.offset < stop]
        next_offset = stop
    if left is not None and len(records) > left:
        next_offset = records[left].offset
        records = records[:left]
    return page._replace(records=records, next_offset=next_offset)
