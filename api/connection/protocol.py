"""The connection's side of the API: errors before a request has a route, and too many connections.

Owns the HTTP library's protocol object, which would answer in text/plain: malformed HTTP, a handler that failed, the
connection limit. Must not handle requests: they go through `api.app`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any, Final, cast

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy

from api.connection.aiohttp_private import OpenHandler
from api.connection.handshake import Handshake, Handshakes
from api.connection.long_body import LEAST_BYTES, MOST_BYTES, Buffers, LongBody
from api.connection.response_headers import REQUEST_ID, SERVER, sign
from api.http.errors import ApiError, error_response
from logserver.metrics import Count

log = logging.getLogger(__name__)

_TOO_MANY: Final = (
    b'{"error_code":42901,"message":"too many connections: try again later (max_connections)"}'
)
# Together they match Upgrade, upgrade and UPGRADE.
_UPGRADE, _UPGRADE_LARGE = b"pgrade:", b"PGRADE:"
_UPGRADE_WORD: Final = re.compile(b"pgrade:|PGRADE:")
_UPGRADE_LINE: Final = re.compile(b"\r\nupgrade:", re.IGNORECASE)
_IGNORED_UPGRADE: Final = b"\r\nIgnored-Upgrade:"
_MAX_PARSED: Final = (
    32  # requests that wait; aiohttp parses no more, and where a head begins is not known
)
_HEAD_END: Final = b"\r\n\r\n"
_LONG_BYTES: Final = 4096  # in longer data a search takes longer than the check of its length
_COPIES_BODIES: Final = HttpRequestParser is not HttpRequestParserPy
"""Whether the library copies the bytes that it gets: its parser in plain Python keeps them."""
_NO_HEADERS: Final[Mapping[str, str]] = {}
# aiohttp's stand-in for the method of a request that it could not parse.
_UNPARSED_METHOD: Final = "UNKNOWN"
_TURNED_AWAY_OPEN_S: Final = 1.0
_TURNED_AWAY_AT_ONCE: Final = 8  # each holds a descriptor, and only a few are reserved
_TURNED_AWAY: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Server: %b\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b"
    % (SERVER.encode(), len(_TOO_MANY), _TOO_MANY)
)


class ApiServer(web.Server):
    """Creates one protocol object per connection; with `tls` after its handshake.

    `whole_types`: the media types of bodies that no handler reads piece by piece, exactly as clients write them.
    """

    def __init__(
        self,
        handler: Any,
        *,
        max_connections: int,
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
        failed_handshakes: Count,
        whole_types: Set[str] = frozenset(),
        **options: Any,
    ) -> None:
        super().__init__(handler, request_factory=_request, **options)
        self.max_connections = max_connections
        self.turned_away = 0  # rejected connections that are still open
        self.stopping = False
        self.whole_types = whole_types
        self.buffers = Buffers()
        self._options = options
        self._handshakes: Handshakes | None = None
        if tls is not None:
            self._handshakes = Handshakes(
                tls,
                timeout_s=handshake_timeout_s,
                make=self._protocol,
                has_room=lambda: self.open_connections < max_connections,
                failed=failed_handshakes,
            )

    @property
    def open_connections(self) -> int:
        """The number of connections, including handshakes in progress."""
        return len(self.connections) + (0 if self._handshakes is None else len(self._handshakes))

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]  # the event loop's protocol
        """Return the protocol of a new connection; the event loop calls this."""
        return self._protocol() if self._handshakes is None else Handshake(self._handshakes)

    def _protocol(self) -> ApiProtocol:
        return ApiProtocol(self, loop=asyncio.get_running_loop(), **self._options)

    def use(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for the handshakes that begin later. The server was created with one."""
        assert self._handshakes is not None
        self._handshakes.context = context

    def pre_shutdown(self) -> None:
        """Let every connection end after its current request, and new connections end at once."""
        self.stopping = True
        super().pre_shutdown()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the library's
        """End all connections."""
        if self._handshakes is not None:
            await self._handshakes.stop()
        await super().shutdown(timeout)


class ApiProtocol(OpenHandler):
    """One connection."""

    __slots__ = (
        "_abandonable",
        "_api_server",
        "body",
        "body_bytes",
        "cross_origin",
        "drained",
        "half_closed",
    )

    def __init__(self, server: ApiServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._api_server = server
        self._abandonable: asyncio.Task[Any] | None = None
        self.drained = 0
        """Number of times that writing was paused and then resumed."""
        self.body: StreamReader = EMPTY_PAYLOAD
        """The body of the latest request: bytes that the client sends after an early answer are read too."""
        self.body_bytes = 0
        """The length of this body; 0 if the request does not say."""
        self.cross_origin = _NO_HEADERS
        """The CORS headers of the answer to the current request."""
        self.half_closed = asyncio.get_running_loop().create_future()
        """Done once the client sends no more. It may still read, but it must not wait for new data."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or reject it with an error in the usual shape."""
        server = self._api_server
        if len(server.connections) >= server.max_connections:
            self._turn_away(cast("asyncio.Transport", transport))
            return
        super().connection_made(transport)

    async def start(self) -> None:
        """Serve the connection. A connection that arrived while the listener closed ends here.

        Such a connection was closed before this task began, or it missed the shutdown call. aiohttp would then wait
        for its first request until the grace period ends.
        """
        if self._api_server.stopping:
            self.close()
            if not self.waiting_requests:
                self.force_close()
                return
        await super().start()

    def data_received(self, data: bytes) -> None:
        """Process received bytes.

        aiohttp ignores data on a connection that will close, although the body of a request may still be arriving.
        That body is read to its end, and no request after it is answered.
        """
        if self.is_ending:
            self._receive_while_ending(data)
        elif len(data) > _LONG_BYTES and self._take_long(data):
            return
        elif _UPGRADE in data or _UPGRADE_LARGE in data:
            self._take_requests(data)
        else:
            super().data_received(data)

    def _take_long(self, data: bytes) -> bool:
        """Process data that is the rest of a body, or a head and the begin of its body, without a search in the body.
        Return False, with nothing processed, for any other data.
        """
        if self._left_of_body() >= len(data):
            super().data_received(data)
            return True
        if self._is_in_body():
            return False
        end = data.find(_HEAD_END) + len(_HEAD_END)
        head = data[:end]
        if end < len(_HEAD_END) or _UPGRADE in head or _UPGRADE_LARGE in head:
            return False
        super().data_received(head)
        rest = data[end:]
        if self._take_whole(rest):
            return True
        if self._left_of_body() < len(rest) and (_UPGRADE in rest or _UPGRADE_LARGE in rest):
            self._take_requests(rest)
        else:
            super().data_received(rest)
        return True

    def _take_whole(self, begin: bytes) -> bool:
        """Receive a long body of a known type into one buffer, if its head has just arrived; `begin`: its first bytes.

        Return False if the library must receive it.
        """
        waiting, transport, server = self.last_waiting, self.transport, self._api_server
        if waiting is None or transport is None or self.is_ending or not _COPIES_BODIES:
            return False
        head, body = waiting
        size_bytes = _content_length(head)
        if (
            not max(LEAST_BYTES, len(begin) + 1) <= size_bytes <= MOST_BYTES
            or body.is_eof()
            or self.ssl_context is not None
            or transport.is_closing()
            or head.headers.get("Content-Type") not in server.whole_types
        ):
            return False
        LongBody(self, transport, server.buffers, size_bytes, memoryview(begin))
        return True

    def take_body(self, data: bytes | memoryview) -> None:
        """Process bytes of a body that `LongBody` has received."""
        self.data_received(cast("bytes", data) if len(data) > _LONG_BYTES else bytes(data))

    def _left_of_body(self) -> int:
        """Return the number of bytes to come of the body of the latest request; 0 if its head says no length."""
        waiting = self.last_waiting
        if waiting is None:
            body, length = self.body, self.body_bytes
        else:
            message, body = waiting
            length = _content_length(message)
        return 0 if body.is_eof() else max(length - body.total_bytes, 0)

    def _receive_while_ending(self, data: bytes) -> None:
        bodies = (self.body, *self.unanswered_bodies)
        if self.transport is None or all(body.is_eof() for body in bodies):
            return
        ends, ends_soon = self.ending
        self.ending = (False, False)
        self.data_received(data)
        ends_now, ends_later = self.ending
        self.ending = (ends or ends_now, ends_soon or ends_later)

    def _take_requests(self, data: bytes) -> None:
        """Process data that may ask for a protocol upgrade: the library gets such a head with the header renamed.

        Its parser stops at the end of a request with an upgrade, also after a body, and drops the bytes that follow.
        There is no other protocol here, so these bytes are HTTP.
        """
        while (word := _UPGRADE_WORD.search(data)) is not None:
            in_head = not self._is_in_body()
            end = self._piece_end(data, word.end(), in_head=in_head)
            piece, data = data[:end], data[end:]
            if in_head and self.waiting_requests < _MAX_PARSED:
                piece = _UPGRADE_LINE.sub(_IGNORED_UPGRADE, piece)
            super().data_received(piece)
        if data:
            super().data_received(data)

    def _is_in_body(self) -> bool:
        """Return whether the next bytes belong to a body."""
        return not all(body.is_eof() for body in (self.body, *self.unanswered_bodies))

    def _piece_end(self, data: bytes, word_end: int, *, in_head: bool) -> int:
        """Return the end of the head or body at the start of `data`, or of a part of it; `word_end`: of the first word.

        The length of a chunked body is not known, but it ends with an empty line: with one before the word, or the word
        is in the body.
        """
        if not in_head and (left := self._left_of_body()):
            return min(left, len(data))
        line = -1 if in_head else data.rfind(_HEAD_END, 0, word_end)
        if line < 0:
            line = data.find(_HEAD_END, 0 if in_head else word_end)
        return len(data) if line < 0 else line + len(_HEAD_END)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the library's
        """End the connection within `timeout` s: the request, the rest of its body, and the writing of its answer.

        aiohttp allows that time for each of the first two, and leaves the writing to a loop that ends.
        """
        transport, serving = self.transport, self.serving
        try:
            async with asyncio.timeout(timeout):
                if transport is not None:
                    self.pause_until_written()
                    with suppress(ConnectionError):
                        await self.drain()
                await super().shutdown(None)
        except TimeoutError:
            if serving is not None:
                serving.cancel()
            self.force_close()

    def eof_received(self) -> bool:  # type: ignore[override]  # the library never keeps one open
        """Handle a half-close of the client: a complete request is answered, then the connection ends.

        True keeps the connection open until then. Over TLS it closes at once, since TLS has no half-close.
        """
        bodies = self.unanswered_bodies
        whole = bool(bodies) and all(body.is_eof() for body in bodies)
        if not whole or self.ssl_context is not None:
            return False
        if not self.half_closed.done():  # aiohttp may call this again after a body
            self.half_closed.set_result(None)
            self.close()
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the work that only this client waits for."""
        super().connection_lost(exc)
        self._abandon()

    def while_connected(self) -> WhileConnected:
        """Cancel the code inside the block if the client disconnects. Only for code that changes nothing."""
        return WhileConnected(self)

    def watch(self) -> None:
        """Cancel the current task if the client disconnects, or has disconnected, until `hold_on`."""
        self._abandonable = asyncio.current_task()
        if self.transport is None:
            self._abandon()

    def hold_on(self) -> None:
        """Stop cancelling: an answer is being sent, and a client that disconnects later may have received all of it."""
        self._abandonable = None

    def pause_until_written(self) -> None:
        """Treat writing as paused until all written bytes have left this process."""
        if self.transport is not None:
            # With a high mark of 0, TLS would pause even with an empty buffer; TCP pauses only above the mark.
            self.transport.set_write_buffer_limits(0 if self.ssl_context is None else 1, 0)

    def resume_writing(self) -> None:
        """Count that the kernel has accepted all written bytes."""
        self.drained += 1
        super().resume_writing()

    def _abandon(self) -> None:
        if self._abandonable is not None:
            self._abandonable.cancel()

    def _turn_away(self, transport: asyncio.Transport) -> None:
        """Reject a connection with an answer, and drop the client's bytes for a while: an early close would reset the
        answer.

        If too many rejected connections are open, close without an answer.
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
        """Return the answer to malformed HTTP (400), or to a bug (500): details go to the log, not to the client."""
        problem = f"malformed HTTP request: {_first_line(message)}"
        # aiohttp's own text contains the line as a Python bytes literal.
        if isinstance(exc, LineTooLong):
            problem = f"the request line or a header is over {self.max_line_size} bytes (max_header_bytes)"
        elif status >= 500:
            problem = "the server made a mistake: see its log"
        response = error_response(ApiError(status, problem), accept=request.headers.get("Accept"))
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


class WhileConnected:
    """The context manager of `ApiProtocol.while_connected`: a third of the calls of a generator."""

    __slots__ = ("_connection",)

    def __init__(self, connection: ApiProtocol) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.watch()

    def __exit__(self, *exc_info: object) -> None:
        self._connection.hold_on()


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Create the request of a message, with a supported version.

    This is HTTP/1.0 for an earlier version, HTTP/1.1 for a later version or for a request that could not be parsed.
    """
    if message.method == _UNPARSED_METHOD or message.version > HttpVersion11:
        message = message._replace(version=HttpVersion11)
    elif message.version < HttpVersion10:
        message = message._replace(version=HttpVersion10)
    loop = asyncio.get_running_loop()
    request = web.BaseRequest(message, payload, protocol, writer, task, loop)
    connection = cast("ApiProtocol", protocol)
    connection.body = payload
    connection.body_bytes = request.content_length or 0
    connection.cross_origin = _NO_HEADERS
    # aiohttp does this in a task of the request. Before Python 3.12 that task begins after later events of the
    # connection: a half-close would look like one without a request.
    connection.set_current(request)
    return request


def _content_length(message: RawRequestMessage) -> int:
    """Return the length of the body as the head says it; 0 if it says none."""
    length = message.headers.get("Content-Length", "")
    return int(length) if length.isascii() and length.isdigit() else 0


def _first_line(message: str | None) -> str:
    lines = (message or "").splitlines()
    return lines[0].rstrip(":") if lines else "it cannot be parsed"
