"""The connection's side of the API: errors that happen before a request has a route, and too many
connections.

Owns the HTTP library's protocol object where its own answers (text/plain) would show: malformed
HTTP, a handler that broke, the connection cap. Everything that has become a request goes through
`api.app`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from api.errors import ApiError, error_response
from api.handshake import Handshake, Handshakes
from api.signature import REQUEST_ID, SERVER, sign

log = logging.getLogger(__name__)

_TOO_MANY: Final = (
    b'{"error_code":42901,"message":"too many connections: try again later (max_connections)"}'
)
_UPGRADES: Final = (b"pgrade:", b"PGRADE:")  # however the header is written
_HEAD_END: Final = b"\r\n\r\n"
_UNPARSED_METHOD: Final = "UNKNOWN"  # the HTTP library's stand-in for what it could not parse
_TURNED_AWAY_OPEN_S: Final = 1.0
_TURNED_AWAY_AT_ONCE: Final = 8  # they take descriptors that nobody has set aside for a crowd
_TURNED_AWAY: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Server: %b\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b"
    % (SERVER.encode(), len(_TOO_MANY), _TOO_MANY)
)


class ApiServer(web.Server):
    """Makes one protocol object per connection, with `tls` behind its handshake."""

    def __init__(
        self,
        handler: Any,
        *,
        max_connections: int,
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
        **options: Any,
    ) -> None:
        super().__init__(handler, request_factory=_request, **options)
        self.max_connections = max_connections
        self.turned_away = 0  # those that are still open
        self.stopping = False
        self._options = options
        self._handshakes: Handshakes | None = None
        if tls is not None:
            self._handshakes = Handshakes(
                tls,
                timeout_s=handshake_timeout_s,
                make=self._protocol,
                has_room=lambda: self.open_connections < max_connections,
            )

    @property
    def open_connections(self) -> int:
        """How many connections there are, with those that are still in the handshake."""
        return len(self.connections) + (0 if self._handshakes is None else len(self._handshakes))

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]  # the event loop's protocol
        """Called by the event loop for each new connection."""
        return self._protocol() if self._handshakes is None else Handshake(self._handshakes)

    def _protocol(self) -> ApiProtocol:
        return ApiProtocol(self, loop=asyncio.get_running_loop(), **self._options)

    def pre_shutdown(self) -> None:
        """Let every connection end with the request it is at, and those that still come at once."""
        self.stopping = True
        super().pre_shutdown()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the library's
        """End all connections."""
        if self._handshakes is not None:
            await self._handshakes.stop()
        await super().shutdown(timeout)


class ApiProtocol(web.RequestHandler):
    """One connection."""

    __slots__ = ("_abandonable", "_api_server", "body", "drained", "half_closed")

    def __init__(self, server: ApiServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._api_server = server
        self._abandonable: asyncio.Task[Any] | None = None
        self.drained = 0
        """How often writing was paused and went on."""
        self.body: StreamReader = EMPTY_PAYLOAD
        """Of the latest request: what it sends behind an early answer is read too."""
        self.half_closed = asyncio.get_running_loop().create_future()
        """Done once the client sends no more, though it may still listen: it is not to wait for anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or turn it away in the shape of every other error."""
        if len(self._api_server.connections) >= self._api_server.max_connections:
            self._turn_away(cast("asyncio.Transport", transport))
            return
        super().connection_made(transport)

    async def start(self) -> None:
        """Serve the connection. One that came as the listener closed ends here: it was told to close before this task
        began, or nobody will tell it, and the library would wait for its first request until the grace is over.
        """
        if self._api_server.stopping:
            self.close()
            if not self._messages:
                self.force_close()
                return
        await super().start()

    def begin(self, request: web.BaseRequest) -> None:
        """This one is served from now on. The library notes it in a task of the request's own, which before Python 3.12
        begins after whatever the client did next: it would seem to have shut down its side with nothing asked for.
        """
        self.body = request.content
        self._current_request = request

    def data_received(self, data: bytes) -> None:
        """Take what the client sends. The library listens no more to a connection that is to close, though a request
        may have its body on the way: that is read to its end, and nothing behind it is answered.
        """
        closing, closing_soon = self._force_close, self._close
        if closing or closing_soon:
            bodies = (self.body, *self._bodies())
            if self.transport is None or all(body.is_eof() for body in bodies):
                return
            self._force_close = self._close = False
        if any(header in data for header in _UPGRADES):
            self._take_requests(data)
        else:
            super().data_received(data)
        self._force_close |= closing
        self._close |= closing_soon

    def _take_requests(self, data: bytes) -> None:
        """Take data in which requests may ask for another protocol, each by itself: the library drops what follows
        one that does in the same data. There is no other protocol here, so what follows is HTTP.
        """
        while data:
            end = self._request_end(data)
            super().data_received(data[:end])
            data = data[end:]

    def _request_end(self, data: bytes) -> int:
        """How many bytes there are up to the end of a request that asks for another protocol, or all."""
        if all(body.is_eof() for body in self._bodies()):
            starts = [at for header in _UPGRADES if (at := data.find(header)) >= 0]
            head_end = data.find(_HEAD_END, min(starts)) if starts else -1
            return len(data) if head_end < 0 else head_end + len(_HEAD_END)
        message = self._messages[-1][0] if self._messages else None
        if isinstance(message, RawRequestMessage) and message.upgrade:
            length = message.headers.get("Content-Length", "")
            if length.isascii() and length.isdigit():
                return int(length) or len(data)
        return len(data)

    def _bodies(self) -> list[StreamReader]:
        """Of the requests that are not answered."""
        bodies = [body for _, body in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.content)
        return bodies

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the library's
        """End the connection within `timeout` s: the request, what is left of its body, and the answer's way out of
        this process. The library grants that time to each of the first two, and leaves the last to a loop that ends.
        """
        transport, serving = self.transport, self._task_handler
        try:
            async with asyncio.timeout(timeout):
                if transport is not None:
                    self.pause_until_written()
                    with suppress(ConnectionError):
                        await self._drain_helper()
                await super().shutdown(None)
        except TimeoutError:
            if serving is not None:
                serving.cancel()
            self.force_close()

    def eof_received(self) -> bool:  # type: ignore[override]  # the library never keeps one open
        """The client sends no more, and may still listen: a request that came whole is answered, then the
        connection ends. True keeps it open until then; not over TLS, which has no such half.
        """
        bodies = self._bodies()
        whole = bool(bodies) and all(body.is_eof() for body in bodies)
        if not whole or self.ssl_context is not None:
            return False
        if not self.half_closed.done():  # behind a body the library reads up to it again
            self.half_closed.set_result(None)
            self.close()
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client went away: what only it waits for ends."""
        super().connection_lost(exc)
        self._abandon()

    @contextmanager
    def while_connected(self) -> Iterator[None]:
        """Cancel what runs inside once the client has gone away. Only for what changes nothing."""
        self._abandonable = asyncio.current_task()
        if self.transport is None:
            self._abandon()
        try:
            yield
        finally:
            self._abandonable = None

    def hold_on(self) -> None:
        """An answer is on its way: a client that goes away from here on cancels nothing, it may have taken all."""
        self._abandonable = None

    def pause_until_written(self) -> None:
        """From here on writing counts as paused until all that was written has left this process."""
        if self.transport is not None:
            # TLS pauses at the high mark, and would with 0 also when nothing is left; TCP only above it.
            self.transport.set_write_buffer_limits(0 if self.ssl_context is None else 1, 0)

    def resume_writing(self) -> None:
        """The kernel has taken all that was written."""
        self.drained += 1
        super().resume_writing()

    def _abandon(self) -> None:
        if self._abandonable is not None:
            self._abandonable.cancel()

    def _turn_away(self, transport: asyncio.Transport) -> None:
        """Answer at once, and drop what the client sends for a while: closing on it would reset the
        answer. In a crowd there is no answer.
        """
        self.force_close()
        if self._api_server.turned_away >= _TURNED_AWAY_AT_ONCE:
            transport.abort()
            return
        self._api_server.turned_away += 1
        transport.write(_TURNED_AWAY)
        transport.write_eof()
        asyncio.get_running_loop().call_later(_TURNED_AWAY_OPEN_S, self._let_go, transport)

    def _let_go(self, transport: asyncio.Transport) -> None:
        self._api_server.turned_away -= 1
        transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Malformed HTTP (400), or a mistake of ours (500): for the log, not for the client."""
        told = f"malformed HTTP request: {_first_line(message)}"
        if isinstance(exc, LineTooLong):  # its own text is the line, as Python writes bytes
            told = f"the request line or a header is over {self.max_line_size} bytes (max_header_bytes)"
        elif status >= 500:
            told = "the server made a mistake: see its log"
        response = error_response(ApiError(status, told), accept=request.headers.get("Accept"))
        response.force_close()
        sign(request, response)
        if status >= 500:
            named = {"request_id": response.headers[REQUEST_ID]}
            log.error(
                "request %s %s broke", request.method, request.path, exc_info=exc, extra=named
            )
        else:
            log.debug("malformed request from %s: %s", request.remote, message)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        return response


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """The request of a message. It is answered in a version that is spoken here, whatever version it names, and as
    HTTP/1.1 where it was too malformed to be parsed.
    """
    if message.method == _UNPARSED_METHOD or message.version > HttpVersion11:
        message = message._replace(version=HttpVersion11)
    elif message.version < HttpVersion10:
        message = message._replace(version=HttpVersion10)
    loop = asyncio.get_running_loop()
    request = web.BaseRequest(message, payload, protocol, writer, task, loop)
    cast("ApiProtocol", protocol).begin(request)
    return request


def _first_line(message: str | None) -> str:
    lines = (message or "").splitlines()
    return lines[0].rstrip(":") if lines else "it cannot be parsed"
