"""The HTTP front end of one service: finds the route, calls the handler, turns every error into its
answer.

Owns the way of one request. It stands on the HTTP library's server, not on its application
framework: the route table is ours, so errors of every kind have one shape, and a small request
costs a quarter less.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from aiohttp import web

from api.call import Call
from api.errors import ApiError, as_api_error, error_response
from api.negotiation import negotiate
from api.routes import Route, Router
from api.signature import sign
from logserver.service import LogService
from storage import StorageError

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class App:
    """Answers requests; one call per request, on the service's event loop."""

    def __init__(self, service: LogService) -> None:
        self.service = service
        self._router = Router()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request; an exception that leaves it is a mistake of ours (a 500 in the
        same shape).
        """
        begun = perf_counter()
        route: Route | None = None
        try:
            route, path = self._router.find(request.method, request.rel_url.raw_path)
            accept = request.headers.get("Accept")
            answer_type = negotiate(accept, route.offers) if route.offers else ""
            call = Call(request, self.service, path=path, answer_type=answer_type)
            response = await route.handler(call)
        except ApiError as error:
            response = _refusal(request, error)
        except StorageError as error:
            response = _refusal(request, as_api_error(error))
        if not response.prepared:
            sign(request, response)
        self.service.metrics.requested(
            route=route.pattern if route is not None else "none",
            method=request.method if request.method in _METHODS else "other",
            status=response.status,
            elapsed_s=perf_counter() - begun,
        )
        return response


def _refusal(request: web.BaseRequest, error: ApiError) -> web.Response:
    return error_response(error, accept=request.headers.get("Accept"))
