"""Consumer groups of a Kafka cluster, as LogClient shows them.

Owns the calls about groups; must not know the members' protocol. Offsets are next offsets, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from logserver.client.groups import GroupDescription, GroupMember, GroupPartition
from logserver.client.kafka.connection import Connection
from logserver.client.values import OffsetRange, Start, TopicDescription
from logserver.errors import ServerRefused, UnknownGroup
from storage import TopicPartition

UNKNOWN_GROUP = 40405


class Offsets(Protocol):
    """The calls of the client that groups need."""

    async def topic(self, topic: str) -> TopicDescription: ...
    async def offsets(self, topic: str, partition: int = 0) -> OffsetRange: ...
    async def start(self, topic: str, partition: int, offset: Start) -> int: ...


class KafkaGroups:
    """The groups of a cluster."""

    def __init__(self, connection: Connection, admin: Any, client: Offsets) -> None:
        self._connection = connection
        self._admin = admin
        self._client = client

    async def names(self) -> list[str]:
        """Return the names of all groups."""
        found = await self._connection.done(self._admin.list_consumer_groups())
        return sorted(group.group_id for group in found.valid)

    async def describe(self, group: str) -> GroupDescription:
        """Return a group's members and progress. Raises ServerRefused 40405."""
        members = await self._members(group)
        committed = await self._committed(group)
        readers = {
            TopicPartition(at.topic, at.partition): member.member_id
            for member in members
            for at in member.assignment.topic_partitions
        }
        if not members and not committed:
            message = UnknownGroup(group).message
            raise ServerRefused(
                message, status=404, error_code=UNKNOWN_GROUP, answer={"group": group}
            )
        rows = [
            await self._row(at, committed.get(at), readers.get(at))
            for at in sorted({*committed, *readers})
        ]
        return GroupDescription(
            group,
            sum(row.lag or 0 for row in rows),
            [GroupMember(member.member_id) for member in members],
            rows,
        )

    async def _row(
        self, at: TopicPartition, committed: int | None, reader: str | None
    ) -> GroupPartition:
        try:
            held = await self._client.offsets(*at)
        except ServerRefused:  # deleted
            return GroupPartition(*at, committed, instance_id=reader)
        first = held.beginning_offset
        lag = held.end_offset - (first if committed is None else max(committed, first))
        return GroupPartition(*at, committed, first, held.end_offset, max(lag, 0), reader)

    async def _members(self, group: str) -> Sequence[Any]:
        (asked,) = self._admin.describe_consumer_groups([group]).values()
        try:
            members: Sequence[Any] = (await self._connection.done(asked)).members
        except ServerRefused as error:
            if error.error_code != UNKNOWN_GROUP:
                raise
            return ()
        return members

    async def _committed(self, group: str) -> Mapping[TopicPartition, int]:
        kafka = self._connection.kafka
        wanted = kafka.ConsumerGroupTopicPartitions(group)
        (asked,) = self._admin.list_consumer_group_offsets([wanted]).values()
        try:
            found = await self._connection.done(asked)
        except ServerRefused as error:
            if error.error_code != UNKNOWN_GROUP:
                raise
            return {}
        return {
            TopicPartition(at.topic, at.partition): at.offset
            for at in found.topic_partitions
            if at.offset >= 0
        }

    async def reset(
        self, group: str, to: Start, topic: str | None, partitions: Sequence[int] | None
    ) -> Mapping[TopicPartition, int]:
        """Set the offsets of a group without members; return them."""
        if topic is None:
            places = sorted(await self._committed(group))
            if not places:
                message = UnknownGroup(group).message
                raise ServerRefused(
                    message, status=404, error_code=UNKNOWN_GROUP, answer={"group": group}
                )
        else:
            numbers = partitions or (await self._client.topic(topic)).partitions
            places = [TopicPartition(topic, number) for number in numbers]
        offsets = {at: await self._client.start(*at, to) for at in places}
        kafka = self._connection.kafka
        rows = [kafka.TopicPartition(*at, offset) for at, offset in offsets.items()]
        wanted = kafka.ConsumerGroupTopicPartitions(group, rows)
        (asked,) = self._admin.alter_consumer_group_offsets([wanted]).values()
        await self._connection.done(asked)
        return offsets

    async def delete(self, group: str) -> None:
        """Delete a group without members."""
        (asked,) = self._admin.delete_consumer_groups([group]).values()
        await self._connection.done(asked)
