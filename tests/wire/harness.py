"""A server with a port for Kafka clients, and a client of single requests.

Owns how a request is framed and its answer read, in any version; must not know what the answer should be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from api.kafka.protocol.messages import APIS, Message
from api.kafka.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
)
from api.kafka.protocol.messages.metadata import MetadataRequest
from api.kafka.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from api.kafka.protocol.primitives import Reader, Writer
from logserver.config import Address
from storage.files import FileSystem
from storage.kafka.format.batch import decode_records, encode_batch, split_batches
from storage.model import Record
from tests.http.harness import Api, opener, serving, settings

API_VERSIONS = 18
BACKENDS = ("kafka", "rocketmq")
OPTIONS: Mapping[str, Sequence[str]] = {
    "kafka": ("--backend", "kafka"),
    "rocketmq": ("--backend", "rocketmq", "--set", "defaultTopicQueueNums=1"),
}
"""The options of a server whose topics have one partition by default, in either format."""
BOTH = pytest.mark.parametrize("kafka", BACKENDS, indirect=True)
"""Run a test on a store in either format."""
FREE = Address("127.0.0.1", 0)


def frame(message: Any, version: int, correlation_id: int = 7, client_id: str = "test") -> bytes:
    """Return the bytes of a request, with the size before them."""
    api = APIS[message.API_KEY]
    writer = Writer(flexible=version >= api.flexible_from)
    writer.int16(api.key)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.plain_nullable_string(client_id)
    writer.end_struct()
    message.write(writer, version)
    body = b"".join(writer.parts)
    return len(body).to_bytes(4, "big") + body


def answer(key: int, version: int, body: bytes, correlation_id: int = 7) -> Any:
    """Return the response message in the bytes of an answer."""
    api = APIS[key]
    reader = Reader(body, flexible=version >= api.flexible_from)
    assert reader.int32() == correlation_id
    if key != API_VERSIONS:
        reader.skip_tags()
    response: Message = api.response.read(reader, version)
    assert reader.left == 0
    return response


class Connection:
    """A connection of a client that sends what the test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def call(self, message: Any, version: int | None = None) -> Any:
        """Send a request, and return its response; `version` None: the newest of the table."""
        chosen = APIS[message.API_KEY].last if version is None else version
        self.writer.write(frame(message, chosen))
        return answer(message.API_KEY, chosen, await self.read())

    async def name_by_id(self, *topics: Any) -> Mapping[bytes, str]:
        """Let topics of a request be named by id too, one without a topic by an unknown id. Return the names by id."""
        found = await self.call(MetadataRequest(topics=None), 12)
        ids = {topic.name: topic.topic_id for topic in found.topics}
        for topic in topics:
            topic.topic_id = ids.get(topic.name, b"\7" * 16)
        return {topic.topic_id: topic.name for topic in topics}

    async def read(self) -> bytes:
        """Return the next answer."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def is_ended(self) -> bool:
        """Wait for the end of the connection; False: bytes came instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


class Broker:
    """A running server with a port for Kafka clients."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.service = api.service
        assert api.server.kafka is not None
        self.listener = api.server.kafka
        self.address = self.listener.address
        self.keeps_batches = api.service.store.capabilities.batch_bytes
        """Whether the store has Kafka's format."""

    def offers(self, key: int, version: int) -> bool:
        """Return whether a version of an API is offered."""
        served = self.listener.dispatcher.served[key]
        return served.first <= version <= served.last

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Connection]:
        """Open a connection, and close it at the end."""
        host, port = self.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port), **options)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def until_connected(self, count: int) -> None:
        """Wait until `count` connections are open."""
        while self.listener.open_connections != count:  # noqa: ASYNC110  # the listener has no event for tests
            await asyncio.sleep(0.001)


@asynccontextmanager
async def broker(
    path: Path, backend: str = "kafka", *, fs: FileSystem | None = None, **changed: Any
) -> AsyncIterator[Broker]:
    """Run a server on a new store, or on one of this format. `fs`: another file layer."""
    chosen = settings(path, **{"listen_kafka": FREE, **changed})
    async with serving(chosen, opener(backend, chosen, fs=fs)) as api:
        await api.server.listen_kafka()
        yield Broker(api)


def batch(*values: bytes, codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """Return a record batch as a client sends it; `producer`: id, epoch and first sequence number."""
    producer_id, producer_epoch, base_sequence = producer
    records = [Record(None, value, timestamp_ms=1_700_000_000_000) for value in values]
    return encode_batch(
        records,
        base_offset=0,
        leader_epoch=-1,
        now_ms=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def produce(
    topic: str, *parts: tuple[int, bytes | None], acks: int = -1, timeout_ms: int = 5000
) -> ProduceRequest:
    """Return a produce request for partitions of one topic."""
    rows: Sequence[Any] = [
        ProduceRequestPartitionProduceData(index=number, records=data) for number, data in parts
    ]
    topics = [ProduceRequestTopicProduceData(name=topic, partition_data=list(rows))]
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=topics
    )


def fetch(topic: str, *parts: tuple[int, int], **options: Any) -> FetchRequest:
    """Return a fetch of partitions of one topic, each from an offset."""
    wishes = [
        FetchRequestPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in parts
    ]
    topics = [FetchRequestTopic(topic=topic, partitions=wishes)] if parts else []
    return FetchRequest(**{"topics": topics, "min_bytes": 1, "max_wait_ms": 0, **options})


def values(data: bytes) -> list[bytes | None]:
    """Return the values of the records in batches, without markers of transactions."""
    return [
        record[3]
        for at, header in split_batches(data)
        if not header.is_control
        for record in decode_records(data, at)
    ]
