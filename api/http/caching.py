"""Caching of pages: which pages a cache may keep, and when a kept page is still valid.

Owns the entity tag; must not know how a page is read. A page is closed if it begins at an explicit offset and ended
because it was full: later appends do not change it. All other pages change with the log end and have no tag. A cache
always revalidates a kept page (no-cache), and the tag is computed from its bytes. So a cache never returns old
records of a topic that was deleted and created again, or records that retention deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web
from crc32c import crc32c

from api.request_context import RequestContext
from logserver.service.fetch import visible_end
from logserver.service.requests import Fetch, StartAt
from storage import Batches, Page


def is_closed(request: Fetch, page: Page | Batches) -> bool:
    """Return whether the same request returns the same page as long as its records exist."""
    at_offset = request.start.at is StartAt.OFFSET
    return at_offset and page.next_offset < visible_end(page.bounds, request.isolation)


def cacheable(
    call: RequestContext, body: bytes | bytearray, headers: Mapping[str, str]
) -> web.Response:
    """Return the page with its tag; 304 without the page if the client has the same tag."""
    tag = entity_tag(body)
    tagged = {**headers, "ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if _matches(call.request.headers.get("If-None-Match"), tag):
        return web.Response(status=304, headers=tagged)
    return call.encoded(body, headers=tagged)


def entity_tag(body: bytes | bytearray) -> str:
    """Return a strong tag: the length, and a CRC of each half (two CRCs for the cost of one)."""
    middle = len(body) // 2
    view = memoryview(body)
    return f'"{len(body):x}-{crc32c(view[:middle]):08x}{crc32c(view[middle:]):08x}"'


def _matches(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    named = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return tag in named or named == ["*"]
