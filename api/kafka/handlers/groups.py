"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the members of a group of Kafka's classic protocol.

Owns what the versions of these requests mean; must not know how a group works (`logserver.groups.classic`). A join and
a sync wait in place: the answers of one connection keep the order of the requests, and clients use a connection for
their group alone.

    version  what it adds
    Join  1  a rebalance timeout; before, the session timeout serves as one
          4  a client without a member id gets one with MEMBER_ID_REQUIRED, and joins again (KIP-394)
          5  static members (KIP-345)
          7  a null protocol in an error
          9  a returning leader keeps the assignment (KIP-814)
    Sync  5  the protocol's type and name, which must not be null (KIP-559)
    Leave 3  many members at once, with a result for each
"""

from __future__ import annotations

from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from logserver.groups.classic.values import Caller, Join, JoinAnswer, Leaving, Offer, Refusal, Sync

REBALANCE_TIMEOUT_FROM: Final = 1
KNOWN_ID_FROM: Final = 4
NULL_PROTOCOL_FROM: Final = 7
SKIPPED_ASSIGNMENT_FROM: Final = 9
MANY_MEMBERS_FROM: Final = 3
PROTOCOL_FROM: Final = 5
OF_THE_GROUP: Final = (Refusal.INVALID_GROUP_ID, Refusal.COORDINATOR_NOT_AVAILABLE)
"""Refusals of a whole request to leave, not of a member."""


async def join_group(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join a group, and wait for its other members."""
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if call.version < REBALANCE_TIMEOUT_FROM:
        rebalance_timeout_ms = request.session_timeout_ms
    answer = await call.service.groups.classic.join(
        request.group_id,
        Join(
            request.member_id,
            request.group_instance_id,
            client_id=call.client_id or "",
            client_host=f"/{call.client.host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            offers=[Offer(offer.name, offer.metadata) for offer in request.protocols],
            needs_known_id=call.version >= KNOWN_ID_FROM,
            can_skip_assignment=call.version >= SKIPPED_ASSIGNMENT_FROM,
        ),
    )
    return _joined(answer, call.version)


def _joined(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol = answer.protocol
    if protocol is None and version < NULL_PROTOCOL_FROM:
        protocol = ""
    return JoinGroupResponse(
        error_code=answer.refusal,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )


async def sync_group(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Return a member's assignment, and wait for the leader to send it."""
    protocol = request.protocol_type, request.protocol_name
    if call.version >= PROTOCOL_FROM and None in protocol:
        return SyncGroupResponse(error_code=Refusal.INCONSISTENT_GROUP_PROTOCOL)
    answer = await call.service.groups.classic.sync(
        request.group_id,
        Sync(
            Caller(request.member_id, request.generation_id, request.group_instance_id),
            *protocol,
            [(entry.member_id, entry.assignment) for entry in request.assignments],
        ),
    )
    return SyncGroupResponse(
        error_code=answer.refusal,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend a member's session."""
    caller = Caller(request.member_id, request.generation_id, request.group_instance_id)
    refusal = call.service.groups.classic.heartbeat(request.group_id, caller)
    return HeartbeatResponse(error_code=refusal)


async def leave_group(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove members from a group."""
    single = call.version < MANY_MEMBERS_FROM
    leaving = [Leaving(member.member_id, member.group_instance_id) for member in request.members]
    if single:
        leaving = [Leaving(request.member_id)]
    groups, name = call.service.groups, request.group_id
    results = (
        groups.modern.leave(name, leaving)
        if groups.modern.has(name)
        else groups.classic.leave(name, leaving)
    )
    if single:
        return LeaveGroupResponse(error_code=results[0])
    if results and results[0] in OF_THE_GROUP:
        return LeaveGroupResponse(error_code=results[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponseMemberResponse(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                error_code=refusal,
            )
            for member, refusal in zip(leaving, results, strict=True)
        ]
    )
