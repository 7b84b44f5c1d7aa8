"""What the API tests share: a server of ours on a free port, a client, and stores that misbehave on
purpose.

Owns how a test starts a server (in the test's own loop, on a real socket) and reads an answer; must
not know what the answer should be.
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
from logserver.cluster import cluster_id
from logserver.config import Address, Settings
from logserver.service import LogService
from storage import LogStore, StoreOptions

BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"
BATCH = "application/vnd.kafka.recordbatch.v2"
PROBLEM = "application/problem+json"

# The options of a store whose new topics have one partition, where that is not the default.
ONE_PARTITION: Mapping[str, Mapping[str, str]] = {"rocketmq": {"defaultTopicQueueNums": "1"}}


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON and say so."""
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
        """One request; the path is sent as it is written."""
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, *, accept: str | None = None) -> Answer:
        """GET"""
        headers = {"Accept": accept} if accept is not None else {}
        return await self.call("GET", path, headers=headers)

    async def post(
        self, path: str, body: object, *, content_type: str | None = JSON, accept: str = "*/*"
    ) -> Answer:
        """POST of bytes as they are, or of anything else as JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"Accept": accept}
        if content_type is not None:
            headers["Content-Type"] = content_type
        # The client warns of large bytes; a file of them is the same on the wire.
        sent = data if len(data) < 1 << 20 else io.BytesIO(data)
        return await self.call(
            "POST", path, data=sent, headers=headers, skip_auto_headers=["Content-Type"]
        )

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """A topic that is not there yet."""
        body = {
            "partitions": partitions,
            "configs": {name.replace("_", "."): value for name, value in configs.items()},
        }
        answer = await self.call("PUT", f"/topics/{topic}", json=body)
        assert answer.status == 201, answer.body

    async def until_waiting(self, count: int = 1) -> None:
        """Until so many fetches wait for records."""
        while self.service.waiting < count:  # noqa: ASYNC110  # the service has no event for tests
            await asyncio.sleep(0.001)

    async def until_queued(self, count: int) -> None:
        """Until so many requests wait behind a group that is held up."""
        while self.service.queued < count:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    async def until_connected(self, count: int) -> None:
        """Until so many connections are open."""
        while self.server.connections != count:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    async def until_free(self) -> None:
        """Until no request holds bytes any more."""
        while self.service.budget.held_bytes:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)

    @asynccontextmanager
    async def connection(
        self, **options: Any
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection for bytes as they are; closed at the end, whatever the test has met. What is left
        open is found by the collector, in another test.
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
        """What the v3 API calls the cluster."""
        return cluster_id(self.service.store)

    @property
    def backend(self) -> str:
        """The name of the store's backend."""
        return self.service.store.capabilities.backend

    @property
    def keeps_messages(self) -> bool:
        """Whether records are RocketMQ's messages, with all that these have and have not."""
        return self.service.store.capabilities.messages

    async def values(self, topic: str, partition: int = 0) -> list[Any]:
        """Every value of a partition, as JSON."""
        answer = await self.get(f"/topics/{topic}/partitions/{partition}/records", accept=JSON)
        assert answer.status == 200, answer.body
        return [row["value"] for row in answer.json]


def records(*values: object, **common: object) -> dict[str, object]:
    """A produce body with these values."""
    return {"records": [{"value": value, **common} for value in values]}


async def fetched(api: Api, topic: str = "t", query: str = "") -> list[dict[str, object]]:
    """The rows of a topic's first partition, keys and values in base64."""
    answer = await api.get(f"/topics/{topic}/partitions/0/records{query}", accept=BINARY)
    assert answer.status == 200, answer.body
    rows: list[dict[str, object]] = answer.json
    return rows


def without_ids(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a produce answer as a store gives them that tells no ids."""
    return [{name: value for name, value in row.items() if name != "message_id"} for row in rows]


def for_any_bytes(api: Api) -> None:
    """Skip where records are messages, which cannot keep what the test is about."""
    if api.keeps_messages:
        pytest.skip("a message keeps no null value, nor an empty or binary key or header")


def b64(data: bytes) -> str:
    """As JSON carries bytes."""
    return base64.b64encode(data).decode()


def settings(data: Path, **changed: Any) -> Settings:
    """Settings of a server on a free port."""
    return Settings(data=data, listen=Address("127.0.0.1", 0), **changed)


def opener(backend: str, chosen: Settings, *, read_only: bool = False) -> Callable[..., LogStore]:
    """Opens a store of a backend as the server would."""

    def open_it(progress: storage.Progress) -> LogStore:
        options = StoreOptions(settings=chosen.set, progress=progress)
        return storage.open_store(backend, chosen.data, options, read_only=read_only)

    return open_it


@asynccontextmanager
async def serving(
    chosen: Settings,
    open_it: Callable[..., LogStore],
    *,
    wait: bool = True,
    clock: storage.Clock = storage.wall_clock_ms,
) -> AsyncIterator[Api]:
    """A server from start to stop; with `wait` its store is open."""
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
