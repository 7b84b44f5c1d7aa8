"""Which pages of records may be kept by a cache, and when one that was kept still holds.

Owns the entity tag. A page is closed when it begins at an offset that was named and ended because it
was full: what is appended later does not change it. Everything else changes with the log's end and
has no tag. A kept page is always asked for again (no-cache) and its tag comes from its bytes, so that
a topic that was deleted and made again, or records that retention took, are never answered from
before.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web
from crc32c import crc32c

from api.call import Call
from logserver.reading import visible_end
from logserver.requests import Fetch, StartAt
from storage import BatchPage, Page


def is_closed(request: Fetch, page: Page | BatchPage) -> bool:
    """Whether the same request gives the same page for as long as its records are there."""
    at_offset = request.start.at is StartAt.OFFSET
    return at_offset and page.next_offset < visible_end(page.bounds, request.isolation)


def cacheable(call: Call, body: bytes, headers: Mapping[str, str]) -> web.Response:
    """The page with its tag; 304 without it when the client has the same."""
    tag = entity_tag(body)
    kept = {**headers, "ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if _matches(call.request.headers.get("If-None-Match"), tag):
        return web.Response(status=304, headers=kept)
    return call.encoded(body, headers=kept)


def entity_tag(body: bytes) -> str:
    """A strong tag: the length, and a CRC of each half (two in all, at the price of one)."""
    middle = len(body) // 2
    view = memoryview(body)
    return f'"{len(body):x}-{crc32c(view[:middle]):08x}{crc32c(view[middle:]):08x}"'


def _matches(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    named = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return tag in named or named == ["*"]
