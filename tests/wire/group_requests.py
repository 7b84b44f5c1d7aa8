"""Requests of members of a group, as the tests of the wire protocol send them.

Owns how a request is filled; must not know what the answer should be. Works with a real broker too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.kafka.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from api.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    LeaveGroupRequestMemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from logserver.groups.classic.consumer_protocol import encode_subscription
from tests.wire.harness import Connection

Partitions = Mapping[str, Sequence[int]]
MANY_GROUPS_FROM = 8
BY_ID_FROM = 10


def join(group: str = "g", member_id: str = "", **changed: Any) -> JoinGroupRequest:
    """Return a join of a consumer that subscribes to `t`."""
    fields: dict[str, Any] = {
        "group_id": group,
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=encode_subscription(["t"]))],
    }
    return JoinGroupRequest(**{**fields, **changed})


def offers(*names: str) -> list[JoinGroupRequestProtocol]:
    """Return protocols that a member supports, by name."""
    return [
        JoinGroupRequestProtocol(name=name, metadata=encode_subscription(["t"])) for name in names
    ]


def sync(
    member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **changed: Any
) -> SyncGroupRequest:
    """Return a request for the assignment, which a leader sends."""
    rows = [
        SyncGroupRequestAssignment(member_id=member, assignment=data)
        for member, data in (assignments or {}).items()
    ]
    fields: dict[str, Any] = {
        "group_id": "g",
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": rows,
    }
    return SyncGroupRequest(**{**fields, **changed})


def heartbeat(member_id: str, generation: int, **changed: Any) -> HeartbeatRequest:
    """Return a heartbeat."""
    fields: dict[str, Any] = {"group_id": "g", "generation_id": generation, "member_id": member_id}
    return HeartbeatRequest(**{**fields, **changed})


def leave(*members: tuple[str, str | None], group: str = "g") -> LeaveGroupRequest:
    """Return a request to remove members, by member id and instance id."""
    rows = [
        LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=instance_id)
        for member_id, instance_id in members
    ]
    return LeaveGroupRequest(group_id=group, member_id=members[0][0], members=rows)


def commit(
    offsets: Mapping[tuple[str, int], int],
    *,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
) -> OffsetCommitRequest:
    """Return a commit of offsets by topic and partition."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        rows = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions
        rows.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=0,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=list(topics.values()),
    )


async def fetched(
    connection: Connection,
    version: int,
    partitions: Partitions | None,
    *,
    group: str = "g",
    stable: bool = False,
) -> dict[tuple[str, int], tuple[int, int, str | None, int]]:
    """Return offset, epoch, metadata and error of a group's partitions (None: all), in any version."""
    if version >= MANY_GROUPS_FROM:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=list(numbers))
                for name, numbers in partitions.items()
            ]
        names = await connection.name_by_id(*(topics or ()))
        groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
        request = OffsetFetchRequest(groups=groups, require_stable=stable)
        (found,) = (await connection.call(request, version)).groups
        for topic in found.topics if version >= BY_ID_FROM else ():
            topic.name = names[topic.topic_id]
    else:
        single = None
        if partitions is not None:
            single = [
                OffsetFetchRequestTopic(name=name, partition_indexes=list(numbers))
                for name, numbers in partitions.items()
            ]
        request = OffsetFetchRequest(group_id=group, topics=single, require_stable=stable)
        found = await connection.call(request, version)
    assert found.error_code == 0
    return {
        (topic.name, row.partition_index): (
            row.committed_offset,
            row.committed_leader_epoch,
            row.metadata,
            row.error_code,
        )
        for topic in found.topics
        for row in topic.partitions
    }


def delete_offsets(partitions: Partitions, group: str = "g") -> OffsetDeleteRequest:
    """Return a request to delete offsets of a group."""
    topics = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in numbers],
        )
        for name, numbers in partitions.items()
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


def describe(*groups: str) -> DescribeGroupsRequest:
    """Return a request to describe groups."""
    return DescribeGroupsRequest(groups=list(groups))


def listing(states: Sequence[str] = (), types: Sequence[str] = ()) -> ListGroupsRequest:
    """Return a request to list groups."""
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def delete(*groups: str) -> DeleteGroupsRequest:
    """Return a request to delete groups."""
    return DeleteGroupsRequest(groups_names=list(groups))


async def joined(connection: Connection, version: int = 9, **changed: Any) -> Any:
    """Join as a new member, in both rounds if the version has two; return the answer."""
    answer = await connection.call(join(**changed), version)
    if answer.error_code == 79:
        answer = await connection.call(join(**{**changed, "member_id": answer.member_id}), version)
    return answer


async def alone(connection: Connection, version: int = 9, **changed: Any) -> Any:
    """Become the only member of a stable group; return the answer to the join."""
    answer = await joined(connection, version, **changed)
    assert answer.error_code == 0
    group = changed.get("group", "g")
    synced = await connection.call(
        sync(answer.member_id, answer.generation_id, {answer.member_id: b"mine"}, group_id=group), 3
    )
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    return answer


def fetched_as(member_id: str | None, epoch: int, *, group: str = "g") -> OffsetFetchRequest:
    """Return a fetch of the offset of t-0 as a member of the new protocol."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group, member_id=member_id, member_epoch=epoch, topics=topics
            )
        ]
    )
