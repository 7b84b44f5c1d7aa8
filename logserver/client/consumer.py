"""A member of a consumer group: reads its share of the topics, and commits the records that it has read.

Owns the life of one consumer instance; must not know how a group shares partitions: the server does. An offset that
is committed here is the offset of the last record taken, as on all paths of the Kafka REST Proxy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from typing import Final, Self

import msgspec
from msgspec import Struct

from logserver.client.retries import retry_fields
from logserver.client.transport import BINARY_JSON, JSON, V2_JSON, Transport, segment
from logserver.client.values import FetchedRecord, PartitionOffset, PartitionOffsets, names_of
from logserver.errors import ClientError, ServerRefused
from storage import Isolation, TopicPartition

POLL_MS: Final = 10_000
_NO_INSTANCE: Final = 40403


class _Created(Struct):
    instance_id: str


class _Acknowledged(Struct):
    acknowledged: int


class _Place(Struct):
    topic: str
    partition: int


class _Partitions(Struct):
    partitions: Sequence[_Place]


class GroupConsumer:
    """A consumer of a group. Use it as `async with`; one call at a time.

    It reads `topics`, or the topics that match `pattern`, shared with the group's other members; or only
    `partitions`. The records that were taken count as read once `commit` has returned. Before that, another member
    may get the same records again: each record is delivered at least once.

    On RocketMQ's format it also gets the messages that the group handed back (`LogClient.hand_back`).

    With `invisible_ms` each record waits for its own `ack` or `nack`, in place of `commit`: a record that was not
    acknowledged within this time is delivered again.
    """

    def __init__(
        self,
        transport: Transport,
        group: str,
        *,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        partitions: Sequence[TopicPartition] = (),
        name: str | None = None,
        offset_reset: str = "earliest",
        isolation: Isolation | None = None,
        invisible_ms: int | None = None,
    ) -> None:
        self._transport = transport
        self._invisible_ms = invisible_ms
        self._group = f"/consumers/{segment(group)}"
        self._subscription: dict[str, object] = (
            {"topics": names_of(topics)} if pattern is None else {"topic_pattern": pattern}
        )
        self._partitions = partitions
        self._config = {
            "name": name,
            "format": "binary",
            "auto.offset.reset": offset_reset,
            "auto.commit.enable": False,
            "isolation.level": None if isolation is None else isolation.value,
        }
        self._taken: dict[TopicPartition, int] = {}
        self._kept: deque[FetchedRecord] = deque()
        self._in_doubt = False
        self.name = ""

    async def __aenter__(self) -> Self:
        body = {name: value for name, value in self._config.items() if value is not None}
        created = await self._transport.json(
            _Created,
            "POST",
            self._group,
            body=msgspec.json.encode(body),
            content_type=V2_JSON,
            accept=V2_JSON,
        )
        self.name = created.instance_id
        try:
            if self._partitions:
                await self._assign(self._partitions)
            else:
                await self._send("POST", "subscription", self._subscription)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Leave the group, so that other members take over at once; nothing more is committed."""
        try:
            await self._transport.call("DELETE", self._path, accept=V2_JSON)
        except ServerRefused as error:
            if (
                error.error_code != _NO_INSTANCE
            ):  # removed: idle for too long, or the server restarted
                raise

    async def poll(
        self,
        *,
        timeout_ms: int = 1000,
        max_bytes: int | None = None,
        max_records: int | None = None,
    ) -> list[FetchedRecord]:
        """Return the next records; an empty list if none arrived in time. All returned records count as taken.

        Records above `max_records` are kept for the next poll.
        """
        if not self._kept:
            polled = await self._polled(timeout_ms, max_bytes)
            self._kept.extend(polled)  # after the await: a seek within it replaces the deque
        count = len(self._kept) if max_records is None else min(max_records, len(self._kept))
        records = [self._kept.popleft() for _ in range(count)]
        for record in records:
            self._taken[record.stored_in] = record.offset
        return records

    async def records(self) -> AsyncGenerator[FetchedRecord, None]:
        """Yield records as they arrive, without an end; a record counts as taken when it is yielded."""
        while True:
            for record in await self.poll(timeout_ms=POLL_MS, max_records=1):
                yield record

    async def commit(self) -> None:
        """Commit all records taken, durably as the server's flush mode requires."""
        taken, self._taken = self._taken, {}
        if taken:
            rows = [PartitionOffset(*place, offset) for place, offset in taken.items()]
            try:
                await self._send("POST", "offsets", PartitionOffsets(rows))
            except BaseException:
                self._taken = taken | self._taken  # the commit may be tried again
                raise

    async def ack(self, records: Iterable[FetchedRecord]) -> int:
        """Acknowledge records, as durably as the server's flush mode requires. Return how many of them were held: the
        others were delivered again meanwhile, to this consumer or another one.
        """
        return await self._acknowledge("ack", records, {})

    async def nack(
        self,
        records: Iterable[FetchedRecord],
        *,
        delay_level: int | None = None,
        max_times: int | None = None,
        dead: bool = False,
    ) -> int:
        """Hand records back, and acknowledge them: see `LogClient.hand_back`. Return how many of them were held."""
        return await self._acknowledge(
            "nack", records, retry_fields(delay_level, max_times, dead=dead)
        )

    async def _acknowledge(
        self, call: str, records: Iterable[FetchedRecord], more: Mapping[str, object]
    ) -> int:
        rows = [PartitionOffset(*record.stored_in, record.offset) for record in records]
        if not rows:
            return 0
        answer = await self._transport.json(
            _Acknowledged,
            "POST",
            f"{self._path}/{call}",
            body=msgspec.json.encode({"records": rows, **more}),
            content_type=V2_JSON,
            accept=f"{V2_JSON}, {JSON}",
        )
        return answer.acknowledged

    async def assigned(self) -> list[TopicPartition]:
        """Return the partitions that the member has at the moment."""
        answer = await self._transport.json(
            _Partitions, "GET", f"{self._path}/assignments", accept=V2_JSON
        )
        return [TopicPartition(row.topic, row.partition) for row in answer.partitions]

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue at these offsets."""
        rows = [PartitionOffset(*place, offset) for place, offset in positions.items()]
        await self._seek("positions", PartitionOffsets(rows), positions)

    async def seek_to_beginning(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue at the first record of these partitions."""
        await self._seek("positions/beginning", {"partitions": _places(partitions)}, partitions)

    async def seek_to_end(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue with the records that are written from now on."""
        await self._seek("positions/end", {"partitions": _places(partitions)}, partitions)

    @property
    def _path(self) -> str:
        if not self.name:
            raise ClientError("the consumer is no member of its group: use it as `async with`")
        return f"{self._group}/instances/{segment(self.name)}"

    async def _polled(self, timeout_ms: int, max_bytes: int | None) -> list[FetchedRecord]:
        """Poll once. The server does not send a lost answer again.

        After a lost answer this consumer must not continue: its next commit would cover records that no consumer has
        seen.
        """
        if self._in_doubt:
            raise ClientError(
                "a poll's answer was lost: make another consumer, it begins before it"
            )
        # A record of a lost answer that waits for its acknowledgement is delivered again.
        self._in_doubt = self._invisible_ms is None
        try:
            records = await self._transport.json(
                list[FetchedRecord],
                "GET",
                f"{self._path}/records",
                query={
                    "timeout": timeout_ms,
                    "max_bytes": max_bytes,
                    "ack": None if self._invisible_ms is None else "manual",
                    "invisible_ms": self._invisible_ms,
                },
                accept=BINARY_JSON,
                wait_ms=timeout_ms,
                repeatable=False,
            )
        except ServerRefused:
            self._in_doubt = False
            raise
        self._in_doubt = False
        return records

    async def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions; those that were read before continue at their positions."""
        await self._send("POST", "assignments", {"partitions": _places(partitions)})

    async def _seek(self, where: str, body: object, partitions: Collection[TopicPartition]) -> None:
        """Seek, and drop the kept records of these partitions. Kept records of other partitions stay: the server
        delivers them once.
        """
        await self._send("POST", where, body)
        self._kept = deque(record for record in self._kept if record.stored_in not in partitions)

    async def _send(self, method: str, what: str, body: object) -> None:
        await self._transport.call(
            method,
            f"{self._path}/{what}",
            body=msgspec.json.encode(body),
            content_type=V2_JSON,
            accept=f"{V2_JSON}, {JSON}",
        )


def _places(partitions: Sequence[TopicPartition]) -> list[_Place]:
    return [_Place(*partition) for partition in partitions]
