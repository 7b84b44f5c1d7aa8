"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups of Kafka's new protocol (KIP-848).

Owns the form of the requests and responses; must not know how a group works (`logserver.groups.modern`). The other
requests of groups (offsets, lists, deletion) serve every kind.

    version  what it adds
    Heartbeat 1  patterns of topics; clients choose their member ids (KIP-1082)
    Describe  1  the type of each member
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from api.kafka.call import GROUP_OPERATIONS, Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopicPartitions,
)
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from api.kafka.refusals import readable
from logserver.groups.modern.values import Beat, BeatAnswer, ModernMemberView
from storage.groups import Slot

CONSUMER_MEMBER: Final = 1
"""The type of a member that speaks the new protocol itself."""


async def heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join a group, go on in it, or leave it."""
    owned = request.topic_partitions
    beat = Beat(
        request.member_id,
        request.member_epoch,
        client_id=call.client_id or "",
        client_host=f"/{call.client.host}",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset((row.topic_id, number) for row in owned for number in row.partitions),
    )
    return _answered(
        await call.service.groups.modern.heartbeat(request.group_id, beat, call.version)
    )


def _answered(answer: BeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assigned = answer.assigned
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.refusal,
        error_message=None if answer.text is None else readable(answer.text),
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if assigned is None
        else ConsumerGroupHeartbeatResponseAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in _by_topic(assigned)
            ]
        ),
    )


def _by_topic(slots: Iterable[Slot]) -> Sequence[tuple[bytes, list[int]]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in slots:
        topics.setdefault(topic_id, []).append(number)
    return list(topics.items())


async def describe(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe groups. A group of another kind is not found."""
    names = dict.fromkeys(request.group_ids)  # a group has one row, however often it is asked for
    rows = [_described(call, name) for name in names]
    if request.include_authorized_operations:
        for row in rows:
            if row.error_code == ErrorCode.NONE:
                row.authorized_operations = call.operations(GROUP_OPERATIONS)
    return ConsumerGroupDescribeResponse(groups=rows)


def _described(call: Call, name: str) -> ConsumerGroupDescribeResponseDescribedGroup:
    if not name:
        return ConsumerGroupDescribeResponseDescribedGroup(
            group_id=name, error_code=ErrorCode.INVALID_GROUP_ID
        )
    group = call.service.groups.modern.describe(name)
    if group is None:
        return ConsumerGroupDescribeResponseDescribedGroup(
            group_id=name,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=readable(f"Group {name} not found."),
        )
    return ConsumerGroupDescribeResponseDescribedGroup(
        group_id=name,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(call, member) for member in group.members],
    )


def _member(call: Call, member: ModernMemberView) -> ConsumerGroupDescribeResponseMember:
    return ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_assignment(call, member.assigned),
        target_assignment=_assignment(call, member.target),
        member_type=CONSUMER_MEMBER,
    )


def _assignment(call: Call, slots: Iterable[Slot]) -> ConsumerGroupDescribeResponseAssignment:
    """Return the partitions of a member. A topic that was deleted meanwhile has no name, and is left out."""
    return ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=numbers
            )
            for topic_id, numbers in _by_topic(slots)
            if (name := call.ids.name_of(topic_id)) is not None
        ]
    )
