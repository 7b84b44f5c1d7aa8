"""Cross-origin requests: which pages of other origins may read answers, and what a browser may send for them.

Owns the CORS headers; must not know operations. Off without the setting `cors_origins`. A browser asks first (a
preflight, which carries no token); then it sends the request with the page's own `Authorization` header. Cookies do not
exist here. Credentials that the browser adds by itself, which are TLS client certificates and a stored password, are
allowed only with `cors_credentials`, and only for origins that are listed by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import web

from api.connection.response_headers import REQUEST_ID, WARNINGS
from api.http.errors import ApiError
from logserver.config import Settings

ANY_ORIGIN: Final = "*"
MAX_AGE_S: Final = 600
"""How long a browser may keep the answer to a preflight: the highest value that all browsers accept."""

EXPOSED: Final = (
    "Allow",
    "ETag",
    "Retry-After",
    "WWW-Authenticate",
    "X-Beginning-Offset",
    "X-End-Offset",
    "X-Next-Offset",
    REQUEST_ID,
    WARNINGS,
)
"""The headers of an answer that a page may read, in addition to the ones that every page may read."""

REQUEST_HEADERS: Final = (
    "Accept",
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
    "X-Key",
    "X-Key-Base64",
    REQUEST_ID,
    "X-Tag",
)
"""The headers that a page may send. `X-Header-NAME` is allowed too, with each NAME."""

_RECORD_HEADER: Final = "x-header-"
_PREFLIGHT_VARY: Final = "Access-Control-Request-Method, Access-Control-Request-Headers"


class Cors:
    """The rules for pages of other origins."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins)
        self._any = ANY_ORIGIN in self._origins
        self._credentials = settings.cors_credentials
        self.is_on = bool(self._origins)
        """True if pages of other origins may read answers."""
        self._vary: Mapping[str, str] = {} if self._any else {"Vary": "Origin"}

    def headers(self, request: web.BaseRequest) -> Mapping[str, str]:
        """Return the headers of the answer to this request, whatever the answer will be."""
        origin = request.headers.get("Origin")
        if origin is None or not self._allows(origin):
            return self._vary
        allowed = {
            **self._vary,
            "Access-Control-Allow-Origin": ANY_ORIGIN if self._any else origin,
            "Access-Control-Expose-Headers": ", ".join(EXPOSED),
        }
        if self._credentials:
            allowed["Access-Control-Allow-Credentials"] = "true"
        return allowed

    def is_preflight(self, request: web.BaseRequest) -> bool:
        """Return whether a browser asks if a page may send a request."""
        asks = request.method == "OPTIONS" and "Origin" in request.headers
        return self.is_on and asks and "Access-Control-Request-Method" in request.headers

    def preflight(self, request: web.BaseRequest, methods: Sequence[str]) -> web.Response:
        """Return the answer to a preflight for a path with these methods. Raises 403 for an origin that is not listed.

        The browser compares method and headers with the answer: a request that is not allowed is never sent.
        """
        origin = request.headers["Origin"]
        if not self._allows(origin):
            raise ApiError(403, f"origin {origin[:80]!r} is not one of the setting cors_origins")
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        answer = {
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": ", ".join(_allowed_headers(wanted)),
            "Access-Control-Max-Age": str(MAX_AGE_S),
            "Vary": _PREFLIGHT_VARY,
        }
        return web.Response(status=204, headers=answer)

    def _allows(self, origin: str) -> bool:
        return self._any or origin.lower() in self._origins


def _allowed_headers(wanted: str) -> list[str]:
    """Return all headers that may be sent: the fixed ones, and the wanted ones that are headers of a record."""
    names = [name.strip().lower() for name in wanted.split(",")]
    return [*REQUEST_HEADERS, *(name for name in names if _is_record_header(name))]


def _is_record_header(name: str) -> bool:
    return name.startswith(_RECORD_HEADER) and name.replace("-", "").replace("_", "").isalnum()
