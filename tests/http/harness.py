"""Shared parts of the API tests: a server on a free port, a client, and stores that misbehave on purpose.

Owns how a test starts a server (in the test's own loop, on a real socket) and reads an answer; must not know what the
answer should be.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

import storage
from api.server import Server
from logserver.config import Address, Settings
from logserver.service.service import LogService
from storage import LogStore, StoreOptions
from storage.files import FileSystem

BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"
BATCH = "application/vnd.kafka.recordbatch.v2"
PROBLEM = "application/problem+json"

# Options for a store whose new topics have one partition, for backends with another default.
ONE_PARTITION: Mapping[str, Mapping[str, str]] = {"rocketmq": {"defaultTopicQueueNums": "1"}}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, read completely."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON and declared as JSON."""
        assert "json" in self.headers["Content-Type"]
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> int:
        """The code of an error body of the documented shape, whose status must agree."""
        body = self.json
        assert isinstance(body["message"], str)
        assert body["message"]
        code: int = body["error_code"]
        assert self.status == (code if code < 1000 else code // 100), (self.status, body)
        assert "Traceback" not in body["message"]
        return code


class Api:
    """A running server and a client of it."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.service = server.service
        self.session = session
        self.url = server.url

    async def call(self, method: str, path: str, **options: Any) -> Answer:
        """Send a request; the path is sent unchanged."""
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, *, accept: str | None = None) -> Answer:
        """Send a GET."""
        headers = {"Accept": accept} if accept is not None else {}
        return await self.call("GET", path, headers=headers)

    async def post(
        self, path: str, body: object, *, content_type: str | None = JSON, accept: str = "*/*"
    ) -> Answer:
        """Send a POST of unchanged bytes, or of any other value as JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"Accept": accept}
        if content_type is not None:
            headers["Content-Type"] = content_type
        # The client warns about large bytes objects; a file with the same bytes is sent identically.
        sent = data if len(data) < 1 << 20 else io.BytesIO(data)
        return await self.call(
            "POST", path, data=sent, headers=headers, skip_auto_headers=["Content-Type"]
        )

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic that does not exist yet."""
        body = {
            "partitions": partitions,
            "configs": {name.replace("_", "."): value for name, value in configs.items()},
        }
        answer = await self.call("PUT", f"/topics/{topic}", json=body)
        assert answer.status == 201, answer.body

    async def until_waiting(self, count: int = 1) -> None:
        """Wait until `count` fetches wait for records."""
        while self.service.waiters.count < count:  # noqa: ASYNC110  # the service has no event for tests
            await asyncio.sleep(0.001)

    async def until_none_waits(self) -> None:
        """Wait until no fetch waits for records."""
        while self.service.waiters.count:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    async def until_queued(self, count: int) -> None:
        """Wait until `count` requests are queued after a group that is held up."""
        while self.service.queued < count:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    async def until_connected(self, count: int) -> None:
        """Wait until `count` connections are open."""
        while self.server.connections != count:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    async def until_free(self) -> None:
        """Wait until no request holds bytes."""
        while self.service.budget.held_bytes:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    @asynccontextmanager
    async def connection(
        self, **options: Any
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a connection for raw bytes, and close it at the end, whether the test passes or fails.

        The garbage collector would report a connection that is left open, in another test.
        """
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), **options)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster in the v3 API."""
        return self.service.cluster_id

    @property
    def backend(self) -> str:
        """The name of the store's backend."""
        return self.service.store.capabilities.backend

    @property
    def keeps_messages(self) -> bool:
        """Whether records are RocketMQ messages, with the features and limits of messages."""
        return self.service.store.capabilities.messages

    async def values(self, topic: str, partition: int = 0) -> list[Any]:
        """Return every value of a partition, decoded from JSON."""
        answer = await self.get(f"/topics/{topic}/partitions/{partition}/records", accept=JSON)
        assert answer.status == 200, answer.body
        return [row["value"] for row in answer.json]


def records(*values: object, **common: object) -> dict[str, object]:
    """Return a produce body with these values."""
    return {"records": [{"value": value, **common} for value in values]}


async def fetched(api: Api, topic: str = "t", query: str = "") -> list[dict[str, object]]:
    """Return the rows of a topic's first partition, keys and values in base64."""
    answer = await api.get(f"/topics/{topic}/partitions/0/records{query}", accept=BINARY)
    assert answer.status == 200, answer.body
    rows: list[dict[str, object]] = answer.json
    return rows


def without_ids(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of a produce answer without message ids, which only some stores report."""
    return [{name: value for name, value in row.items() if name != "message_id"} for row in rows]


def for_any_bytes(api: Api) -> None:
    """Skip the test if records are messages, which cannot represent its data."""
    if api.keeps_messages:
        pytest.skip("a message keeps no null value, nor an empty or binary key or header")


def b64(data: bytes) -> str:
    """Return bytes in their JSON form."""
    return base64.b64encode(data).decode()


def settings(data: Path, **changed: Any) -> Settings:
    """Return settings of a server on a free port."""
    return Settings(data=data, listen=Address("127.0.0.1", 0), **changed)


def opener(
    backend: str,
    chosen: Settings,
    *,
    read_only: bool = False,
    clock: storage.Clock = storage.wall_clock_ms,
    fs: FileSystem | None = None,
) -> Callable[..., LogStore]:
    """Return a function that opens a store of a backend as the server would. `fs`: another file layer."""

    def open_it(progress: storage.Progress) -> LogStore:
        options = StoreOptions(settings=chosen.set, progress=progress)
        return storage.open_store(
            backend, chosen.data, options, read_only=read_only, clock=clock, fs=fs
        )

    return open_it


@asynccontextmanager
async def serving(
    chosen: Settings,
    open_it: Callable[..., LogStore],
    *,
    wait: bool = True,
    clock: storage.Clock = storage.wall_clock_ms,
) -> AsyncIterator[Api]:
    """Run a server from start to stop; with `wait` its store is open."""
    server = Server(LogService(chosen, open_it, clock=clock))
    await server.listen()
    if wait:
        await server.service.start()
    async with aiohttp.ClientSession() as session:
        try:
            yield Api(server, session)
        finally:
            await session.close()
            await server.stop()
