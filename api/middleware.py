"""The connection's side of the API: errors that happen before a request has a route, and too many
connections.

Owns the HTTP library's protocol object where its own answers (text/plain) would show: malformed
HTTP, a handler that broke, the connection cap. Everything that has become a request goes through
`api.app`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from api.errors import ApiError, error_response
from api.signature import SERVER, sign

log = logging.getLogger(__name__)

_TOO_MANY: Final = (
    b'{"error_code":42901,"message":"too many connections: try again later (max_connections)"}'
)
_UNPARSED_METHOD: Final = "UNKNOWN"  # the HTTP library's stand-in for what it could not parse
_TURNED_AWAY_OPEN_S: Final = 1.0
_TURNED_AWAY: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Server: %b\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b"
    % (SERVER.encode(), len(_TOO_MANY), _TOO_MANY)
)


class ApiServer(web.Server):
    """Makes one protocol object per connection."""

    def __init__(self, handler: Any, *, max_connections: int, **options: Any) -> None:
        super().__init__(handler, request_factory=_request, **options)
        self.max_connections = max_connections
        self._options = options

    def __call__(self) -> web.RequestHandler:
        """Called by the event loop for each new connection."""
        return ApiProtocol(self, loop=asyncio.get_running_loop(), **self._options)


class ApiProtocol(web.RequestHandler):
    """One connection."""

    __slots__ = ("_abandonable", "_api_server")

    def __init__(self, server: ApiServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._api_server = server
        self._abandonable: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or turn it away in the shape of every other error."""
        if len(self._api_server.connections) >= self._api_server.max_connections:
            self._turn_away(cast("asyncio.Transport", transport))
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client went away: what only it waits for ends."""
        super().connection_lost(exc)
        if self._abandonable is not None:
            self._abandonable.cancel()

    @contextmanager
    def while_connected(self) -> Iterator[None]:
        """Cancel what runs inside once the client has gone away. Only for what changes nothing."""
        task = asyncio.current_task()
        if task is not None and self.transport is None:
            task.cancel()
        self._abandonable = task
        try:
            yield
        finally:
            self._abandonable = None

    def _turn_away(self, transport: asyncio.Transport) -> None:
        """Answer at once, and drop what the client sends for a while: closing on it would reset the
        answer.
        """
        self.force_close()
        transport.write(_TURNED_AWAY)
        transport.write_eof()
        asyncio.get_running_loop().call_later(_TURNED_AWAY_OPEN_S, transport.close)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Malformed HTTP (400), or a mistake of ours (500): for the log, not for the client."""
        if status >= 500:
            log.error("request %s %s broke", request.method, request.path, exc_info=exc)
            told = "the server made a mistake: see its log"
        else:
            log.debug("malformed request from %s: %s", request.remote, message)
            told = f"malformed HTTP request: {_first_line(message)}"
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        response = error_response(ApiError(status, told), accept=request.headers.get("Accept"))
        response.force_close()
        sign(request, response)
        return response


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """The request of a message; what was too malformed to be one is answered as HTTP/1.1 too."""
    if message.method == _UNPARSED_METHOD:
        message = message._replace(version=HttpVersion11)
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())


def _first_line(message: str | None) -> str:
    lines = (message or "").splitlines()
    return lines[0].rstrip(":") if lines else "it cannot be parsed"
