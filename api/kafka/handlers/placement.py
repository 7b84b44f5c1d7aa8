"""Where partitions are: every one on this node, in its one log directory.

Owns the answers to requests that move partitions or choose leaders; must not move anything. A request for the present
state is granted, every other one is refused with the number that a cluster of one node gives. From
ReplicationControlManager and ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponseReassignablePartitionResponse,
    AlterPartitionReassignmentsResponseReassignableTopicResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartitionResult,
    ElectLeadersResponseReplicaElectionResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from storage import LogStore, StorageError, TopicPartition

ELECTIONS: Final = frozenset({0, 1})  # of the preferred replica, of one that is not in sync
FIRST_WITH_TYPE: Final = 1


def _numbers(call: Call, topic: str) -> Collection[int]:
    """Return the partitions of a topic; none of an unknown one."""
    info = call.topics.get(topic)
    return frozenset((*info.partitions, *info.missing)) if info else frozenset()


async def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer that no election is needed: every partition has its leader. Without topics, all have an empty row."""
    code = ErrorCode.NONE
    if call.version >= FIRST_WITH_TYPE and request.election_type not in ELECTIONS:
        code = ErrorCode.INVALID_REQUEST
    asked = (
        [(name, ()) for name in call.topics]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ElectLeadersResponseReplicaElectionResult(
                topic=name,
                partition_result=[
                    ElectLeadersResponsePartitionResult(
                        partition_id=number,
                        error_code=code or _election_code(known, number),
                        error_message=None,
                    )
                    for number in numbers
                ],
            )
            for name, numbers in asked
            for known in (_numbers(call, name),)
        ],
    )


def _election_code(known: Collection[int], number: int) -> ErrorCode:
    if number in known:
        return ErrorCode.ELECTION_NOT_NEEDED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Grant an assignment to this node, and refuse every other one."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            AlterPartitionReassignmentsResponseReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    AlterPartitionReassignmentsResponseReassignablePartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=_assignment_code(
                            call, known, asked.partition_index, asked.replicas
                        ),
                        error_message=None,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
            for known in (_numbers(call, topic.name),)
        ],
    )


def _assignment_code(
    call: Call, known: Collection[int], number: int, replicas: Sequence[int] | None
) -> ErrorCode:
    """Return the number of an assignment; `replicas` None: a reassignment is to be cancelled."""
    if number not in known:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    if list(replicas) != [call.node_id]:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return ErrorCode.NONE


async def list_partition_reassignments(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return no reassignment: none can be under way."""
    return ListPartitionReassignmentsResponse(error_message=None)


async def alter_replica_log_dirs(
    call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Grant the directory in which a partition is, and refuse every other one."""
    own = str(call.service.settings.data.absolute())
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=_move_code(known, number, is_own=directory.path == own),
                    )
                    for number in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
            for known in (_numbers(call, topic.name),)
        ]
    )


def _move_code(known: Collection[int], number: int, *, is_own: bool) -> ErrorCode:
    if not is_own:
        return ErrorCode.LOG_DIR_NOT_FOUND
    return ErrorCode.NONE if number in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Return the store's directory with the sizes of the partitions that are asked for; null asks for all."""
    topics = call.topics
    if request.topics is None:
        wanted = [(info.name, info.partitions) for info in topics.values()]
    else:
        present = {
            asked.topic: set(topics[asked.topic].partitions)
            for asked in request.topics
            if asked.topic in topics
        }
        wanted = [
            (asked.topic, [n for n in asked.partitions if n in present[asked.topic]])
            for asked in request.topics
            if asked.topic in present
        ]
    path = call.service.settings.data
    rows, total_bytes, usable_bytes = await call.service.topics.access.run(
        _sizes, call.service.store, path, wanted
    )
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponseResult(
                log_dir=str(path.absolute()),
                topics=rows,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


def _sizes(
    store: LogStore, path: Path, wanted: Sequence[tuple[str, Sequence[int]]]
) -> tuple[list[DescribeLogDirsResponseTopic], int, int]:
    """Return a row of each topic, and the size and the free bytes of the file system (-1: unknown). Blocking."""
    rows = []
    for name, numbers in wanted:
        row = DescribeLogDirsResponseTopic(name=name)
        for number in numbers:
            with suppress(StorageError):  # deleted meanwhile
                size_bytes = store.log_bytes(TopicPartition(name, number))
                row.partitions.append(
                    DescribeLogDirsResponsePartition(
                        partition_index=number, partition_size=size_bytes or 0
                    )
                )
        rows.append(row)
    try:
        space = os.statvfs(path)
    except OSError:
        return rows, -1, -1
    return rows, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
