"""The calls for topics and their records: one typed method for each operation of the HTTP API.

Owns which request a call makes; must not know connections and retries (`transport`), shapes of answers (`values`), or
sequences of several calls (`reading`, `producer`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Unpack

import msgspec
from msgspec import Struct

from logserver.client.outgoing import RecordParts, Value, as_record, produce_body
from logserver.client.produced import ProduceStream, placed
from logserver.client.transport import (
    BINARY_JSON,
    RECORD_BATCH,
    Query,
    Response,
    Transport,
    partition_path,
    topic_path,
)
from logserver.client.values import (
    Delay,
    FetchedBatches,
    FetchedPage,
    FetchedRecord,
    OffsetRange,
    Placed,
    PlacedBatches,
    ProducedRow,
    ProducerId,
    Start,
    TopicDescription,
)
from logserver.errors import StrangeAnswer
from storage import Isolation, Record

CREATED: Final = 201


class _BatchesProduced(Struct):
    offsets: Sequence[PlacedBatches] | None


class RecordCalls:
    """The calls of LogClient for topics and their records."""

    transport: Transport

    # ---- topics ----------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """Return the names of all topics, in order.

        >>> await client.topics()
        ['orders']
        """
        return await self.transport.json(list[str], "GET", "/topics")

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic; return False if it exists in this shape (in another shape: ServerRefused 40901).

        >>> await client.create_topic("payments", partitions=2)
        True
        """
        asked: dict[str, object] = {"partitions": partitions, "configs": configs}
        body = {name: value for name, value in asked.items() if value is not None}
        answer = await self._send("PUT", topic_path(topic), body)
        return answer.status == CREATED

    async def topic(self, topic: str) -> TopicDescription:
        """Return a topic's partitions and configs.

        >>> (await client.topic("orders")).partitions
        [0]
        """
        return await self.transport.json(TopicDescription, "GET", topic_path(topic))

    async def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicDescription:
        """Set configs; a value of None resets a config to its default. Return the topic with its new configs."""
        answer = await self._send("PATCH", topic_path(topic), {"configs": configs})
        return answer.decoded(TopicDescription)

    async def add_partitions(self, topic: str, partitions: int) -> TopicDescription:
        """Raise the number of a topic's partitions to `partitions`; return the topic with them.

        >>> (await client.add_partitions("orders", 4)).partitions
        [0, 1, 2, 3]
        """
        path = f"{topic_path(topic)}/partitions"
        return (await self._send("POST", path, {"partitions": partitions})).decoded(
            TopicDescription
        )

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> OffsetRange:
        """Delete the records of a partition below an offset; return the offsets that are left (Kafka stores only)."""
        return await self.transport.json(
            OffsetRange,
            "DELETE",
            f"{partition_path(topic, partition)}/records",
            query={"before": before_offset},
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records."""
        await self.transport.call("DELETE", topic_path(topic))

    # ---- produce ---------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: Value,
        *,
        partition: int | None = None,
        delay: Delay | None = None,
        **parts: Unpack[RecordParts],
    ) -> Placed:
        """Store one record, durably as the server's flush mode requires. `delay`: see `produce_many`.

        Bytes are sent unchanged, text as UTF-8, None as no value, any other value as JSON. The request is not
        repeated after a failure: see `producer`.

        >>> await client.produce("orders", {"apples": 3}, key="ann", headers={"source": "web"})
        Placed(partition=0, offset=1, message_id=...)
        """
        record = as_record(value, **parts)
        (placed,) = await self.produce_many(topic, [record], partition=partition, delay=delay)
        return placed

    async def produce_many(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = None,
        acks: str | int = "all",
        compression: str | None = None,
        timeout_ms: int | None = None,
        idempotency_key: str | None = None,
        delay: Delay | None = None,
        transaction: str | None = None,
    ) -> list[Placed]:
        """Store records (see `as_record`) in one request. Return the place of each record, in their order.

        Without `partition` each record goes to the partition of its key. With `acks=0` the places are unknown and the
        list is empty. With an `idempotency_key`, your own name for the request, it is repeated after a failure and
        stored once within a day; this also holds if you repeat it. `transaction`: the id of the transaction that the
        records belong to. Raises PartlyStored if some records are rejected and others stored.

        With a `delay` the records are kept until their time, on RocketMQ's format: their places are PlacedLater.

        >>> placed = await client.produce_many("orders", [as_record("a"), as_record("b", key="k")])
        >>> [place.offset for place in placed]
        [1, 2]
        """
        query = {
            "acks": acks,
            "compression": compression,
            "timeout": timeout_ms,
            "transaction": transaction,
        }
        if delay is not None:
            query |= dict(zip(("delay_level", "deliver_at", "delay_ms"), delay, strict=True))
        return await self.produce_encoded(
            topic,
            produce_body(records),
            partition=partition,
            query=query,
            idempotency_key=idempotency_key,
        )

    async def produce_encoded(
        self,
        topic: str,
        body: bytes,
        *,
        partition: int | None,
        query: Query,
        idempotency_key: str | None = None,
    ) -> list[Placed]:
        """Send a produce body in the binary format; `produce_many` and the producers use this."""
        answer = await self.transport.call(
            "POST",
            topic_path(topic) if partition is None else partition_path(topic, partition),
            query=query,
            body=body,
            content_type=BINARY_JSON,
            wait_ms=_whole(query.get("timeout")),
            idempotency_key=idempotency_key,
        )
        return placed(answer)

    async def new_producer_id(self) -> ProducerId:
        """Return a new producer id, for a producer of your own; `producer` needs no id."""
        return await self.transport.json(ProducerId, "POST", "/producers")

    async def produce_batches(
        self,
        topic: str,
        partition: int,
        batches: bytes,
        *,
        acks: str | int = "all",
        transaction: str | None = None,
    ) -> PlacedBatches | None:
        """Store Kafka's record batches unchanged, all or none (Kafka stores only). Return None with `acks=0`.

        Transactional batches need the id of their `transaction`, and its producer in their headers.
        """
        answer = await self.transport.call(
            "POST",
            partition_path(topic, partition),
            query={"acks": acks, "transaction": transaction},
            body=batches,
            content_type=RECORD_BATCH,
        )
        rows = answer.decoded(_BatchesProduced).offsets
        return rows[0] if rows else None

    async def produce_stream(
        self,
        topic: str,
        records: Iterable[Record] | AsyncIterable[Record],
        *,
        partition: int | None = None,
        acks: str | int = "all",
        compression: str | None = None,
    ) -> AsyncGenerator[ProducedRow, None]:
        """Store any number of records over one connection, each as it comes. Yield rows as the records are stored, in
        order.

        A rejected record has its error in its row, and the stream continues. Raises ServerRefused if the stream as a
        whole cannot continue: then no record after the yielded rows is stored.

        >>> records = (as_record(f"{n} apples") for n in range(3))
        >>> [row.offset async for row in client.produce_stream("orders", records)]
        [1, 2, 3]
        """
        stream = ProduceStream(records)
        rows = stream.run(
            self.transport,
            topic_path(topic) if partition is None else partition_path(topic, partition),
            {"acks": acks, "compression": compression},
        )
        async with aclosing(rows):
            async for row in rows:
                yield row

    # ---- fetch -----------------------------------------------------------------------------------

    async def fetch(
        self,
        topic: str,
        partition: int = 0,
        offset: Start = "earliest",
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        min_bytes: int | None = None,
        timeout_ms: int = 0,
        isolation: Isolation | None = None,
        tag: str | None = None,
    ) -> FetchedPage:
        """Return one page of a partition from `offset`: a number, "earliest", "latest", "-N" (the last N) or "@ms" (a
        time).

        Waits up to `timeout_ms` for `min_bytes`. The page has at least one record if one is available.

        >>> page = await client.fetch("orders", offset="-1")
        >>> page.records[0].text, page.next_offset
        ('first', 1)
        """
        query = {
            "offset": offset,
            "max_records": max_records,
            "max_bytes": max_bytes,
            "min_bytes": min_bytes,
            "timeout": timeout_ms,
            "isolation": None if isolation is None else isolation.value,
            "tag": tag,
        }
        answer = await self._fetched(topic, partition, query, BINARY_JSON)
        return FetchedPage(answer.decoded(list[FetchedRecord]), *_bounds(answer), partition)

    async def fetch_batches(
        self,
        topic: str,
        partition: int = 0,
        offset: Start = "earliest",
        *,
        max_bytes: int | None = None,
        timeout_ms: int = 0,
    ) -> FetchedBatches:
        """Return whole record batches as they are stored, undecoded (Kafka stores only)."""
        query = {"offset": offset, "max_bytes": max_bytes, "timeout": timeout_ms}
        answer = await self._fetched(topic, partition, query, RECORD_BATCH)
        return FetchedBatches(answer.body, *_bounds(answer))

    async def _send(self, method: str, path: str, body: object) -> Response:
        return await self.transport.call(method, path, body=msgspec.json.encode(body))

    async def _fetched(self, topic: str, partition: int, query: Query, accept: str) -> Response:
        return await self.transport.call(
            "GET",
            f"{partition_path(topic, partition)}/records",
            query=query,
            accept=accept,
            wait_ms=_whole(query["timeout"]),
        )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _bounds(answer: Response) -> tuple[int, int, int]:
    """Return the next, beginning and end offset from an answer's headers."""
    try:
        next_offset, beginning, end = (
            int(answer.headers[name])
            for name in ("X-Next-Offset", "X-Beginning-Offset", "X-End-Offset")
        )
    except (KeyError, ValueError):
        raise StrangeAnswer(
            "the answer does not tell where to read on", status=answer.status
        ) from None
    return next_offset, beginning, end
