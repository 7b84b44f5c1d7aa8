"""Consumer groups as an operator sees them: who reads what, how far, and from where again.

Owns the shapes of these answers and the calls behind them. Every offset here is the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from logserver.client.consumer import GroupConsumer
from logserver.client.reading import Start
from logserver.client.transport import Transport, segment
from logserver.client.values import PartitionOffsets
from storage import TopicPartition


class GroupMember(Struct, frozen=True):
    """A consumer instance of a group, and what it wants to read."""

    instance_id: str
    topics: Sequence[str] | None = None
    topic_pattern: str | None = None


class GroupPartition(Struct, frozen=True):
    """How far a group is in a partition. `committed` is the next offset to be read; None: it has
    committed none. The bounds and the lag are None when the topic is gone. `instance_id`: who reads it.
    """

    topic: str
    partition: int
    committed: int | None = None
    beginning_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    instance_id: str | None = None


class GroupDescription(Struct, frozen=True):
    """A group; `lag` is that of all its partitions."""

    name: str
    lag: int
    members: Sequence[GroupMember]
    partitions: Sequence[GroupPartition]


class GroupCalls:
    """The part of LogClient that is about groups."""

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
    ) -> GroupConsumer:
        """A member of a consumer group. A group that has committed nothing begins at `offset_reset`,
        "earliest" or "latest".

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
        )

    async def groups(self) -> list[str]:
        """The groups that have members or committed offsets."""
        return await self.transport.json(list[str], "GET", "/groups")

    async def group(self, group: str) -> GroupDescription:
        """A group's members, and how far it is (ServerRefused 40405 if there is none)."""
        return await self.transport.json(GroupDescription, "GET", _path(group))

    async def reset_group(
        self,
        group: str,
        to: Start,
        *,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Let a group without members go on from elsewhere: an offset, "earliest", "latest" or "@ms"; in all
        that it has committed, or in a topic (some partitions of it). Gives the offsets as they are then.
        """
        given: dict[str, Any] = {"to": _target(to), "topic": topic, "partitions": partitions}
        body = {name: value for name, value in given.items() if value is not None}
        answer = await self.transport.json(
            PartitionOffsets, "PUT", f"{_path(group)}/offsets", body=msgspec.json.encode(body)
        )
        return {TopicPartition(row.topic, row.partition): row.offset for row in answer.offsets}

    async def delete_group(self, group: str) -> None:
        """Forget what a group without members has committed."""
        await self.transport.call("DELETE", _path(group))


def _path(group: str) -> str:
    return f"/groups/{segment(group)}"


def _target(to: Start) -> object:
    """A start as the API takes it.

    >>> _target("latest"), _target(7), _target("@1000")
    ('latest', {'offset': 7}, {'timestamp': 1000})
    """
    if isinstance(to, int):
        return {"offset": to}
    return {"timestamp": int(to[1:])} if to.startswith("@") else to
