"""ListOffsets: the offsets at the ends of a partition, and the offset of a time.

Owns the special times of the protocol; the store finds the offsets. From ListOffsetsRequest and ReplicaManager: an
answer to a special time has no time of its own, but for that of -3.

    -1  the end (for committed records: the stable end)     -2, -4  the first offset
    -3  the record with the largest time                    -5, -6  of records in remote storage: there are none
    any time >= 0: the first record at or after it; no record: offset -1
"""

from __future__ import annotations

from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestTopicsPartitions,
    ListOffsetsResponse,
    ListOffsetsResponseTopics,
    ListOffsetsResponseTopicsPartitions,
)
from api.kafka.refusals import code_of, epoch_code
from logserver.service.fetch import visible_end
from storage import Isolation, LogStore, StorageError, SupportsBatchBytes, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIME: Final = -3
EARLIEST_LOCAL: Final = -4
REMOTE: Final = frozenset({-5, -6})
READ_COMMITTED: Final = 1

Row = ListOffsetsResponseTopicsPartitions


async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer ListOffsets."""
    return await call.service.topics.access.run(_list_offsets, call, request)


def _list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Blocking."""
    committed = request.isolation_level == READ_COMMITTED
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    store = call.service.store
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopics(
                name=topic.name,
                partitions=[
                    _row(store, topic.name, asked, isolation) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _row(
    store: LogStore, topic: str, asked: ListOffsetsRequestTopicsPartitions, isolation: Isolation
) -> Row:
    partition = TopicPartition(topic, asked.partition_index)
    try:
        code = epoch_code(store, partition, asked.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return Row(partition_index=asked.partition_index, error_code=code)
        return _found(store, partition, asked.timestamp, isolation)
    except StorageError as error:
        return Row(partition_index=asked.partition_index, error_code=code_of(error))


def _found(
    store: LogStore, partition: TopicPartition, timestamp_ms: int, isolation: Isolation
) -> Row:
    number = partition.partition
    bounds = store.bounds(partition)
    end = visible_end(bounds, isolation)
    if timestamp_ms == LATEST:
        return Row(partition_index=number, offset=end, leader_epoch=_epoch(store, partition))
    if timestamp_ms in {EARLIEST, EARLIEST_LOCAL}:
        return Row(partition_index=number, offset=bounds.start)
    if timestamp_ms in REMOTE:
        return Row(partition_index=number)
    if timestamp_ms == LARGEST_TIME:
        found = store.newest_time(partition)
    elif timestamp_ms < 0:
        return Row(partition_index=number, error_code=ErrorCode.INVALID_REQUEST)
    else:
        found = store.offset_for_time(partition, timestamp_ms)
    if found is None or found.offset >= end:
        return Row(partition_index=number)
    epoch = -1 if found.leader_epoch is None else found.leader_epoch
    return Row(
        partition_index=number,
        offset=found.offset,
        timestamp=found.timestamp_ms,
        leader_epoch=epoch,
    )


def _epoch(store: LogStore, partition: TopicPartition) -> int:
    return store.leader_epoch(partition) if isinstance(store, SupportsBatchBytes) else -1
