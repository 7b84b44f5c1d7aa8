"""KafkaClient: the calls of LogClient for topics, records and groups, over Kafka's protocol.

Owns the translation of these calls; must not print or know a command. A call that only the HTTP API has raises
NotOffered. Records go to partitions as with the Java client: by murmur2 of the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from logserver.client.client import LogClient
from logserver.client.groups import GroupDescription
from logserver.client.kafka.connection import METADATA_S, Connection, library
from logserver.client.kafka.groups import KafkaGroups
from logserver.client.kafka.reading import (
    KEYS_HEADER,
    PAGE_RECORDS,
    TAG_HEADER,
    KafkaMember,
    PartitionReader,
)
from logserver.client.transport import Transport
from logserver.client.values import (
    Broker,
    Cluster,
    Delay,
    FetchedPage,
    OffsetRange,
    PartitionNumber,
    PartitionReplicas,
    Placed,
    Start,
    TopicDescription,
)
from logserver.errors import PartlyStored, ServerRefused, ServerUnreachable
from storage import Isolation, Record, StoredFile, TimedOffset, TopicPartition
from storage.errors import InvalidArgument, NotOffered, UnknownPartition, UnknownTopic

SET_BY_TOPIC: Final = 1  # source of a config: DYNAMIC_TOPIC_CONFIG
TOPIC_EXISTS: Final = 40901
OUT_OF_RANGE: Final = 41601
FLUSH_S: Final = 0.2
CODECS: Final = frozenset({"none", "gzip", "snappy", "lz4", "zstd"})


class _NoHttp:
    """In place of HTTP connections: every use says that the call needs the HTTP API."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise NotOffered(
            "this needs the HTTP API of a server: give its URL in place of HOST:PORT",
            feature="kafka",
        )


class KafkaClient(LogClient):
    """A client of the Kafka brokers at HOST:PORT[,HOST:PORT...]. Use it as `async with`.

    `properties`: librdkafka's. Raises NotOffered if confluent-kafka is not installed.
    """

    def __init__(
        self, brokers: str, properties: Mapping[str, str] | None = None, *, timeout_s: float
    ) -> None:
        self.transport = cast("Transport", _NoHttp())
        self._connection = Connection(brokers, properties or {}, timeout_s)
        self._library = library("confluent_kafka.admin")
        self._admin = self._connection.created(self._library.AdminClient)
        self._connection.listen = self._admin.poll
        self._readers: dict[tuple[TopicPartition, Isolation | None], PartitionReader] = {}
        self._producers: dict[tuple[str, str | None], Any] = {}
        self._groups = KafkaGroups(self._connection, self._admin, self)

    async def close(self) -> None:
        """End the consumers, and wait for the producers."""
        for reader in self._readers.values():
            await reader.close()
        self._readers.clear()

    # ---- topics ----

    async def cluster(self, topic: str | None = None) -> Cluster:
        """Return the brokers, with all topics or with one."""
        wait_s = min(METADATA_S, self._connection.timeout_s)
        found = await self._connection.call(self._admin.list_topics, timeout=wait_s)
        if topic is not None and topic not in found.topics:
            raise _refused(UnknownTopic(topic).message, 40401, topic=topic)
        return Cluster(
            (found.orig_broker_id, found.orig_broker_name),
            found.controller_id,
            [Broker(id_, f"{at.host}:{at.port}") for id_, at in sorted(found.brokers.items())],
            {
                name: [_replicas(row) for _, row in sorted(known.partitions.items())]
                for name, known in sorted(found.topics.items())
                if topic in {None, name}
            },
        )

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list((await self.cluster()).topics)

    async def _rows(self, topic: str) -> Sequence[PartitionNumber]:
        rows = (await self.cluster(topic)).topics[topic]
        return [PartitionNumber(row.partition, row.leader) for row in rows]

    async def topic(self, topic: str) -> TopicDescription:
        """Return a topic's partitions, and the configs that were set."""
        rows = await self._rows(topic)
        resource = self._library.ConfigResource("topic", topic)
        (asked,) = self._admin.describe_configs([resource]).values()
        entries = await self._connection.done(asked, topic)
        configs = {
            name: entry.value for name, entry in entries.items() if entry.source == SET_BY_TOPIC
        }
        return TopicDescription(topic, configs, rows)

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic; return False if it exists in this shape."""
        new = self._library.NewTopic(topic, partitions or -1, -1, config=dict(configs or {}))
        (asked,) = self._admin.create_topics([new]).values()
        try:
            await self._connection.done(asked, topic)
        except ServerRefused as error:
            if error.error_code != TOPIC_EXISTS:
                raise
            found = await self.topic(topic)
            if partitions not in {None, len(found.partitions)} or (
                configs is not None and dict(configs) != found.configs
            ):
                raise
            return False
        return True

    async def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicDescription:
        """Set configs; None resets a config. Return the topic with its new configs."""
        kinds, entry = self._library.AlterConfigOpType, self._library.ConfigEntry
        changes = [
            entry(
                name,
                value,
                incremental_operation=kinds.DELETE if value is None else kinds.SET,
            )
            for name, value in configs.items()
        ]
        resource = self._library.ConfigResource("topic", topic, incremental_configs=changes)
        (asked,) = self._admin.incremental_alter_configs([resource]).values()
        await self._connection.done(asked, topic)
        return await self.topic(topic)

    async def add_partitions(self, topic: str, partitions: int) -> TopicDescription:
        """Raise the number of a topic's partitions."""
        new = self._library.NewPartitions(topic, partitions)
        (asked,) = self._admin.create_partitions([new]).values()
        await self._connection.done(asked, topic)
        return await self.topic(topic)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records."""
        (asked,) = self._admin.delete_topics([topic]).values()
        await self._connection.done(asked, topic)

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> OffsetRange:
        """Delete the records of a partition below an offset; return the offsets that are left."""
        place = self._connection.kafka.TopicPartition(topic, partition, before_offset)
        (asked,) = self._admin.delete_records([place]).values()
        await self._connection.done(asked, topic)
        return await self.offsets(topic, partition)

    async def files(self) -> AsyncGenerator[StoredFile, None]:
        """Yield nothing: the files of a broker are not shown to its clients."""
        none: Sequence[StoredFile] = ()
        for file in none:
            yield file

    # ---- offsets ----

    async def _listed(self, topic: str, partition: int, *specs: Any) -> list[Any]:
        numbers = [row.partition for row in await self._rows(topic)]
        if partition not in numbers:
            error = UnknownPartition(topic, partition, len(numbers))
            raise _refused(error.message, 40402, topic=topic, partition=partition)
        place = self._connection.kafka.TopicPartition(topic, partition)
        asked = [self._admin.list_offsets({place: spec})[place] for spec in specs]
        return [await self._connection.done(future, topic) for future in asked]

    async def offsets(self, topic: str, partition: int = 0) -> OffsetRange:
        """Return the first offset of a partition, and the next offset to be assigned."""
        spec = self._library.OffsetSpec
        first, end = await self._listed(topic, partition, spec.earliest(), spec.latest())
        return OffsetRange(first.offset, end.offset)

    async def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> TimedOffset | None:
        """Return the first record at or after a time; None if there is no such record."""
        spec = self._library.OffsetSpec.for_timestamp(timestamp_ms)
        (found,) = await self._listed(topic, partition, spec)
        return None if found.offset < 0 else TimedOffset(found.offset, found.timestamp)

    async def start(self, topic: str, partition: int, offset: Start) -> int:
        """Return the offset that a start means. Raises ServerRefused 41601 for an offset out of range."""
        held = await self.offsets(topic, partition)
        first, end = held.beginning_offset, held.end_offset
        if isinstance(offset, str) and offset.startswith("@"):
            found = await self.offset_for_time(topic, partition, int(offset[1:]))
            return end if found is None else found.offset
        if offset in {"earliest", "latest"}:
            return first if offset == "earliest" else end
        number = int(offset)
        if number < 0:
            return max(end + number, first)
        if not first <= number <= end:
            message = f"{topic}-{partition} has no offset {number}: it has {first} to {end}"
            raise _refused(message, OUT_OF_RANGE, earliest=first, latest=end)
        return number

    # ---- records ----

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
        """Return one page of a partition; see LogClient.fetch. `max_bytes` and `min_bytes` are librdkafka's."""
        at = TopicPartition(topic, partition)
        reader = self._readers.get((at, isolation))
        end = 0
        if reader is None or offset != reader.next_offset:
            offset = await self.start(topic, partition, offset)
            end = (await self.offsets(topic, partition)).end_offset
        if reader is None:
            reader = PartitionReader(self._connection, at, isolation)
            self._readers[at, isolation] = reader
        page = await reader.page(int(offset), end, timeout_ms / 1000, max_records or PAGE_RECORDS)
        if tag is not None:
            page = page._replace(records=[one for one in page.records if one.tag == tag])
        return page

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
        """Store records. Return the place of each; none with `acks=0`. Raises PartlyStored."""
        if delay is not None or transaction is not None or idempotency_key is not None:
            feature = "a delay, a transaction and an idempotency key"
            raise NotOffered(f"{feature} need the HTTP API: give its URL", feature="kafka")
        if compression is not None and compression not in CODECS:
            raise InvalidArgument(f"{compression} is no codec of Kafka", field="compression")
        given = list(records)
        results: list[Placed | Any] = [None] * len(given)

        def delivered(index: int, error: Any, message: Any) -> None:
            results[index] = error or Placed(message.partition(), message.offset())

        producer = self._producer(str(acks), compression)
        for index, record in enumerate(given):
            send = partial(_send, producer, topic, record, partition, partial(delivered, index))
            await self._connection.call(send)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._connection.timeout_s + FLUSH_S
        while await self._connection.call(producer.flush, FLUSH_S):
            if loop.time() > until_s:
                brokers = self._connection.brokers
                raise ServerUnreachable(f"no answer from {brokers} in time", url=brokers)
        self._check(topic, results)
        return [] if str(acks) == "0" else results

    def _check(self, topic: str, results: Sequence[Placed | Any]) -> None:
        """Raise the error of the first record that was not stored."""
        wrong = [result for result in results if not isinstance(result, Placed)]
        if not wrong:
            return
        error = self._connection.error(wrong[0], topic)
        if len(wrong) == len(results) or not isinstance(error, ServerRefused):
            raise error
        message = f"{len(wrong)} of {len(results)} records were not stored: {error.message}"
        raise PartlyStored(
            message, status=error.status, error_code=error.error_code, answer=error.facts()
        )

    def _producer(self, acks: str, compression: str | None) -> Any:
        key = (acks, compression)
        if key not in self._producers:
            self._producers[key] = self._connection.created(
                self._connection.kafka.Producer,
                acks=acks,
                compression_type=compression or "none",
                partitioner="murmur2_random",
                message_timeout_ms=int(self._connection.timeout_s * 1000),
            )
        return self._producers[key]

    # ---- groups ----

    def consumer(
        self,
        group: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        partitions: Sequence[TopicPartition] = (),
        name: str | None = None,
        offset_reset: str = "earliest",
        isolation: Isolation | None = None,
        invisible_ms: int | None = None,
    ) -> KafkaMember:
        """Return a member of a consumer group. `name` has no meaning, `invisible_ms` is for the HTTP API."""
        if invisible_ms is not None:
            raise NotOffered("invisible_ms needs the HTTP API: give its URL", feature="kafka")
        return KafkaMember(
            self._connection,
            group,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            offset_reset=offset_reset,
            isolation=isolation,
        )

    async def groups(self) -> list[str]:
        """Return the groups that have members or committed offsets."""
        return await self._groups.names()

    async def group(self, group: str) -> GroupDescription:
        """Return a group's members and progress."""
        return await self._groups.describe(group)

    async def reset_group(
        self,
        group: str,
        to: Start,
        *,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Move a group without members to other offsets. Return the new offsets."""
        return await self._groups.reset(group, to, topic, partitions)

    async def delete_group(self, group: str) -> None:
        """Delete a group without members."""
        await self._groups.delete(group)


def _replicas(row: Any) -> PartitionReplicas:
    problem = None if row.error is None else row.error.str()
    return PartitionReplicas(row.id, row.leader, row.replicas, row.isrs, problem)


def _send(
    producer: Any,
    topic: str,
    record: Record,
    partition: int | None,
    delivered: Callable[[Any, Any], None],
) -> None:
    """Give a record to librdkafka; waits while its queue is full."""
    headers = list(record.headers)
    if record.tag is not None:
        headers.append((TAG_HEADER, record.tag.encode()))
    if record.lookup_keys:
        headers.append((KEYS_HEADER, " ".join(record.lookup_keys).encode()))
    options: dict[str, Any] = {} if partition is None else {"partition": partition}
    if record.timestamp_ms is not None:
        options["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=headers,
                on_delivery=delivered,
                **options,
            )
        except BufferError:
            producer.poll(FLUSH_S)
        else:
            return


def _refused(message: str, code: int, **facts: object) -> ServerRefused:
    return ServerRefused(message, status=code // 100, error_code=code, answer=facts)
