"""The operator's view of groups: list, describe, reset, delete.

Owns the shapes of these operations; must not commit or assign itself. Every offset here is the next offset, as
everywhere except in the commits of `api.operations.consumers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from aiohttp import web
from msgspec import Meta, Struct

from api.http.errors import JSON, PAYLOAD, ApiError
from api.operation import Answer, Example, Resource, required
from api.operations.consumers import (
    MAX_PARTITIONS,
    Name,
    Offset,
    OffsetsAnswer,
    PartitionName,
    PartitionOffset,
)
from api.records.decode import PartitionNumber, Timestamp
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from logserver.groups.overview import MemberOverview, Progress
from logserver.service.requests import Start, StartAt
from storage import TopicPartition

GROUPS: Final = Resource("Groups")


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


_ACCOUNTING: Final = {"group": "accounting"}
_RESET: Final = {"offsets": [{"topic": "orders", "partition": 0, "offset": 0, "metadata": None}]}


@GROUPS.get(
    "/groups",
    Answer(200, "The names, in order.", list[str]),
    examples=(Example(answer=["accounting", "billing"]),),
)
async def list_groups(call: RequestContext) -> web.Response:
    """All groups.

    Groups with members or committed offsets.
    """
    return call.json(await call.service.groups.names())


@GROUPS.get(
    "/groups/{group}",
    Answer(200, "The group.", GroupAnswer),
    errors=(40405,),
    examples=(
        Example(
            path=_ACCOUNTING,
            answer={
                "name": "accounting",
                "generation": 0,
                "lag": 1,
                "members": [],
                "partitions": [
                    {
                        "topic": "orders",
                        "partition": 0,
                        "committed": 1,
                        "metadata": "",
                        "beginning_offset": 0,
                        "end_offset": 2,
                        "lag": 1,
                        "instance_id": None,
                    }
                ],
            },
        ),
    ),
)
async def get_group(call: RequestContext) -> web.Response:
    """One group: members, committed offsets, lag."""
    group = await call.service.groups.overview(call.group)
    answer = GroupAnswer(
        name=group.name,
        generation=group.generation,
        lag=sum(progress.lag or 0 for progress in group.progress),
        members=[_member(member) for member in group.members],
        partitions=[_partition(progress) for progress in group.progress],
    )
    return call.json(answer)


@GROUPS.put(
    "/groups/{group}/offsets",
    Answer(200, "The next offsets after the reset.", OffsetsAnswer),
    body=required(ResetGroup, '{"to": "earliest"}'),
    errors=(40401, 40402, 40405, 40903, 41601, 42203, 42901, 50302, 50701),
    examples=(
        Example(path=_ACCOUNTING, media_type=JSON, body={"to": "earliest"}, answer=_RESET),
        Example(
            "to a time",
            path=_ACCOUNTING,
            media_type=JSON,
            body={"topic": "orders", "partitions": [0], "to": {"timestamp": 1760000000000}},
            answer=_RESET,
        ),
        Example(
            "to an offset",
            path=_ACCOUNTING,
            media_type=JSON,
            body={"topic": "orders", "to": {"offset": 1}},
            answer=_RESET,
        ),
    ),
)
async def reset_group(call: RequestContext, body: ResetGroup) -> web.Response:
    """Reset the offsets of a group.

    `to` is `earliest`, `latest`, a time or an exact next offset, for the partitions of `topic` (all, or `partitions`),
    without `topic` for every partition that the group has committed. Rejected while the group has members. A missing
    group is created.
    """
    offsets = await call.service.groups.reset(call.group, _partitions(call, body), _start(body.to))
    return call.json(
        OffsetsAnswer([PartitionOffset(*at, offset) for at, offset in offsets.items()])
    )


@GROUPS.delete(
    "/groups/{group}",
    Answer(204, "The group is deleted."),
    scope=Scope.ADMIN,
    errors=(40405, 40903, 42203, 50701),
    examples=(Example(path=_ACCOUNTING, status=204),),
)
async def delete_group(call: RequestContext) -> web.Response:
    """Delete a group's offsets.

    Rejected while it has members.
    """
    await call.service.groups.delete(call.group)
    return web.Response(status=204)


def _partitions(call: RequestContext, body: ResetGroup) -> Iterable[TopicPartition] | None:
    """Return the partitions that the body names, which exist; None if it names none."""
    if body.topic is None:
        if body.partitions is not None:
            raise ApiError(PAYLOAD, "partitions is given without topic: give both, or topic alone")
        return None
    numbers = body.partitions
    if numbers is None:
        numbers = list(call.service.topics.info(body.topic).partitions)
    return [call.service.topics.partition(body.topic, number) for number in numbers]


def _start(to: str | ResetTo) -> Start:
    if isinstance(to, str):
        return Start(StartAt(to))
    if (to.timestamp is None) == (to.offset is None):
        raise ApiError(PAYLOAD, "to must have either timestamp or offset: give one of them")
    if to.timestamp is not None:
        return Start(StartAt.TIME, to.timestamp)
    return Start(StartAt.OFFSET, to.offset or 0)


def _member(member: MemberOverview) -> GroupMember:
    return GroupMember(
        instance_id=member.name,
        topics=member.topics,
        topic_pattern=member.topic_pattern,
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
