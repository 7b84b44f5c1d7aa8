"""Responses to the requests of groups in which every part has the same error number.

Owns their shape; must not choose the number (`api.kafka.refusals`). A field that a version lacks is not written, so one
response serves all versions: the number of a group is written where there is one, else the numbers of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseDescribedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseDeletableGroupResult,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    ListGroupsResponse,
)
from api.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)


def _commit(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch(request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, error_code=code
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            for group in request.groups
        ],
    )


def _join(request: JoinGroupRequest, code: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def _describe(request: DescribeGroupsRequest, code: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponseDescribedGroup(group_id=name, error_code=code)
            for name in request.groups
        ]
    )


def _delete(request: DeleteGroupsRequest, code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponseDeletableGroupResult(group_id=name, error_code=code)
            for name in request.groups_names
        ]
    )


def _describe_modern(
    request: ConsumerGroupDescribeRequest, code: int
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponseDescribedGroup(group_id=name, error_code=code)
            for name in request.group_ids
        ]
    )


GROUP_REFUSALS: Final[Mapping[int, Callable[[Any, Any], Any]]] = {
    8: _commit,
    9: _fetch,
    11: _join,
    12: lambda request, code: HeartbeatResponse(error_code=code),
    13: lambda request, code: LeaveGroupResponse(error_code=code),
    14: lambda request, code: SyncGroupResponse(error_code=code),
    15: _describe,
    16: lambda request, code: ListGroupsResponse(error_code=code),
    42: _delete,
    47: lambda request, code: OffsetDeleteResponse(error_code=code),
    68: lambda request, code: ConsumerGroupHeartbeatResponse(error_code=code),
    69: _describe_modern,
}
"""By API: the response."""
