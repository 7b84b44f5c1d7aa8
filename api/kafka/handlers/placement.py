"""Where partitions are: every one on this node, in its one log directory.

Owns the answers to requests that move partitions or choose leaders; must not move anything. A request for the present
state is granted, every other one is refused with the number that a cluster of one node gives. From
ReplicationControlManager and ReplicaManager.alterReplicaLogDirs. As in QuorumController a change whose timeout is 0 or
less is too late when it arrives.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
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


def _known(call: Call, topics: Iterable[str]) -> Mapping[str, Collection[int]]:
    """Return the partitions of topics; none of an unknown one. A request may name a large topic very often, so each is
    looked at once.
    """
    found = {name: call.topics.get(name) for name in frozenset(topics)}
    return {
        name: frozenset((*info.partitions, *info.missing)) if info else frozenset()
        for name, info in found.items()
    }


async def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer that no election is needed: every partition has its leader. Without topics, all have an empty row."""
    code = ErrorCode.NONE
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        code = ErrorCode.REQUEST_TIMED_OUT
    elif call.version >= FIRST_WITH_TYPE and request.election_type not in ELECTIONS:
        code = ErrorCode.INVALID_REQUEST
    asked: Sequence[tuple[str, Sequence[int]]] = ()
    if request.topic_partitions is not None:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    elif code is ErrorCode.NONE:
        asked = [(name, ()) for name in call.topics]
    known = _known(call, (name for name, _ in asked))
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ElectLeadersResponseReplicaElectionResult(
                topic=name,
                partition_result=[
                    await _elected(call, known[name], name, number)
                    if code is ErrorCode.NONE
                    else ElectLeadersResponsePartitionResult(partition_id=number, error_code=code)
                    for number in numbers
                ],
            )
            for name, numbers in asked
        ],
    )


async def _elected(
    call: Call, known: Collection[int], topic: str, number: int
) -> ElectLeadersResponsePartitionResult:
    await call.give_way()
    if number not in known:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _missing(known, topic, number)
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        message = f"partition {topic}-{number} has its leader: no election is needed"
    return ElectLeadersResponsePartitionResult(
        partition_id=number, error_code=code, error_message=message
    )


def _missing(known: Collection[int], topic: str, number: int) -> str:
    """Return the message for a partition that does not exist. An unknown topic's name is not quoted: it is in the
    answer once, may fill a string on the wire, and would be repeated for each of its partitions.
    """
    if not known:
        return "the topic does not exist"
    return f"topic {topic!r} has no partition {number}: it has {len(known)}, numbered from 0"


async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Grant an assignment to this node, and refuse every other one."""
    is_late = bool(request.topics) and request.timeout_ms <= 0
    code = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NONE
    known = _known(call, (topic.name for topic in request.topics))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=None,
        responses=[
            AlterPartitionReassignmentsResponseReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    AlterPartitionReassignmentsResponseReassignablePartitionResponse(
                        partition_index=asked.partition_index, error_code=code, error_message=None
                    )
                    if is_late
                    else await _assigned(call, known[topic.name], topic.name, asked)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def _assigned(
    call: Call,
    known: Collection[int],
    topic: str,
    asked: AlterPartitionReassignmentsRequestReassignablePartition,
) -> AlterPartitionReassignmentsResponseReassignablePartitionResponse:
    """Return the row of an assignment; `replicas` None: a reassignment is to be cancelled."""
    await call.give_way()
    number, replicas = asked.partition_index, asked.replicas
    code, message = ErrorCode.NONE, None
    if number not in known:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _missing(known, topic, number)
    elif replicas is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    elif list(replicas) != [call.node_id]:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        message = f"replicas {list(replicas)[:10]}: this server has one node, {call.node_id}"
    return AlterPartitionReassignmentsResponseReassignablePartitionResponse(
        partition_index=number, error_code=code, error_message=message
    )


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
    names = (topic.name for directory in request.dirs for topic in directory.topics)
    known = _known(call, names)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=await _move_code(
                            call, known[topic.name], number, is_own=directory.path == own
                        ),
                    )
                    for number in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


async def _move_code(call: Call, known: Collection[int], number: int, *, is_own: bool) -> ErrorCode:
    await call.give_way()
    if not is_own:
        return ErrorCode.LOG_DIR_NOT_FOUND
    return ErrorCode.NONE if number in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Return the store's directory with the sizes of the partitions that are asked for; null asks for all."""
    topics = call.topics
    if request.topics is None:
        wanted = [(info.name, info.partitions) for info in topics.values()]
    else:
        names = frozenset(asked.topic for asked in request.topics)
        present = {name: set(topics[name].partitions) for name in names if name in topics}
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
