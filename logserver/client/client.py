"""The client: its connections, and all its calls.

Owns its life, and the calls that are made of several others; must not know connections and retries (`transport`) or
shapes of answers (`values`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, Self, Unpack
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from logserver.client.broadcast import BroadcastConsumer
from logserver.client.calls import RecordCalls
from logserver.client.groups import GroupCalls
from logserver.client.producer import IdempotentProducer
from logserver.client.queries import QueryCalls
from logserver.client.reading import ReadOptions, read_topic
from logserver.client.retries import RetryCalls
from logserver.client.transactions import TransactionCalls
from logserver.client.transport import Retry, Transport
from logserver.client.values import (
    BROKER_ID,
    Broker,
    Cluster,
    FetchedPage,
    FetchedRecord,
    PartitionReplicas,
    ProducerId,
    Start,
)
from storage import Isolation, StoredFile

TIMEOUT_S: Final = 30.0
FILES_AT_ONCE: Final = 1000


class _Files(Struct):
    files: Sequence[StoredFile]
    next: str | None


class LogClient(RecordCalls, QueryCalls, GroupCalls, RetryCalls, TransactionCalls):
    """A client of one running server. Use it as `async with`; calls may run concurrently.

    Every call may raise ServerRefused (the server answers with an error), ServerUnreachable (no answer) or
    StrangeAnswer; all are ClientErrors. `timeout_s` limits the wait for an answer, in addition to the time that a
    call lets the server wait. `tls` is for a server with a certificate that the system does not know, or that
    requires a client certificate.

    >>> async with LogClient(url) as client:
    ...     await client.produce("greetings", "hello")
    Placed(partition=0, offset=0, message_id=...)
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retry: Retry | None = None,
        tls: SSLContext | None = None,
    ) -> None:
        self.transport = Transport(
            url, token=token, timeout_s=timeout_s, retry=retry or Retry(), tls=tls
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    def producer(
        self, topic: str, *, give_up_s: float = 120.0, producer_id: ProducerId | None = None
    ) -> IdempotentProducer:
        """Return a producer that stores each record once, however often it has to send it.

        `producer_id`: an id of your own, for records that another process may have to send again (`send_again`).

        >>> async with client.producer("orders") as producer:
        ...     await producer.send("3 apples", key="ann")
        Placed(partition=0, offset=1, message_id=...)
        """
        return IdempotentProducer(self, topic, give_up_s=give_up_s, producer_id=producer_id)

    async def records(
        self,
        topic: str,
        partition: int | None = None,
        offset: Start = "earliest",
        **options: Unpack[ReadOptions],
    ) -> AsyncGenerator[FetchedRecord, None]:
        """Yield the records of a partition in order, or of all partitions in turn.

        Ends where the partitions ended at its start; with `follow` it waits for more records without an end. `tag`
        and `isolation` limit which records are returned. Damage in the store raises ServerRefused with code 50010.
        With `on_damage` this function is called with that error, and reading continues after the damage.

        >>> [record.text async for record in client.records("orders")]
        ['first']
        """
        async with aclosing(self.pages(topic, partition, offset, **options)) as pages:
            async for page in pages:
                for record in page.records:
                    yield record

    def pages(
        self,
        topic: str,
        partition: int | None = None,
        offset: Start = "earliest",
        **options: Unpack[ReadOptions],
    ) -> AsyncGenerator[FetchedPage, None]:
        """Yield the same records in pages, as they arrive: for work that is cheaper on many records. A page may be
        empty.
        """
        return read_topic(self, topic, partition, offset, **options)

    def broadcast(
        self,
        group: str,
        topics: Sequence[str],
        folder: Path,
        *,
        offset_reset: str = "earliest",
        isolation: Isolation | None = None,
    ) -> BroadcastConsumer:
        """Return a consumer that reads all partitions of these topics, and keeps its offsets in `folder`: RocketMQ's
        broadcast mode. See `BroadcastConsumer`.
        """
        return BroadcastConsumer(
            self, group, topics, folder, offset_reset=offset_reset, isolation=isolation
        )

    async def cluster(self, topic: str | None = None) -> Cluster:
        """Return the server as a cluster of one broker, with all topics or with one.

        >>> (await client.cluster("orders")).topics["orders"][0].leader
        1
        """
        names = await self.topics() if topic is None else [topic]
        topics = {name: (await self.topic(name)).partition_rows for name in names}
        leaders = [row.leader for rows in topics.values() for row in rows]
        own = Broker(leaders[0] if leaders else BROKER_ID, _host_and_port(self.transport.url))
        return Cluster(
            (own.id, f"{own.address}/{own.id}"),
            own.id,
            [own],
            {
                name: [
                    PartitionReplicas(row.partition, row.leader, [row.leader], [row.leader])
                    for row in rows
                ]
                for name, rows in topics.items()
            },
        )

    async def files(self) -> AsyncGenerator[StoredFile, None]:
        """Yield the files of the server's store, in order of their paths."""
        path: str | None = f"/store/files?limit={FILES_AT_ONCE}"
        while path is not None:
            page = await self.transport.json(_Files, "GET", path)
            for file in page.files:
                yield file
            path = page.next

    async def change_retention(self, settings: Mapping[str, str | None]) -> dict[str, Any]:
        """Change what the server deletes until it stops, under the names of the real server; None turns a setting off.

        Return all settings of retention.
        """
        body = msgspec.json.encode({"retention": settings})
        answer = await self.transport.call("PATCH", "/store", body=body)
        retention: dict[str, Any] = answer.decoded(dict[str, Any])["retention"]
        return retention

    async def store(self) -> dict[str, Any]:
        """Return a description of the server's store: backend, capabilities, findings of its last start, sizes.

        >>> (await client.store())["read_only"]
        False
        """
        return await self.transport.json(dict[str, Any], "GET", "/store")


def _host_and_port(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
