"""The API documentation of this server, for programs and for readers. Owns the headers of these answers only."""

from __future__ import annotations

from aiohttp import web

from api.docs_page import POLICY
from api.request_context import RequestContext


async def openapi(call: RequestContext) -> web.Response:
    """Handle GET /openapi.json."""
    call.params()
    return call.encoded(call.book.openapi)


async def docs(call: RequestContext) -> web.Response:
    """Handle GET /docs."""
    call.params()
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(body=call.book.page, headers=headers)
