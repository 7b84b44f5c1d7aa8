"""The operator's view of consumer groups: members, progress, and reset of offsets.

Owns the shapes of these answers and their calls; must not know connections. Every offset here is the next offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from logserver.client.consumer import GroupConsumer
from logserver.client.transport import Transport, segment
from logserver.client.values import PartitionOffsets, Start
from storage import Isolation, TopicPartition


class GroupMember(Struct, frozen=True):
    """A consumer instance of a group, and its subscription."""

    instance_id: str
    topics: Sequence[str] | None = None
    topic_pattern: str | None = None


class GroupPartition(Struct, frozen=True):
    """The progress of a group in a partition.

    `committed` is the next offset to read; None if the group has committed none. The bounds and the lag are None if
    the topic no longer exists. `instance_id`: the member that reads the partition.
    """

    topic: str
    partition: int
    committed: int | None = None
    beginning_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    instance_id: str | None = None


class GroupDescription(Struct, frozen=True):
    """A group; `lag` is the sum over all its partitions."""

    name: str
    lag: int
    members: Sequence[GroupMember]
    partitions: Sequence[GroupPartition]


class GroupCalls:
    """The group calls of LogClient."""

    transport: Transport

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
    ) -> GroupConsumer:
        """Return a member of a consumer group. A group without commits begins at `offset_reset`, "earliest" or
        "latest". With `invisible_ms` records are acknowledged one by one: see `GroupConsumer`.

        >>> async with client.consumer("billing", ["orders"]) as consumer:
        ...     for record in await consumer.poll():
        ...         assert record.text == "first"
        ...     await consumer.commit()
        >>> (await client.group("billing")).lag
        0
        """
        return GroupConsumer(
            self.transport,
            group,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            name=name,
            offset_reset=offset_reset,
            isolation=isolation,
            invisible_ms=invisible_ms,
        )

    async def groups(self) -> list[str]:
        """Return the groups that have members or committed offsets."""
        return await self.transport.json(list[str], "GET", "/groups")

    async def group(self, group: str) -> GroupDescription:
        """Return a group's members and progress (ServerRefused 40405 if the group does not exist)."""
        return await self.transport.json(GroupDescription, "GET", _path(group))

    async def reset_group(
        self,
        group: str,
        to: Start,
        *,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Move a group without members to other offsets. Return the new offsets.

        `to` is an offset, "earliest", "latest" or "@ms". It applies to all partitions that the group has committed,
        or to a topic (or some partitions of it).
        """
        fields: dict[str, Any] = {"to": _target(to), "topic": topic, "partitions": partitions}
        body = {name: value for name, value in fields.items() if value is not None}
        answer = await self.transport.json(
            PartitionOffsets, "PUT", f"{_path(group)}/offsets", body=msgspec.json.encode(body)
        )
        return {TopicPartition(row.topic, row.partition): row.offset for row in answer.offsets}

    async def delete_group(self, group: str) -> None:
        """Delete the committed offsets of a group without members."""
        await self.transport.call("DELETE", _path(group))


def _path(group: str) -> str:
    return f"/groups/{segment(group)}"


def _target(to: Start) -> object:
    """Convert a start to the form of the API.

    >>> _target("latest"), _target(7), _target("@1000")
    ('latest', {'offset': 7}, {'timestamp': 1000})
    """
    if isinstance(to, int):
        return {"offset": to}
    return {"timestamp": int(to[1:])} if to.startswith("@") else to
