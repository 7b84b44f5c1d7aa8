"""Documentation: the API of this server, for programs and for readers. Owns the headers of these answers only."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from api.http.errors import JSON
from api.http.negotiation import HTML
from api.openapi import ApiDocs
from api.operation import TEXT, Answer, Example, Operation, Resource
from api.request_context import RequestContext


def documentation(api_docs: ApiDocs) -> Sequence[Operation]:
    """Return the operations that serve `api_docs`."""
    resource = Resource("Documentation")

    @resource.get(
        "/openapi.json",
        Answer(200, "The document.", {JSON: dict[str, object]}),
        examples=(Example(),),
        needs_store=False,
    )
    async def openapi(call: RequestContext) -> web.Response:
        """This API as an OpenAPI 3.1 document."""
        return call.encoded(api_docs.openapi)

    @resource.get(
        "/docs",
        Answer(200, "The page.", {HTML: TEXT}),
        examples=(Example(),),
        needs_store=False,
    )
    async def docs(call: RequestContext) -> web.Response:
        """This API as a page to read."""
        from api.docs_page import STYLE, page_of  # now, so that a start does not wait for Jinja2
        from api.html import page_headers

        return web.Response(body=page_of(api_docs), headers=page_headers(STYLE))

    return resource.operations
