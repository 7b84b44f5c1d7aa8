"""The HTTP front end of one service: finds the operation, calls its handler, converts every error to its answer.

Owns the path of one request, with every check that does not depend on the operation; must not know what an operation
does. It uses the HTTP library's server, not its application framework: with its own table all errors have one shape,
and a small request costs a quarter less.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Final, cast
from urllib.parse import unquote

from aiohttp import web

from api.connection.protocol import ApiProtocol
from api.connection.response_headers import REQUEST_ID, sign
from api.http.auth import Guard
from api.http.cors import Cors
from api.http.errors import ApiError, as_api_error, error_response
from api.http.negotiation import HTML, media_type, negotiate, wants_page
from api.http.parameters import QueryReader
from api.openapi import ApiDocs
from api.operation import Operation, Resource
from api.operations.consumers import CONSUMERS
from api.operations.delayed import DELAYED
from api.operations.documentation import documentation
from api.operations.fetch import FETCH
from api.operations.groups import GROUPS
from api.operations.health import HEALTH
from api.operations.messages import MESSAGES
from api.operations.overview import OVERVIEW
from api.operations.produce import PRODUCE
from api.operations.retries import RETRIES
from api.operations.store import STORE
from api.operations.topics import TOPICS
from api.operations.transactions import TRANSACTIONS
from api.operations.v3.groups import V3_GROUPS
from api.operations.v3.produce import V3_PRODUCE
from api.operations.v3.topics import V3_TOPICS
from api.request_context import RequestContext
from logserver.config import Settings
from logserver.service.memory_budget import SMALL_BYTES
from logserver.service.service import LogService
from storage import StorageError

log = logging.getLogger(__name__)
access = logging.getLogger("api.access")

CACHED_PATHS: Final = 1024
CACHED_TYPES: Final = 256
_NO_ROUTE: Final = "none"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

RESOURCES: Final[Sequence[Resource]] = (
    TOPICS,
    PRODUCE,
    FETCH,
    MESSAGES,
    DELAYED,
    CONSUMERS,
    GROUPS,
    RETRIES,
    TRANSACTIONS,
    V3_TOPICS,
    V3_GROUPS,
    V3_PRODUCE,
    OVERVIEW,
    HEALTH,
    STORE,
)


def all_operations(settings: Settings) -> Sequence[Operation]:
    """Return the operations of a server with these settings; the last of them describe all."""
    operations = [operation for resource in RESOURCES for operation in resource.operations]
    operations += documentation(ApiDocs(operations, settings))
    return operations


class App:
    """Answers requests; one call per request, on the service's event loop."""

    def __init__(self, service: LogService) -> None:
        self.service = service
        self.guard = Guard(service.settings)
        self._cors = Cors(service.settings)
        self._logs_access = service.settings.access_log
        self._router = Router(all_operations(service.settings))
        self._queries = QueryReader(service.settings)
        self._media_types = lru_cache(maxsize=CACHED_TYPES)(_media_types)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer to one request. An exception that leaves this method is a bug (a 500 in the same shape)."""
        begun = perf_counter()
        operation: Operation | None = None
        if self._cors.is_on:
            cast("ApiProtocol", request.protocol).cross_origin = self._cors.headers(request)
        try:
            if self._cors.is_on and self._cors.is_preflight(request):
                methods = self._router.methods(request.rel_url.raw_path)
                response: web.StreamResponse = self._cors.preflight(request, methods)
            else:
                operation, path = self._router.find(request.method, request.rel_url.raw_path)
                call = self._checked(request, operation, path)
                try:
                    response = await operation.handler(call)
                    if not response.prepared and (response.content_length or 0) > SMALL_BYTES:
                        await self._deliver(call, response)
                finally:
                    call.release()
        except ApiError as error:
            response = await _refusal(request, operation, error)
        except StorageError as error:
            response = await _refusal(request, operation, as_api_error(error))
        except Exception:  # a bug: counted here, then answered and logged by the connection
            self._count(request, operation, 500, perf_counter() - begun)
            raise
        if not response.prepared:
            sign(request, response)
        elapsed_s = perf_counter() - begun
        self._count(request, operation, response.status, elapsed_s)
        if self._logs_access:
            _log_access(request, response, operation, elapsed_s)
        return response

    def _checked(
        self, request: web.BaseRequest, operation: Operation, path: Mapping[str, str]
    ) -> RequestContext:
        """Return the context of a request whose token, media types and parameters are allowed."""
        headers = request.headers
        accept = headers.get("Accept")
        if self.guard.is_on:
            is_page = wants_page(accept, operation.offers)
            self.guard.check(request, operation.scope, is_page=is_page)
        answer_type, body_type = self._media_types(operation, accept, headers.get("Content-Type"))
        return RequestContext(
            request,
            self.service,
            path=path,
            params=self._queries.params(request.rel_url.raw_query_string, operation.query_names),
            body_type=body_type,
            answer_type=answer_type,
        )

    async def _deliver(self, call: RequestContext, response: web.StreamResponse) -> None:
        """Send a large answer while its bytes are held; the connection sends small answers."""
        assert isinstance(response, web.Response)
        try:
            await call.deliver(response)
        except ConnectionError as error:
            log.debug("an answer was not delivered: %s", error)

    def _count(
        self, request: web.BaseRequest, operation: Operation | None, status: int, elapsed_s: float
    ) -> None:
        self.service.metrics.requested(
            route=_NO_ROUTE if operation is None else operation.pattern,
            method=request.method if request.method in _METHODS else "other",
            status=status,
            elapsed_s=elapsed_s,
        )


class Router:
    """The operations, by method and path.

    A path is matched by its segments, each percent-decoded by itself, so that an encoded slash stays within its
    segment. One trailing slash is accepted. `{name}` stands for one segment.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.find = lru_cache(maxsize=CACHED_PATHS)(self._find)
        self._by_length: dict[int, list[tuple[Sequence[str], Operation]]] = {}
        for operation in operations:
            pattern = _segments(operation.pattern)
            self._by_length.setdefault(len(pattern), []).append((pattern, operation))

    def methods(self, raw_path: str) -> Sequence[str]:
        """Return the methods of a path. Raises 404."""
        segments = _segments(raw_path)
        patterns = self._by_length.get(len(segments), ())
        found = [one.method for pattern, one in patterns if _matches(pattern, segments)]
        if not found:
            raise _nothing_at(raw_path)
        return [*found, "HEAD"] if "GET" in found else found

    def _find(self, method: str, raw_path: str) -> tuple[Operation, Mapping[str, str]]:
        """Return the operation and its path parameters. Raises 404, or 405 with Allow. `find` caches the last paths."""
        segments = _segments(raw_path)
        served_method = "GET" if method == "HEAD" else method
        allowed = []
        for pattern, operation in self._by_length.get(len(segments), ()):
            if _matches(pattern, segments):
                if operation.method == served_method:
                    return operation, _parameters(pattern, segments)
                allowed.append(operation.method)
        if not allowed:
            raise _nothing_at(raw_path)
        raise ApiError(
            405,
            f"{method[:20]} is not possible here: use {', '.join(allowed)}{self._below(segments)}",
            headers={"Allow": ", ".join(allowed)},
        )

    def _below(self, segments: Sequence[str]) -> str:
        """Return the methods of what has a name below a path: `POST /topics` is meant for one topic."""
        methods: dict[str, list[str]] = {}
        for pattern, operation in self._by_length.get(len(segments) + 1, ()):
            if pattern[-1].startswith("{") and _matches(pattern[:-1], segments):
                methods.setdefault(operation.pattern, []).append(operation.method)
        return "".join(f"; {path} has {', '.join(names)}" for path, names in methods.items())


def _media_types(
    operation: Operation, accept: str | None, content_type: str | None
) -> tuple[str, str]:
    """Return the media types of the answer and of a body that the handler reads itself. Raises 406, 415."""
    offers = operation.offers
    answer_type = negotiate(accept, offers) if offers else ""
    if not operation.has_raw_body:
        return answer_type, ""
    return answer_type, media_type(content_type, operation.body_types)


def _nothing_at(raw_path: str) -> ApiError:
    return ApiError(404, f"there is nothing at {raw_path[:200]!r}; see /docs")


def _segments(path: str) -> Sequence[str]:
    """Return the segments of a path; none for "/"."""
    return path.removesuffix("/").split("/")[1:]


async def _refusal(
    request: web.BaseRequest, operation: Operation | None, error: ApiError
) -> web.Response:
    """Return the answer for an error: a page for a browser that asked for a page, else JSON."""
    accept = request.headers.get("Accept")
    offers = () if operation is None else operation.offers
    if wants_page(accept, offers):
        from api.html import error_page  # now, so that a start does not wait for Jinja2

        response = await asyncio.to_thread(error_page, error)
    else:
        response = error_response(error, accept=accept)
    if HTML in offers:
        response.headers["Vary"] = "Accept"
    return response


def _log_access(
    request: web.BaseRequest,
    response: web.StreamResponse,
    operation: Operation | None,
    elapsed_s: float,
) -> None:
    """Log one line for a request, without query, headers or body: these may contain keys, values or a token."""
    access.info(
        "request",
        extra={
            "request_id": response.headers.get(REQUEST_ID),
            "peer": request.remote,
            "method": request.method[:20],
            "path": request.rel_url.raw_path[:500],
            "route": _NO_ROUTE if operation is None else operation.pattern,
            "status": response.status,
            "size_bytes": response.body_length if response.prepared else response.content_length,
            "elapsed_ms": round(elapsed_s * 1000, 3),
        },
    )


def _matches(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    return all(
        want == got or (got != "" and want.startswith("{"))
        for want, got in zip(pattern, segments, strict=True)
    )


def _parameters(pattern: Sequence[str], segments: Sequence[str]) -> Mapping[str, str]:
    try:
        return {
            want[1:-1]: unquote(got, errors="strict")
            for want, got in zip(pattern, segments, strict=True)
            if want.startswith("{")
        }
    except UnicodeDecodeError:
        raise ApiError(400, "the path is not percent-encoded UTF-8") from None
