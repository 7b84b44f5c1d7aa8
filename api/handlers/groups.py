"""The operator's view of groups: list, describe, reset, delete.

Owns the shapes of these calls; must not commit or assign itself. Every offset here is the next offset, as everywhere
except in the commits of `api.handlers.consumers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct

from api.handlers.consumers import (
    MAX_PARTITIONS,
    Name,
    Offset,
    OffsetRow,
    OffsetsAnswer,
    PartitionName,
)
from api.http.errors import PAYLOAD, ApiError
from api.records.schema import PartitionNumber, Timestamp
from api.request_context import RequestContext
from logserver.groups.coordinator import Member
from logserver.groups.overview import GroupOverview, Progress
from logserver.service.requests import Start, StartAt
from storage import TopicPartition


class GroupMember(Struct):
    """A consumer instance of a group. It has topics, or a pattern, or assigned partitions."""

    instance_id: str
    topics: Sequence[str] | None
    topic_pattern: str | None
    partitions: Sequence[PartitionName]


class GroupPartition(Struct):
    """The progress of a group in one partition. `committed` is the next offset to read; null: the group has
    committed none. `beginning_offset` and `end_offset` are null if the topic no longer exists. `lag` is `end_offset`
    less `committed`. `instance_id` is the consumer that reads the partition.
    """

    topic: str
    partition: int
    committed: int | None
    metadata: str | None
    beginning_offset: int | None
    end_offset: int | None
    lag: int | None
    instance_id: str | None


class GroupAnswer(Struct):
    """A group. `generation` counts the assignments since its first member came; `lag` is that of all
    partitions.
    """

    name: str
    generation: int
    lag: int
    members: Sequence[GroupMember]
    partitions: Sequence[GroupPartition]


class ResetTo(Struct, forbid_unknown_fields=True):
    """A time, or an offset."""

    timestamp: Timestamp | None = None
    offset: Offset | None = None


class ResetGroup(Struct, forbid_unknown_fields=True):
    """The body of PUT /groups/{group}/offsets."""

    to: Literal["earliest", "latest"] | ResetTo
    topic: Name | None = None
    partitions: Annotated[list[PartitionNumber], Meta(max_length=MAX_PARTITIONS)] | None = None


async def list_groups(call: RequestContext) -> web.Response:
    """Handle GET /groups."""
    call.params()
    return call.json(await call.service.groups.names())


async def get_group(call: RequestContext) -> web.Response:
    """Handle GET /groups/{group}."""
    call.params()
    return call.json(_described(await call.service.groups.overview(call.group)))


async def reset_group(call: RequestContext) -> web.Response:
    """Handle PUT /groups/{group}/offsets."""
    call.params()
    asked = await call.json_body(ResetGroup)
    if asked is None:
        raise ApiError(PAYLOAD, 'the body is empty: send {"to": "earliest"}')
    offsets = await call.service.groups.reset(call.group, _chosen(call, asked), _start(asked.to))
    return call.json(OffsetsAnswer([OffsetRow(*at, offset) for at, offset in offsets.items()]))


async def delete_group(call: RequestContext) -> web.Response:
    """Handle DELETE /groups/{group}."""
    call.params()
    await call.service.groups.delete(call.group)
    return web.Response(status=204)


def _chosen(call: RequestContext, asked: ResetGroup) -> Iterable[TopicPartition] | None:
    """Return the partitions that the body names, which exist; None if it names none."""
    if asked.topic is None:
        if asked.partitions is not None:
            raise ApiError(PAYLOAD, "partitions is given without topic: give both, or topic alone")
        return None
    numbers = asked.partitions
    if numbers is None:
        numbers = list(call.service.topic(asked.topic).partitions)
    return [call.service.partition(asked.topic, number) for number in numbers]


def _start(to: str | ResetTo) -> Start:
    if isinstance(to, str):
        return Start(StartAt(to))
    if (to.timestamp is None) == (to.offset is None):
        raise ApiError(PAYLOAD, "to must have either timestamp or offset - at `$.to`")
    if to.timestamp is not None:
        return Start(StartAt.TIME, to.timestamp)
    return Start(StartAt.OFFSET, to.offset or 0)


def _described(group: GroupOverview) -> GroupAnswer:
    return GroupAnswer(
        name=group.name,
        generation=group.generation,
        lag=sum(progress.lag or 0 for progress in group.progress),
        members=[_member(member) for member in group.members],
        partitions=[_partition(progress) for progress in group.progress],
    )


def _member(member: Member) -> GroupMember:
    subscription = member.subscription
    pattern = None if subscription is None else subscription.pattern
    named = subscription is not None and pattern is None
    return GroupMember(
        instance_id=member.name,
        topics=sorted(subscription.topics) if subscription is not None and named else None,
        topic_pattern=None if pattern is None else pattern.text,
        partitions=[PartitionName(*partition) for partition in member.partitions],
    )


def _partition(progress: Progress) -> GroupPartition:
    committed, bounds = progress.committed, progress.bounds
    return GroupPartition(
        *progress.partition,
        committed=None if committed is None else committed.offset,
        metadata=None if committed is None else committed.metadata,
        beginning_offset=None if bounds is None else bounds.start,
        end_offset=None if bounds is None else bounds.end,
        lag=progress.lag,
        instance_id=progress.member,
    )
