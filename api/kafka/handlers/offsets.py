"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where the log of a partition begins, and where it ends.

Owns the special times and offsets of the protocol; the store finds the offsets. From ListOffsetsRequest and
ReplicaManager: an answer to a special time has no time of its own, but for that of -3.

    -1  the end (for committed records: the stable end)     -2, -4  the first offset
    -3  the record with the largest time                    -5, -6  of records in remote storage: there are none
    any time >= 0: the first record at or after it; no record: offset -1

A special time has a first version, before which it is refused as an unknown one. A partition that is named twice is
refused.

From ReplicaManager.deleteRecords: offset -1 is the end that readers see; and from UnifiedLog.endOffsetForEpoch: an
epoch above the newest one has no end, and both numbers are -1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.offsets import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartitionResult,
    DeleteRecordsResponseTopicResult,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartitionResponse,
    ListOffsetsResponseTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
)
from api.kafka.refusals import code_of, end_of_epoch, epoch_code
from logserver.service.fetch import visible_end
from storage import (
    ClientBatches,
    Isolation,
    LogStore,
    StorageError,
    SupportsDeleteRecords,
    TopicPartition,
)
from storage.errors import NotOffered

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIME: Final = -3
EARLIEST_LOCAL: Final = -4
REMOTE: Final = frozenset({-5, -6})
FIRST_VERSIONS: Final = {LATEST: 1, EARLIEST: 1, LARGEST_TIME: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}
"""The special times, and the first version of the request that has them."""
READ_COMMITTED: Final = 1
ALL: Final = -1
"""The offset of DeleteRecords that stands for the end that readers see."""

Row = ListOffsetsResponsePartitionResponse


async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer ListOffsets."""
    return await call.service.topics.access.run(_list_offsets, call, request)


def _list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Blocking."""
    committed = request.isolation_level == READ_COMMITTED
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    counts = Counter(
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopicResponse(
                name=topic.name,
                partitions=[
                    _row(call, topic.name, asked, isolation)
                    if counts[topic.name, number] == 1
                    else Row(partition_index=number, error_code=ErrorCode.INVALID_REQUEST)
                    for number, asked in {
                        one.partition_index: one for one in topic.partitions
                    }.items()
                ],
            )
            for topic in request.topics
        ]
    )


def _row(call: Call, topic: str, asked: ListOffsetsRequestPartition, isolation: Isolation) -> Row:
    partition = TopicPartition(topic, asked.partition_index)
    service = call.service
    try:
        call.topics.check(topic)
        code = epoch_code(service.batches, partition, asked.current_leader_epoch)
        if code is ErrorCode.NONE and asked.timestamp < 0:
            first = FIRST_VERSIONS.get(asked.timestamp)
            if first is None or call.version < first:
                code = ErrorCode.UNSUPPORTED_VERSION
        if code is not ErrorCode.NONE:
            return Row(partition_index=asked.partition_index, error_code=code)
        return _found(service.store, service.batches, partition, asked.timestamp, isolation)
    except StorageError as error:
        return Row(partition_index=asked.partition_index, error_code=code_of(error))


def _found(
    store: LogStore,
    batches: ClientBatches,
    partition: TopicPartition,
    timestamp_ms: int,
    isolation: Isolation,
) -> Row:
    number = partition.partition
    bounds = store.bounds(partition)
    end = visible_end(bounds, isolation)
    if timestamp_ms == LATEST:
        return Row(partition_index=number, offset=end, leader_epoch=batches.leader_epoch(partition))
    if timestamp_ms in {EARLIEST, EARLIEST_LOCAL}:
        epoch = _first_epoch(batches, partition, bounds.start)
        return Row(partition_index=number, offset=bounds.start, leader_epoch=epoch)
    if timestamp_ms in REMOTE:
        return Row(partition_index=number)
    if timestamp_ms == LARGEST_TIME:
        found = store.newest_time(partition)
    else:
        found = store.offset_for_time(partition, timestamp_ms)
    if found is None or found.offset >= end:
        return Row(partition_index=number)
    found_epoch = found.leader_epoch
    if found_epoch is None:  # of a store without leader epochs
        found_epoch = batches.leader_epoch(partition)
    return Row(
        partition_index=number,
        offset=found.offset,
        timestamp=found.timestamp_ms,
        leader_epoch=found_epoch,
    )


def _first_epoch(batches: ClientBatches, partition: TopicPartition, start: int) -> int:
    """Return the leader epoch of the log's first offset: the oldest epoch that ends after it, or the newest one."""

    def ends_later(epoch: int) -> bool:
        end = batches.end_of_epoch(partition, epoch)
        return end is not None and end.end_offset > start

    newest = batches.leader_epoch(partition)
    return bisect_left(range(newest), True, key=ends_later)


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete records below an offset; durable on return."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopicResult(
                name=topic.name,
                partitions=[
                    await _deleted(call, topic.name, number, offset)
                    for number, offset in {
                        one.partition_index: one.offset for one in topic.partitions
                    }.items()
                ],
            )
            for topic in request.topics
        ]
    )


async def _deleted(
    call: Call, topic: str, number: int, offset: int
) -> DeleteRecordsResponsePartitionResult:
    row = DeleteRecordsResponsePartitionResult(partition_index=number, low_watermark=-1)
    await call.give_way()
    try:
        partition = call.topics.partition(topic, number)
        if offset == ALL:
            offset = (await call.service.bounds(partition)).end
        bounds = await call.service.topics.delete_records(partition, offset)
    except NotOffered:  # of this topic, or of every topic of the store
        offered = isinstance(call.service.store, SupportsDeleteRecords)
        row.error_code = ErrorCode.POLICY_VIOLATION if offered else ErrorCode.UNSUPPORTED_VERSION
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
            OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    await _end(call, topic.topic, partition) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _end(
    call: Call, topic: str, asked: OffsetForLeaderEpochRequestOffsetForLeaderPartition
) -> OffsetForLeaderEpochResponseEpochEndOffset:
    row = OffsetForLeaderEpochResponseEpochEndOffset(partition=asked.partition)
    await call.give_way()
    try:
        partition = call.topics.partition(topic, asked.partition)
        row.error_code = epoch_code(call.service.batches, partition, asked.current_leader_epoch)
        if row.error_code:
            return row
        end = await call.service.topics.access.run(
            end_of_epoch, call.service.batches, partition, asked.leader_epoch
        )
    except StorageError as error:
        row.error_code = code_of(error)
        return row
    if end is not None:
        row.leader_epoch, row.end_offset = end
    return row
