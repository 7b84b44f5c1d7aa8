"""A server with scripted answers, for answers that a real server gives too rarely.

Owns the script of answers and the received requests; must not know how a client uses the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

HANG_UP = b""


def answer(status: int, body: object, **headers: str) -> bytes:
    """Return the bytes of an HTTP answer with a JSON body."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"HTTP/1.1 {status} Answer", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def error(status: int, error_code: int, **headers: str) -> bytes:
    """Return an error answer in the form of this project's server."""
    return answer(status, {"error_code": error_code, "message": "so"}, **headers)


@dataclass
class Stub:
    """A server that sends `answers` in turn, one per connection; `asked` collects the request lines and headers."""

    answers: list[bytes]
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the head of a request, send the next answer, and close the connection."""
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(self.answers.pop(0))
        await writer.drain()
        writer.close()

    @property
    def lines(self) -> list[str]:
        """The request lines."""
        return [head.splitlines()[0].removesuffix(" HTTP/1.1") for head in self.asked]


@asynccontextmanager
async def stub(answers: Sequence[bytes]) -> AsyncIterator[Stub]:
    """Run a stub on a free port."""
    reported = Stub(list(answers))
    server = await asyncio.start_server(reported.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    reported.url = f"http://{host}:{port}"
    async with server:
        yield reported
