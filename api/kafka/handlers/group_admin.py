"""DescribeGroups, ListGroups, DeleteGroups: groups as tools see them.

Owns the answer for each group; must not know how a group works. HTTP's consumer instances are shown as members that
subscribe by Kafka's consumer protocol, so tools show who reads which partition. They have the type `classic`; groups
of the new protocol have the type `consumer`, and are described by an API of their own (`consumer_groups`).
"""

from __future__ import annotations

from typing import Final

from api.kafka.call import GROUP_OPERATIONS, Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseDeletableGroupResult,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseListedGroup,
)
from api.kafka.refusals import code_of, readable
from logserver.errors import ConsumerState
from logserver.groups.classic.values import GroupView, State
from storage import StorageError

NOT_FOUND_FROM: Final = 6


async def describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe groups. A group that does not exist is dead, from version 6 on with GROUP_ID_NOT_FOUND."""
    names = dict.fromkeys(request.groups)  # a group has one row, however often it is asked for
    rows = [await _described(call, name) for name in names]
    if request.include_authorized_operations:
        for row in rows:
            if row.error_code == ErrorCode.NONE:
                row.authorized_operations = call.operations(GROUP_OPERATIONS)
    return DescribeGroupsResponse(groups=rows)


async def _described(call: Call, name: str) -> DescribeGroupsResponseDescribedGroup:
    if not name and not call.service.groups.commits.may_exist(name):
        return DescribeGroupsResponseDescribedGroup(
            group_id=name, error_code=ErrorCode.INVALID_GROUP_ID, group_state=State.DEAD.value
        )
    group = await call.service.groups.view(name)
    if group is None:
        missing = DescribeGroupsResponseDescribedGroup(group_id=name, group_state=State.DEAD.value)
        if call.version >= NOT_FOUND_FROM:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = readable(f"Group {name} not found.")
        return missing
    return _row(group)


def _row(group: GroupView) -> DescribeGroupsResponseDescribedGroup:
    return DescribeGroupsResponseDescribedGroup(
        group_id=group.name,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribeGroupsResponseDescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


async def list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List groups, of these states and types if the request names any; upper and lower case are the same."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListGroupsResponseListedGroup(
                group_id=group.name,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in await call.service.groups.listed()
            if (not states or group.state.lower() in states) and (not types or group.kind in types)
        ]
    )


async def delete_groups(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete the offsets of groups without members."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponseDeletableGroupResult(
                group_id=name, error_code=await _deleted(call, name)
            )
            for name in request.groups_names
        ]
    )


async def _deleted(call: Call, name: str) -> ErrorCode:
    if not name and not call.service.groups.commits.may_exist(name):
        return ErrorCode.INVALID_GROUP_ID
    try:
        await call.service.groups.delete(name)
    except ConsumerState:
        return ErrorCode.NON_EMPTY_GROUP
    except StorageError as error:
        return code_of(error)
    return ErrorCode.NONE
