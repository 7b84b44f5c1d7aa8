"""The overview: an index of links for programs, a page of the store, its health, topics and groups for browsers.

Owns the links and the choice between the two; must not choose what the page shows (`logserver.service.overview`) nor
how it looks (`api.overview_page`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from msgspec import Struct

from api.http.negotiation import HTML
from api.http.parameters import Parameter, Text
from api.operation import TEXT, Answer, Example, Resource, plain
from api.request_context import RequestContext
from logserver import __version__
from logserver.service.overview import look

OVERVIEW: Final = Resource("Operation")

_CURSOR: Final = Parameter(
    "cursor", Text(), "The page begins after this topic: follow its link `next page`."
)
_LINKS: Final[Mapping[str, str]] = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "topics": "/topics",
    "groups": "/groups",
    "clusters": "/v3/clusters",
    "store": "/store",
    "files": "/store/files",
    "metrics": "/metrics",
    "live": "/livez",
    "ready": "/readyz",
}


class Index(Struct):
    """The server, and the paths to begin with."""

    name: str
    version: str
    backend: str
    links: Mapping[str, str]


@OVERVIEW.get(
    "/",
    Answer(
        200,
        "The index, or the page.",
        {**plain(Index), HTML: TEXT},
        {"Vary": "`Accept`: the answer depends on it."},
    ),
    query=(_CURSOR,),
    examples=(
        Example(
            answer={
                "name": "logserver",
                "version": __version__,
                "backend": "kafka",
                "links": dict(_LINKS),
            }
        ),
        Example("page", headers={"Accept": HTML}),
    ),
)
async def overview(call: RequestContext) -> web.Response:
    """The overview.

    An index of links as JSON; for a browser (`Accept: text/html`) a page with the store, its health, the findings of
    this start, 50 topics with their offsets and sizes, and the groups with their lag. While the store is not open, the
    page is a 503 with the progress. With a token file, the page, as /docs, also accepts `Authorization: Basic` with a
    token as the password, over TLS or a loopback address.
    """
    if call.answer_type == HTML:
        return await _page(call)
    index = Index("logserver", __version__, call.service.store.capabilities.backend, _LINKS)
    response = call.json(index)
    response.headers["Vary"] = "Accept"
    return response


async def _page(call: RequestContext) -> web.Response:
    service = call.service
    shown = await look(service, call.params.get(_CURSOR) or "")
    from api.html import page_headers  # now, so that a start does not wait for Jinja2
    from api.overview_page import STYLE, PageFacts, page_of

    facts = PageFacts(
        settings=call.settings,
        store=service.store,
        started_ms=service.started_ms,
        uptime_ms=service.uptime_ms,
    )
    body = await asyncio.to_thread(page_of, shown, facts)
    headers = {**page_headers(STYLE), "Vary": "Accept", "Cache-Control": "no-store"}
    return web.Response(body=body, headers=headers)
