"""A socket that answers without parsing, and the load generator measured against it.

Owns the generator's highest rate, and its error at a given rate: the limits of every figure. Must not know HTTP: all
requests of a connection have the length of its first request. Run as a module, it serves.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Final, cast

import msgspec
import uvloop

from logserver.bench.load_loops import Closed, Open, Sample, latency_of
from logserver.bench.processes import Cores, Server, running
from logserver.bench.result import Generator, Latency, Spread
from logserver.bench.wire import Address, request

COMMAND: Final = ("-m", "logserver.bench.ceiling")
LISTEN: Final = ("127.0.0.1", 0)
BACKLOG: Final = 1024
CONNECTIONS: Final = 16
MOST: Final = 1 << 30
BODY: Final = b'{"records":[{"value":"' + b"eHh4" * 34 + b'"}]}'
OFFERED_SHARE: Final = 0.25  # of the ceiling: at this rate the error of an open loop is measured
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Blind(asyncio.Protocol):
    """A server protocol that answers by byte count: all requests of a connection are as long as the first."""

    def __init__(self) -> None:
        self._transport = cast("asyncio.Transport", None)
        self._size_bytes = 0
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Count received bytes and answer each complete request; called by the loop."""
        if not self._size_bytes:
            head, _, _ = data.partition(b"\r\n\r\n")
            length = int(head.rpartition(b"Content-Length: ")[2])
            self._size_bytes = len(head) + 4 + length
        self._received += len(data)
        if self._received == self._size_bytes:
            self._received = 0
            self._transport.write(_OK)


async def serve(stop: asyncio.Event, tell: Callable[[str], None]) -> None:
    """Serve until `stop` is set; `tell` gets the address when the socket listens."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Blind, *LISTEN, backlog=BACKLOG)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        tell(f"http://{host}:{port}")
        await stop.wait()


def measure(runner: asyncio.Runner, cores: Cores, *, seconds: float, repeats: int) -> Generator:
    """Measure the generator against that socket: at full speed, then at a share of it. Raises ServerFailed."""
    with running(COMMAND, cores.servers) as server:
        closed = [runner.run(_closed(server, seconds)) for _ in range(repeats)]
        ceiling = Spread.of([sample.good / sample.seconds for sample in closed])
        offered = round(ceiling.median * OFFERED_SHARE)
        opened = [runner.run(_open(server, seconds, offered)) for _ in range(repeats)]
    made = [sample.good / sample.seconds for sample in opened]
    return Generator(
        ceiling_requests_per_s=ceiling,
        offered_requests_per_s=offered,
        made_requests_per_s=Spread.of(made),
        rate_error_share=max(abs(rate - offered) / offered for rate in made),
        latency=latency_of(*(sample.latencies_ns for sample in opened)) or Latency(count=0),
    )


async def _closed(server: Server, seconds: float) -> Sample:
    turn = Closed([request("POST", "/", body=BODY)], seconds=seconds, most=MOST)
    return await turn.run(Address.of(server.url), CONNECTIONS)


async def _open(server: Server, seconds: float, rate: float) -> Sample:
    turn = Open([request("POST", "/", body=BODY)], seconds=seconds, rate=rate)
    return await turn.run(Address.of(server.url), CONNECTIONS)


async def _serve() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(stop, _tell)


def _tell(url: str) -> None:
    """Print the address as a line of JSON, as `logserver serve` does."""
    sys.stdout.write(msgspec.json.encode({"url": url}).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as main:
        main.run(_serve())
