"""A client that sends and receives at the same time, over a connection of its own.

Owns a request whose chunks are sent at the test's command, and the reading of the answer chunk by chunk; must not know
the content of the chunks.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from tests.http.harness import Api

PATIENCE_S = 20.0


class Duplex:
    """A request in progress. Every wait ends after PATIENCE_S."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._decoded = b""
        self.ended = False

    async def send(self, data: bytes) -> None:
        """Send a chunk of the body."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await asyncio.wait_for(self.writer.drain(), PATIENCE_S)

    async def finish(self) -> None:
        """End the body."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """Return status and headers of the answer."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        status, *lines = head.decode().strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(status.split()[1]), {name.lower(): value for name, value in pairs}

    async def line(self, end: bytes = b"\n") -> Any:
        """Return the next line of the answer, decoded from JSON; None at the end."""
        while end not in self._decoded and not self.ended:
            await self._chunk()
        line, _, self._decoded = self._decoded.partition(end)
        return msgspec.json.decode(line) if line else None

    async def lines(self, end: bytes = b"\n") -> list[Any]:
        """Return all remaining lines."""
        while not self.ended:
            await self._chunk()
        rest, self._decoded = self._decoded, b""
        return [msgspec.json.decode(line) for line in rest.split(end) if line]

    async def _chunk(self) -> None:
        size_line = await asyncio.wait_for(self._reader.readuntil(b"\r\n"), PATIENCE_S)
        size = int(size_line, 16)
        data = await asyncio.wait_for(self._reader.readexactly(size + 2), PATIENCE_S)
        self._decoded += data[:-2]
        self.ended = size == 0


@asynccontextmanager
async def duplex(
    api: Api, path: str, content_type: str, *, headers: str = "", receive_bytes: int | None = None
) -> AsyncIterator[Duplex]:
    """Open a chunked POST whose body is sent in steps. `receive_bytes` sets the client's receive buffer."""
    host, port = api.url.removeprefix("http://").split(":")
    sock = socket.socket()
    sock.setblocking(False)
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 16)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n"
        f"Transfer-Encoding: chunked\r\n{headers}\r\n".encode()
    )
    try:
        yield Duplex(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
