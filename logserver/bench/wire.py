"""HTTP/1.1 for a load generator: requests built ahead as bytes, responses measured and dropped.

Owns the connection: one request at a time; it parses only the status and the end of a response. Must not know the
content or the rate of requests; responses need a Content-Length, and connections stay open.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from logserver.errors import StrangeAnswer

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END: Final = b"\r\n\r\n"
NO_BODY: Final = (204, 304)
HUNG_UP: Final = "the server closed a connection under load"
CALL_TIMEOUT_S: Final = 30.0


class Address(NamedTuple):
    """The address that a server listens on."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse http://host:port. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{url!r} is not http://host:port")
        if parts.path not in {"", "/"} or parts.query or parts.username is not None:
            raise ValueError(f"{url!r} is more than http://host:port: a path belongs to the calls")
        return cls(parts.hostname, 80 if parts.port is None else parts.port)


def request(
    method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> bytes:
    """Build a request as bytes to send."""
    named = {"Host": "load-test"} if "host" not in map(str.lower, headers or {}) else {}
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in {**named, **(headers or {})}.items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + _HEAD_END + body


class WireResponse(NamedTuple):
    """A whole response, for calls outside the load."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        """Decode the body, even of an error response."""
        return json.loads(self.body)


def call(
    address: Address,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> WireResponse:
    """Send one request on its own connection and wait for the response. Raises OSError, StrangeAnswer."""
    connection = HTTPConnection(*address, timeout=CALL_TIMEOUT_S)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers or {}))
        with connection.getresponse() as response:
            return WireResponse(response.status, response.read(), dict(response.headers))
    except OSError:
        raise
    except HTTPException as error:
        message = f"{method} {path}: the answer is not HTTP: {type(error).__name__} {error!s:.200}"
        raise StrangeAnswer(message, status=None) from None
    finally:
        connection.close()


class Connection(asyncio.Protocol):
    """A connection under load.

    `answered(connection)` is called at the end of each response, with `status` and `size_bytes` (of the body) set, and
    with `keeps` also `head` and `body()`. `lost(why)` is called when the connection ends. `due_ns`, `sent_ns` and
    `number` belong to the caller.
    """

    __slots__ = (
        "_answered",
        "_head",
        "_left",
        "_lost",
        "_pieces",
        "_why",
        "due_ns",
        "head",
        "keeps",
        "number",
        "sent_ns",
        "size_bytes",
        "status",
        "transport",
    )

    def __init__(
        self, answered: Answered, lost: Callable[[str], None], *, keeps: bool = False
    ) -> None:
        self._answered = answered
        self._lost = lost
        self._head = b""
        self._left = 0
        self._why = HUNG_UP
        self.transport = cast("asyncio.Transport", None)
        self.status = 0
        self.size_bytes = 0
        self.due_ns = 0
        self.sent_ns = 0
        self.number = 0
        self.keeps = keeps
        self.head = b""
        self._pieces: list[bytes] = []

    def body(self) -> bytes:
        """Return the body of the response; it is kept only with `keeps`."""
        return b"".join(self._pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; called by the loop."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection; called by the loop, also after `transport.close()`."""
        refused = self._why == HUNG_UP and self.status >= 300
        self._lost(f"{self._why}, after an answer {self.status}" if refused else self._why)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; called by the loop. Of a body only the length is used, unless it is kept."""
        if self._left:
            self._left -= len(data)
            if self.keeps:
                self._pieces.append(data)
        else:
            if self._head:
                data = self._head + data
            end = data.find(_HEAD_END)
            if end < 0:
                self._head = data
                return
            self._head = b""
            if not (data.startswith(b"HTTP/1.") and data[9:12].isdigit()):
                self._give_up(f"an answer is not HTTP/1.1: {data[:40]!r}")
                return
            self.status = int(data[9:12])
            length = _LENGTH.search(data, 0, end)
            if length is None and self.status not in NO_BODY:
                self._give_up(f"an answer has no Content-Length: {data[:end][:200]!r}")
                return
            self.size_bytes = int(length[1]) if length is not None else 0
            self._left = end + len(_HEAD_END) + self.size_bytes - len(data)
            if self.keeps:
                self.head = data[:end]
                self._pieces = [data[end + len(_HEAD_END) :]]
        if self._left == 0:
            self._answered(self)
        elif self._left < 0:
            self._give_up(f"an answer is {-self._left} bytes longer than its Content-Length")

    def _give_up(self, why: str) -> None:
        self._why = why
        self.transport.abort()


Answered: TypeAlias = Callable[[Connection], None]


async def connect(
    address: Address, answered: Answered, lost: Callable[[str], None], *, keeps: bool = False
) -> Connection:
    """Open a new connection. Raises OSError."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(answered, lost, keeps=keeps), *address
    )
    return connection
