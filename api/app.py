"""The HTTP front end of one service: finds the route, calls the handler, converts every error to its answer.

Owns the path of one request; must not know the meaning of a call. It uses the HTTP library's server, not its
application framework. With its own route table all errors have one shape, and a small request costs a quarter less.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

from aiohttp import web

from api.book import Book
from api.connection.response_headers import REQUEST_ID, sign
from api.http.errors import ApiError, as_api_error, error_response
from api.http.negotiation import negotiate
from api.http.security import Guard
from api.request_context import RequestContext
from api.route import Route
from api.routes import ROUTES, Router
from logserver.service.memory_budget import SMALL_BYTES
from logserver.service.service import LogService
from storage import StorageError

log = logging.getLogger(__name__)
access = logging.getLogger("api.access")


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class App:
    """Answers requests; one call per request, on the service's event loop."""

    def __init__(self, service: LogService) -> None:
        self.service = service
        self.guard = Guard(service.settings)
        self._logs_access = service.settings.access_log
        self._router = Router()
        self._book = Book(ROUTES, service.settings)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer to one request. An exception that leaves this method is a bug (a 500 in the same shape)."""
        begun = perf_counter()
        route: Route | None = None
        try:
            route, path = self._router.find(request.method, request.rel_url.raw_path)
            accept = request.headers.get("Accept")
            doc = route.doc
            self.guard.check(request, doc.scope)
            answer_type = negotiate(accept, doc.offers) if doc.offers else ""
            call = RequestContext(
                request,
                self.service,
                doc=doc,
                book=self._book,
                path=path,
                answer_type=answer_type,
            )
            with call.reservation:
                response = await route.handler(call)
                if not response.prepared and (response.content_length or 0) > SMALL_BYTES:
                    await self._deliver(call, response)
        except ApiError as error:
            response = _refusal(request, error)
        except StorageError as error:
            response = _refusal(request, as_api_error(error))
        except Exception:  # a bug: counted here, then answered and logged by the connection
            self._count(request, route, 500, perf_counter() - begun)
            raise
        if not response.prepared:
            sign(request, response)
        elapsed_s = perf_counter() - begun
        self._count(request, route, response.status, elapsed_s)
        if self._logs_access:
            _log_access(request, response, _pattern(route), elapsed_s)
        return response

    async def _deliver(self, call: RequestContext, response: web.StreamResponse) -> None:
        """Send a large answer while its bytes are held; the connection sends small answers."""
        assert isinstance(response, web.Response)
        try:
            await call.deliver(response)
        except ConnectionError as error:
            log.debug("an answer was not delivered: %s", error)

    def _count(
        self, request: web.BaseRequest, route: Route | None, status: int, elapsed_s: float
    ) -> None:
        self.service.metrics.requested(
            route=_pattern(route),
            method=request.method if request.method in _METHODS else "other",
            status=status,
            elapsed_s=elapsed_s,
        )


def _pattern(route: Route | None) -> str:
    return route.pattern if route is not None else "none"


def _refusal(request: web.BaseRequest, error: ApiError) -> web.Response:
    return error_response(error, accept=request.headers.get("Accept"))


def _log_access(
    request: web.BaseRequest, response: web.StreamResponse, pattern: str, elapsed_s: float
) -> None:
    """Log one line for a request, without query, headers or body: these may contain keys, values or a token."""
    access.info(
        "request",
        extra={
            "request_id": response.headers.get(REQUEST_ID),
            "peer": request.remote,
            "method": request.method[:20],
            "path": request.rel_url.raw_path[:500],
            "route": pattern,
            "status": response.status,
            "size_bytes": response.body_length if response.prepared else response.content_length,
            "elapsed_ms": round(elapsed_s * 1000, 3),
        },
    )
