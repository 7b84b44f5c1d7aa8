"""Reading with librdkafka: one partition from an offset, and as a member of a group.

Owns the consumers, and which messages are records, ends or errors; must not know where a reading starts or ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Self

from logserver.client.consumer import GroupConsumer
from logserver.client.kafka.connection import POLL_S, Connection
from logserver.client.values import FetchedPage, FetchedRecord, _HeaderRow
from storage import Isolation, TopicPartition

PAGE_RECORDS: Final = 1000
JOIN_S: Final = 10.0  # for a member's first assignment
READER: Final = "logserver-reader"  # of a consumer that is in no group; nothing is committed
TAG_HEADER, KEYS_HEADER = "TAGS", "KEYS"


def record_of(message: Any) -> FetchedRecord:
    """Return a record as LogClient returns it."""
    headers = [_HeaderRow(name, value) for name, value in message.headers() or ()]
    named = {row.key: (row.value or b"").decode("utf-8", "replace") for row in headers}
    return FetchedRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        header_rows=headers,
        tag=named.get(TAG_HEADER),
        lookup_keys=named.get(KEYS_HEADER, "").split(),
    )


class _Consumer:
    """A consumer of librdkafka, and the ends that it has seen."""

    def __init__(self, connection: Connection, **options: object) -> None:
        self.connection = connection
        self.raw = connection.created(
            connection.kafka.Consumer,
            enable_auto_commit=False,
            enable_partition_eof=True,
            **options,
        )
        self.ends: dict[TopicPartition, int] = {}

    def take(self, limit: int) -> list[FetchedRecord]:
        """Return the next records; none if none came within POLL_S. Raises KafkaException. Blocks."""
        first = self.raw.poll(POLL_S)
        if first is None:
            return []
        messages = [first, *(self.raw.consume(limit - 1, 0) if limit > 1 else ())]
        records = []
        for message in messages:
            error = message.error()
            at = TopicPartition(message.topic() or "", message.partition() or 0)
            if error is None:
                records.append(record_of(message))
                self.ends.pop(at, None)
            elif error.name() == "_PARTITION_EOF":
                self.ends[at] = message.offset()
            else:
                raise self.connection.kafka.KafkaException(error)
        return records


class PartitionReader:
    """Reads one partition, page after page."""

    def __init__(
        self, connection: Connection, partition: TopicPartition, isolation: Isolation | None
    ) -> None:
        self._partition = partition
        self._consumer = _Consumer(
            connection,
            group_id=READER,
            auto_offset_reset="error",
            isolation_level=(isolation or Isolation.READ_COMMITTED).value,
        )
        self.next_offset = -1

    def _place(self, offset: int) -> Any:
        return self._consumer.connection.kafka.TopicPartition(*self._partition, offset)

    async def page(self, offset: int, end: int, wait_s: float, limit: int) -> FetchedPage:
        """Return the records at an offset: at least one, unless `wait_s` passes or, with 0, the end is reached.

        `end`: the end of the partition as the caller knows it.
        """
        call, raw = self._consumer.connection.call, self._consumer.raw
        if offset != self.next_offset:
            await call(raw.assign, [self._place(offset)])
            self._consumer.ends.clear()
            self.next_offset = offset
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (wait_s or self._consumer.connection.timeout_s)
        records: list[FetchedRecord] = []
        while not records and loop.time() < until_s:
            records = await call(self._consumer.take, limit)
            reached = self._consumer.ends.get(self._partition)
            if records:
                self.next_offset = records[-1].offset + 1
            if reached is not None:
                self.next_offset = max(self.next_offset, reached)
                if not wait_s or not records:
                    break
        low, high = await call(raw.get_watermark_offsets, self._place(0), cached=True)
        return FetchedPage(
            records,
            self.next_offset,
            max(low, 0),
            max(high, end, self.next_offset),
            self._partition.partition,
        )

    async def close(self) -> None:
        """End the consumer."""
        await self._consumer.connection.call(self._consumer.raw.close)


class KafkaMember(GroupConsumer):
    """A member of a group; see GroupConsumer. It gets partitions from the members' own assignment."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        *,
        topics: Sequence[str],
        pattern: str | None,
        partitions: Sequence[TopicPartition],
        offset_reset: str,
        isolation: Isolation | None,
    ) -> None:
        self._connection = connection
        self._consumer = _Consumer(
            connection,
            group_id=group,
            auto_offset_reset=offset_reset,
            isolation_level=(isolation or Isolation.READ_COMMITTED).value,
        )
        self._topics = list(topics) if pattern is None else [f"^({pattern})$"]
        self._chosen = partitions
        self._taken = {}
        self.name = group

    async def __aenter__(self) -> Self:
        kafka, raw = self._connection.kafka, self._consumer.raw
        if self._chosen:
            stored = [kafka.TopicPartition(*at, kafka.OFFSET_STORED) for at in self._chosen]
            await self._connection.call(raw.assign, stored)
        else:
            await self._connection.call(raw.subscribe, self._topics)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._connection.call(self._consumer.raw.close)

    async def poll(
        self,
        *,
        timeout_ms: int = 1000,
        max_bytes: int | None = None,
        max_records: int | None = None,
    ) -> list[FetchedRecord]:
        """Return the next records; an empty list if none arrived in time. The time begins when the member has read its
        partitions to their ends, or after JOIN_S.
        """
        loop = asyncio.get_running_loop()
        settled_s = loop.time() + JOIN_S
        while True:
            records: list[FetchedRecord] = await self._connection.call(
                self._consumer.take, max_records or PAGE_RECORDS
            )
            if records:
                self._taken |= {record.stored_in: record.offset for record in records}
                return records
            now_s = loop.time()
            assigned = await self.assigned()
            if assigned and self._consumer.ends.keys() >= set(assigned):
                settled_s = min(settled_s, now_s)
            if now_s >= settled_s + timeout_ms / 1000:
                return []

    async def commit(self) -> None:
        """Commit all records taken."""
        taken, self._taken = self._taken, {}
        if taken:
            make = self._connection.kafka.TopicPartition
            offsets = [make(*at, offset + 1) for at, offset in taken.items()]
            await self._connection.call(
                self._consumer.raw.commit, offsets=offsets, asynchronous=False
            )

    async def assigned(self) -> list[TopicPartition]:
        """Return the partitions that the member has at the moment."""
        found = await self._connection.call(self._consumer.raw.assignment)
        return [TopicPartition(at.topic, at.partition) for at in found]

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue at these offsets."""
        for at, offset in positions.items():
            place = self._connection.kafka.TopicPartition(*at, offset)
            await self._connection.call(self._consumer.raw.seek, place)

    async def _seek(self, where: str, body: object, partitions: Collection[TopicPartition]) -> None:
        special = {"positions/beginning": -2, "positions/end": -1}[where]
        await self.seek(dict.fromkeys(partitions, special))
