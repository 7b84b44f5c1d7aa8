"""DeleteRecords, and OffsetForLeaderEpoch: where the log of a partition begins, and where an epoch of it ends.

Owns the answer of each partition. From ReplicaManager.deleteRecords: offset -1 is the end that readers see; and from
UnifiedLog.endOffsetForEpoch: an epoch above the newest one has no end, and both numbers are -1.
"""

from __future__ import annotations

from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestTopicsPartitions,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseTopics,
    OffsetForLeaderEpochResponseTopicsPartitions,
)
from api.kafka.protocol.messages.records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponseTopics,
    DeleteRecordsResponseTopicsPartitions,
)
from api.kafka.refusals import code_of, epoch_code
from storage import StorageError
from storage.errors import NotOffered

ALL: Final = -1


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete records below an offset; durable on return."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopics(
                name=topic.name,
                partitions=[
                    await _deleted(call, topic.name, partition.partition_index, partition.offset)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _deleted(
    call: Call, topic: str, number: int, offset: int
) -> DeleteRecordsResponseTopicsPartitions:
    row = DeleteRecordsResponseTopicsPartitions(partition_index=number, low_watermark=-1)
    try:
        partition = call.service.topics.partition(topic, number)
        if offset == ALL:
            offset = (await call.service.bounds(partition)).end
        bounds = await call.service.topics.delete_records(partition, offset)
    except NotOffered:
        row.error_code = ErrorCode.POLICY_VIOLATION
    except StorageError as error:
        row.error_code = code_of(error)
    else:
        row.low_watermark = bounds.start
    return row


async def offset_for_leader_epoch(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return the end of a leader epoch of each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseTopics(
                topic=topic.topic,
                partitions=[
                    await _end(call, topic.topic, partition) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _end(
    call: Call, topic: str, asked: OffsetForLeaderEpochRequestTopicsPartitions
) -> OffsetForLeaderEpochResponseTopicsPartitions:
    row = OffsetForLeaderEpochResponseTopicsPartitions(partition=asked.partition)
    try:
        partition = call.service.topics.partition(topic, asked.partition)
        row.error_code = epoch_code(call.service.store, partition, asked.current_leader_epoch)
        if row.error_code:
            return row
        end = await call.service.end_of_epoch(partition, asked.leader_epoch)
    except StorageError as error:
        row.error_code = code_of(error)
        return row
    if end is not None:
        row.leader_epoch, row.end_offset = end
    return row
