"""Servers without a store: the speed that is left when the server's own work costs nothing.

Owns three servers: the whole API over a service that stores nothing (`no-store`), only the libraries it is built on
(`bare`: HTTP server, event loop, JSON), and a socket that does not parse requests (`wire`), the limit of the load
generator. Must not differ from our server for a client that only counts responses.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec
import uvloop
from aiohttp import StreamReader, web

from api.http.negotiation import BINARY_V2_JSON, RECORD_BATCH
from api.records.decode import Body, PlainRecord
from api.records.encode import OffsetRow, ProduceAnswer, RecordRow
from api.server import BACKLOG, READ_BUFFER_BYTES, Server
from logserver.bench.ceiling import serve as serve_blindly
from logserver.config import Address, Settings
from logserver.service.produce import Producer
from logserver.service.requests import AppendOutcome, Fetch, Produce, ProduceBatches
from logserver.service.service import LogService
from scripts.bench.http_work import VALUE_BYTES, raw_batch
from storage import BatchPage, OffsetBounds, Page, StoredRecord, StoreOptions, open_store

MOST_ROWS: Final = 10_000
LISTEN: Final = Address("127.0.0.1", 0)
NOW_MS: Final = 1_700_000_000_000
VALUE: Final = b"x" * VALUE_BYTES
BOUNDS: Final = OffsetBounds(0, MOST_ROWS, MOST_ROWS)
_DECODE: Final = msgspec.json.Decoder(Body[PlainRecord]).decode

Serving: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]


class NoStoreProducer(Producer):
    """A producer that acknowledges records and drops them."""

    async def produce(self, request: Produce) -> list[AppendOutcome]:
        """Accept records; store nothing."""
        return [AppendOutcome(0, range(len(request.records)), 0)]

    async def produce_batches(self, request: ProduceBatches) -> list[AppendOutcome]:
        """Accept batches; neither decode nor store them."""
        return [AppendOutcome(0, range(1), 0)]


class NoStore(LogService):
    """A service that drops records and returns records from memory. Topics are kept, also in memory."""

    producer_type = NoStoreProducer

    def __init__(self, settings: Settings) -> None:
        options = StoreOptions()
        super().__init__(
            settings, lambda progress: open_store("memory", settings.data, options, read_only=False)
        )
        records = [StoredRecord(offset, NOW_MS, None, VALUE) for offset in range(MOST_ROWS)]
        self._records = records
        self._batches = BatchPage(raw_batch(), MOST_ROWS, BOUNDS)

    async def fetch(self, request: Fetch) -> Page:
        """Return the same records each time, up to `max_records`."""
        return Page(self._records[: request.max_records], request.max_records, BOUNDS)

    async def fetch_batches(self, request: Fetch) -> BatchPage:
        """Return the same batch each time."""
        return self._batches


async def no_store(stop: asyncio.Event) -> None:
    """Serve the whole API without a store."""
    service = NoStore(Settings(listen=LISTEN))
    server = Server(service)
    await server.listen()
    await service.start()
    try:
        await _announce(server.url, stop)
    finally:
        await server.stop()


@asynccontextmanager
async def running_bare() -> AsyncIterator[str]:
    """Run the bare server inside the block; yield its URL."""
    protocols = web.Server(_Bare().answer, access_log=None, read_bufsize=READ_BUFFER_BYTES)
    runner = web.ServerRunner(protocols)
    await runner.setup()
    site = web.TCPSite(runner, *LISTEN, backlog=BACKLOG)
    await site.start()
    try:
        yield f"http://{Address(LISTEN.host, site.port)}"
    finally:
        await runner.cleanup()


async def bare(stop: asyncio.Event) -> None:
    """Aiohttp's own server and msgspec: bodies are decoded and answers encoded, no more."""
    async with running_bare() as url:
        await _announce(url, stop)


class _Bare:
    """The single handler of the bare server."""

    def __init__(self) -> None:
        self._rows = [
            RecordRow("bare", 0, offset, NOW_MS, None, VALUE, ()) for offset in range(MOST_ROWS)
        ]
        self._batch = raw_batch()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Choose the response by HTTP method, Content-Type and Accept."""
        headers = request.headers
        if request.method == "POST":
            if headers["Content-Type"] == RECORD_BATCH:
                await _drop(request.content)
                count = 1
            else:
                count = len(_DECODE(await request.read()).records)
            answer = ProduceAnswer([OffsetRow(0, offset) for offset in range(count)])
        elif request.method != "GET":
            return web.Response(body=b"{}")
        elif headers["Accept"] == RECORD_BATCH:
            return web.Response(body=self._batch)
        else:
            count = int(request.path_qs.rpartition("=")[2])
            return _json(self._rows[:count])
        return _json(answer)


async def _drop(body: StreamReader) -> None:
    """Read a body and keep nothing of it: the least that a server can do with it."""
    while not body.at_eof():
        await body.readany()


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers={"Content-Type": BINARY_V2_JSON})


async def wire(stop: asyncio.Event) -> None:
    """No HTTP at all."""
    await serve_blindly(stop, _say)


KINDS: Final[dict[str, Serving]] = {"no-store": no_store, "bare": bare, "wire": wire}


async def _announce(url: str, stop: asyncio.Event) -> None:
    """Print the address as a line of JSON, as `logserver serve` does, then wait for `stop`."""
    _say(url)
    await stop.wait()


def _say(url: str) -> None:
    print(msgspec.json.encode({"url": url}).decode(), flush=True)


async def _serve(serving: Serving) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serving(stop)


def serve(kind: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(KINDS[kind]))
