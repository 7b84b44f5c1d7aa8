"""Fuzz target: bodies of the HTTP API, through its router, its decoders, the service and a store, without a socket.

The first byte of an input chooses the request, the rest is the body. Guarantee: every answer is 2xx or 4xx, an error
has the documented form, and stored records can be read.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import msgspec
from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

import storage
from api.app import App
from logserver.config import Settings
from logserver.service.service import LogService
from scripts.diff_fuzz_cases import batches
from storage import LogStore, StoreOptions
from storage.coding.checksum import crc32c
from storage.errors import DataError
from storage.files import OverlayFileSystem
from tests.http.harness import BATCH, BINARY, JSON, ONE_PARTITION, V2
from tests.robustness.fuzz.target import LIMIT_BYTES, Check, Target

BACKENDS: Final = ("memory", "kafka", "rocketmq")
DATA: Final = Path("/fuzz")
REQUESTS_A_STORE: Final = 2000
"""After this number of requests a new in-memory store replaces the old one."""
CRC_POSITION: Final = 17
CRC_START: Final = 21


def open_in_memory(backend: str, progress: storage.Progress) -> LogStore:
    """Open a new store of a backend on a file layer that keeps everything in memory."""
    options = StoreOptions(settings=ONE_PARTITION.get(backend, {}))
    return storage.open_store(backend, DATA, options, fs=OverlayFileSystem())


class Request(NamedTuple):
    """A request with a fuzzed body."""

    method: str
    path: str
    content_type: str
    change: Callable[[bytes], bytes] = bytes  # applied to the body before sending
    encoding: str | None = None


def sealed(body: bytes) -> bytes:
    """Return a record batch with a correct CRC; otherwise the CRC check refuses nearly all inputs."""
    crc = crc32c(body[CRC_START:]).to_bytes(4)
    return body[:CRC_POSITION] + crc + body[CRC_START:] if len(body) > CRC_START else body


RECORDS: Final = "/topics/t"
REQUESTS: Final[Sequence[Request]] = (
    Request("POST", RECORDS, BINARY),
    Request("POST", RECORDS, JSON),
    Request("POST", f"{RECORDS}?format=text", V2),
    Request("POST", f"{RECORDS}/partitions/0?acks=1", JSON),
    Request("POST", f"{RECORDS}?acks=0", JSON),
    Request("POST", f"{RECORDS}?producer_id=1&producer_epoch=0&sequence=0", JSON),
    Request("POST", f"{RECORDS}?compression=zstd", BINARY),
    Request("POST", RECORDS, JSON, gzip.compress, "gzip"),
    Request("POST", RECORDS, JSON, encoding="gzip"),
    Request("POST", f"{RECORDS}/partitions/0", BATCH),
    Request("POST", f"{RECORDS}/partitions/0", BATCH, sealed),
    Request("PUT", RECORDS, "application/json"),
    Request("PUT", "/topics/new", "application/json"),
    Request("PATCH", RECORDS, "application/json"),
    Request("POST", "/producers", "application/json"),
)


class Front:
    """The API of one service in front of an empty store, driven request by request."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._loop = asyncio.new_event_loop()
        self._protocol = SimpleNamespace(
            transport=None, ssl_context=None, peername=None, sockname=None
        )
        self._payloads = BaseProtocol(self._loop)
        self._left = 0
        self._service: LogService | None = None
        self._app = cast("App", None)

    def check(self, data: bytes) -> None:
        """Send one request, to a store that contains only the topic t."""
        self._loop.run_until_complete(self._check(data))

    def close(self) -> None:
        """Stop the service."""
        if self._service is not None:
            self._loop.run_until_complete(self._service.stop())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _check(self, data: bytes) -> None:
        request = REQUESTS[data[0] % len(REQUESTS)] if data else REQUESTS[0]
        service = await self._running()
        await service.topics.create("t", 1, None)
        status, body = await self._answer(request, request.change(data[1:]))
        assert 200 <= status < 300 or 400 <= status < 500, (request, status, body)
        if status >= 400:
            answer = msgspec.json.decode(body)
            assert isinstance(answer["error_code"], int)
            assert isinstance(answer["message"], str)
        for name in sorted(service.topics):
            # Of whole batches only the CRC is checked, and `sealed` makes it correct.
            with suppress(*((DataError,) if request.change is sealed else ())):
                self._read(service, name)
            await service.topics.delete(name)

    def _read(self, service: LogService, topic: str) -> None:
        for number in service.topics.info(topic).partitions:
            list(service.store.scan(service.topics.partition(topic, number)))

    async def _running(self) -> LogService:
        if self._left == 0 and self._service is not None:
            await self._service.stop()
        if self._left == 0:
            settings = Settings(data=DATA, max_body_bytes=LIMIT_BYTES)
            self._service = LogService(settings, partial(open_in_memory, self._backend))
            self._app = App(self._service)
            await self._service.start()
            self._left = REQUESTS_A_STORE
        self._left -= 1
        assert self._service is not None
        return self._service

    async def _answer(self, request: Request, body: bytes) -> tuple[int, bytes]:
        headers = CIMultiDict({"Content-Type": request.content_type})
        headers["Content-Length"] = str(len(body))
        if request.encoding is not None:
            headers["Content-Encoding"] = request.encoding
        payload = StreamReader(self._payloads, 1 << 16, loop=self._loop)
        payload.feed_data(body)
        payload.feed_eof()
        message = RawRequestMessage(
            *(request.method, request.path, HttpVersion11, CIMultiDictProxy(headers), ()),
            *(False, None, False, False, URL(request.path, encoded=True)),
        )
        stub: Any = self._protocol
        response = await self._app(web.BaseRequest(message, payload, stub, stub, stub, self._loop))
        assert isinstance(response, web.Response)
        return response.status, bytes(cast("bytes", response.body) or b"")


_fronts: dict[str, Front] = {}


def check_body(backend: str, data: bytes) -> None:
    """Send a request to this backend's front."""
    if backend not in _fronts:
        _fronts[backend] = Front(backend)
    _fronts[backend].check(data)


def close_fronts() -> None:
    """Stop and drop the services of this process."""
    while _fronts:
        _fronts.popitem()[1].close()


BODIES: Final = (
    b'{"records":[{"value":"YWJj"},{"key":"a2V5","value":null}]}',
    b'{"records":[{"key":{"a":[1,2.5e3,null]},"value":"x","partition":0,"timestamp":1700000000000}]}',
    b'{"records":[{"key":"k","value":"v","headers":[{"key":"h","value":"eA=="}],"tag":"a"}]}',
    b'{"records":[{"value":"v","keys":["a","b"],"properties":{"p":"q"},"delay_level":0}]}',
    b'{"records":[{"value":1},{"value":2,"nothing":3}]}',
)
CONFIGS: Final = (
    b'{"partitions":2,"configs":{"retention.ms":60000,"cleanup.policy":"delete"}}',
    b'{"partitions":1,"configs":{"perm":"6","order":true}}',
    b'{"configs":{"retention.ms":null,"perm":null}}',
    b"{}",
)


def seeds() -> Sequence[bytes]:
    """Return valid bodies of each kind for each request."""
    found = []
    for number, request in enumerate(REQUESTS):
        if request.content_type == BATCH:
            bodies: Sequence[bytes] = sorted(batches(), key=len)[:6]
        elif request.content_type == "application/json":
            bodies = CONFIGS
        else:
            bodies = BODIES
        packed = request.encoding is not None and request.change is bytes
        found += [bytes([number]) + (gzip.compress(one) if packed else one) for one in bodies]
    return found


HTTP = Target(
    "http-bodies",
    [Check(f"http-{backend}", seeds, partial(check_body, backend), 100) for backend in BACKENDS],
    share=5,
)
