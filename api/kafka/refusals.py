"""Errors of the service as numbers of the wire protocol, and responses in which every part has the same number.

Owns the map from errors to numbers; must not handle requests. A number is retriable for a client only where a retry can
help: CORRUPT_MESSAGE and KAFKA_STORAGE_ERROR are retried for two minutes by producers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api.kafka.call import Ended
from api.kafka.group_refusals import GROUP_REFUSALS
from api.kafka.protocol import messages as m
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.configs import (
    AlterConfigsResponseResourceResponse,
    DescribeConfigsResponseResult,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)
from api.kafka.protocol.messages.fetch import (
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from api.kafka.protocol.messages.metadata import (
    DescribeTopicPartitionsResponseTopic,
    MetadataResponseTopic,
)
from api.kafka.protocol.messages.offsets import (
    DeleteRecordsResponsePartitionResult,
    DeleteRecordsResponseTopicResult,
    ListOffsetsResponsePartitionResponse,
    ListOffsetsResponseTopicResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
)
from api.kafka.protocol.messages.placement import (
    AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult,
)
from api.kafka.protocol.messages.produce import (
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from api.kafka.protocol.messages.topics import (
    CreatePartitionsResponseTopicResult,
    CreateTopicsResponseCreatableTopicResult,
    DeleteTopicsResponseDeletableTopicResult,
)
from api.kafka.transaction_refusals import TRANSACTION_REFUSALS
from logserver.errors import (
    Busy,
    InvalidGroup,
    NotReady,
    TimedOut,
    TopicInUse,
    TransactionEnded,
    UnknownConsumer,
    UnknownGroup,
    UnknownTransaction,
)
from storage import ClientBatches, EpochEnd, TopicPartition
from storage import errors as e
from storage.errors import StorageError

MAX_MESSAGE: Final = 4000
"""Most characters of a message: a string on the wire has at most 32,767 bytes, and clients print it."""
_CODES: Final[Mapping[type[StorageError], ErrorCode]] = {
    e.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    e.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    e.MissingPartitions: ErrorCode.KAFKA_STORAGE_ERROR,
    e.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    e.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    e.UnrepresentableRecord: ErrorCode.INVALID_RECORD,
    e.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    e.FencedProducer: ErrorCode.INVALID_PRODUCER_EPOCH,
    e.FencedCoordinator: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    e.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    e.InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    e.InvalidConfig: ErrorCode.INVALID_CONFIG,
    e.InvalidArgument: ErrorCode.INVALID_REQUEST,
    e.NotOffered: ErrorCode.INVALID_REQUEST,
    e.StoreReadOnly: ErrorCode.POLICY_VIOLATION,
    TopicInUse: ErrorCode.POLICY_VIOLATION,
    e.StoreFenced: ErrorCode.KAFKA_STORAGE_ERROR,
    e.StoreClosed: ErrorCode.KAFKA_STORAGE_ERROR,
    e.IoFailure: ErrorCode.KAFKA_STORAGE_ERROR,
    e.Corrupt: ErrorCode.CORRUPT_MESSAGE,
    e.Truncated: ErrorCode.CORRUPT_MESSAGE,
    Busy: ErrorCode.REQUEST_TIMED_OUT,
    TimedOut: ErrorCode.REQUEST_TIMED_OUT,
    NotReady: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    InvalidGroup: ErrorCode.INVALID_GROUP_ID,
    UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    UnknownConsumer: ErrorCode.UNKNOWN_MEMBER_ID,
    UnknownTransaction: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    TransactionEnded: ErrorCode.INVALID_TXN_STATE,
}
_BATCH_FIELDS: Final[Mapping[str, ErrorCode]] = {
    "magic": ErrorCode.CORRUPT_MESSAGE,
    "codec": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "compression": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "crc": ErrorCode.CORRUPT_MESSAGE,
    "length": ErrorCode.CORRUPT_MESSAGE,
}
_WRITE_CODES: Final[Mapping[type[StorageError], ErrorCode]] = {
    # Fatal and clear; a "not the leader" would make clients search for another node without an end.
    e.StoreReadOnly: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    e.InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    e.NotOffered: ErrorCode.INVALID_RECORD,
    e.Corrupt: ErrorCode.INVALID_RECORD,
    e.Truncated: ErrorCode.CORRUPT_MESSAGE,
    NotReady: ErrorCode.REQUEST_TIMED_OUT,  # producers try again; a number of coordinators is final for some
}
_TRIED_AGAIN: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT})
"""What producers do not try again in requests to a coordinator, but do as COORDINATOR_NOT_AVAILABLE."""


def code_of(error: BaseException) -> ErrorCode:
    """Return the number of an error; UNKNOWN_SERVER_ERROR for an error that has none."""
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def message_of(error: StorageError) -> str:
    """Return the message of an error, cut to what every client can read."""
    return readable(error.message)


def readable(message: str) -> str:
    """Return a message that may quote the client, cut to what every client can read."""
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."


def produce_code_of(error: BaseException) -> ErrorCode:
    """Return the number of an error of an append."""
    if isinstance(error, e.InvalidBatch):
        return _BATCH_FIELDS.get(str(error.facts().get("field")), ErrorCode.INVALID_RECORD)
    if isinstance(error, e.InvalidArgument) and error.facts().get("field") == "transaction":
        return ErrorCode.INVALID_TXN_STATE
    for kind in type(error).__mro__:
        code = _WRITE_CODES.get(kind)
        if code is not None:
            return code
    if isinstance(error, e.UnrepresentableRecord) and error.facts().get("field") == "timestamp":
        return ErrorCode.INVALID_TIMESTAMP
    return code_of(error)


def coordinator_code_of(error: BaseException, *, knows_fenced: bool) -> ErrorCode:
    """Return the number of an error of the coordinator of transactions: one that a client tries again where it can
    help. `knows_fenced`: the version of the request knows PRODUCER_FENCED.
    """
    if isinstance(error, e.FencedProducer) and knows_fenced:
        return ErrorCode.PRODUCER_FENCED
    if isinstance(error, e.InvalidArgument) and error.facts().get("field") == "timeout_ms":
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if isinstance(error, e.StoreReadOnly):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if isinstance(error, e.NotOffered):  # the store has no transactions
        return ErrorCode.UNSUPPORTED_VERSION
    code = code_of(error)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _TRIED_AGAIN else code


def epoch_code(batches: ClientBatches, partition: TopicPartition, epoch: int) -> ErrorCode:
    """Return the number of an error if `epoch` is not the partition's leader epoch; -1: the client names none.

    A client with an older epoch asks for the metadata, then checks that its position is still in the log. Does not
    block. Raises UnknownTopic, UnknownPartition. From Partition.checkCurrentLeaderEpoch.
    """
    if epoch < 0:
        return ErrorCode.NONE
    current = batches.leader_epoch(partition)
    if epoch == current:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def end_of_epoch(batches: ClientBatches, partition: TopicPartition, epoch: int) -> EpochEnd | None:
    """Return the end of a leader epoch, of the epoch of a log without records too; None: it has none. Blocking.

    Raises UnknownTopic, UnknownPartition. From Partition.makeLeader: an epoch begins before its first record.
    """
    found = batches.end_of_epoch(partition, epoch)
    if found is None and epoch == batches.leader_epoch(partition):
        return EpochEnd(epoch, batches.bounds(partition).end)
    return found


def refusal(key: int, request: Any, code: ErrorCode | None) -> Any:
    """Return the response to a request that is refused as a whole: every part of it has the same number.

    `code` None: the client's token does not allow the API, and the number says of what. Raises Ended for an API that
    has no such response.
    """
    kind, build = _REFUSALS.get(key, (None, None))
    if kind is None or build is None:
        raise Ended(f"API {key}: the request failed as a whole, and has no answer for that")
    return build(request, kind if code is None else code)


def _metadata(request: m.MetadataRequest, code: int) -> m.MetadataResponse:
    rows = [
        MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return m.MetadataResponse(topics=rows)


def _describe_topic_partitions(
    request: m.DescribeTopicPartitionsRequest, code: int
) -> m.DescribeTopicPartitionsResponse:
    return m.DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )


def _produce(request: m.ProduceRequest, code: int) -> m.ProduceResponse:
    if request.acks == 0:
        raise Ended("Produce with acks=0 was refused")
    return m.ProduceResponse(
        responses=[
            ProduceResponseTopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponsePartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: m.FetchRequest, code: int) -> m.FetchResponse:
    return m.FetchResponse(
        responses=[
            FetchResponseFetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    FetchResponsePartitionData(
                        partition_index=partition.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=None,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: m.ListOffsetsRequest, code: int) -> m.ListOffsetsResponse:
    return m.ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponsePartitionResponse(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_topics(request: m.CreateTopicsRequest, code: int) -> m.CreateTopicsResponse:
    return m.CreateTopicsResponse(
        topics=[
            CreateTopicsResponseCreatableTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


def _delete_topics(request: m.DeleteTopicsRequest, code: int) -> m.DeleteTopicsResponse:
    rows = [
        DeleteTopicsResponseDeletableTopicResult(name=name, error_code=code)
        for name in request.topic_names
    ]
    rows += [
        DeleteTopicsResponseDeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=code
        )
        for topic in request.topics
    ]
    return m.DeleteTopicsResponse(responses=rows)


def _describe_configs(request: m.DescribeConfigsRequest, code: int) -> m.DescribeConfigsResponse:
    return m.DescribeConfigsResponse(
        results=[
            DescribeConfigsResponseResult(
                error_code=code, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


def _alter_configs(request: m.AlterConfigsRequest, code: int) -> m.AlterConfigsResponse:
    return m.AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResourceResponse(
                error_code=code, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


def _incremental_alter_configs(
    request: m.IncrementalAlterConfigsRequest, code: int
) -> m.IncrementalAlterConfigsResponse:
    return m.IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
                error_code=code, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


def _delete_records(request: m.DeleteRecordsRequest, code: int) -> m.DeleteRecordsResponse:
    return m.DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsResponsePartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(
    request: m.OffsetForLeaderEpochRequest, code: int
) -> m.OffsetForLeaderEpochResponse:
    return m.OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponseEpochEndOffset(
                        partition=partition.partition, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_partitions(request: m.CreatePartitionsRequest, code: int) -> m.CreatePartitionsResponse:
    return m.CreatePartitionsResponse(
        results=[
            CreatePartitionsResponseTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


def _alter_replica_log_dirs(
    request: m.AlterReplicaLogDirsRequest, code: int
) -> m.AlterReplicaLogDirsResponse:
    return m.AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=code
                    )
                    for number in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TRANSACTION: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_REFUSALS: Final[Mapping[int, tuple[ErrorCode, Callable[[Any, ErrorCode], Any]]]] = {
    0: (_TOPIC, _produce),
    1: (_TOPIC, _fetch),
    2: (_TOPIC, _list_offsets),
    3: (_TOPIC, _metadata),
    10: (_CLUSTER, lambda request, code: m.FindCoordinatorResponse(error_code=code)),
    19: (_CLUSTER, _create_topics),
    20: (_TOPIC, _delete_topics),
    21: (_TOPIC, _delete_records),
    23: (_TOPIC, _offset_for_leader_epoch),
    32: (_TOPIC, _describe_configs),
    33: (_TOPIC, _alter_configs),
    34: (_CLUSTER, _alter_replica_log_dirs),
    35: (_CLUSTER, lambda request, code: m.DescribeLogDirsResponse(error_code=code)),
    37: (_TOPIC, _create_partitions),
    43: (_CLUSTER, lambda request, code: m.ElectLeadersResponse(error_code=code)),
    44: (_TOPIC, _incremental_alter_configs),
    45: (_CLUSTER, lambda request, code: m.AlterPartitionReassignmentsResponse(error_code=code)),
    46: (_CLUSTER, lambda request, code: m.ListPartitionReassignmentsResponse(error_code=code)),
    55: (_CLUSTER, lambda request, code: m.DescribeQuorumResponse(error_code=code)),
    60: (_CLUSTER, lambda request, code: m.DescribeClusterResponse(error_code=code)),
    74: (_CLUSTER, lambda request, code: m.ListConfigResourcesResponse(error_code=code)),
    75: (_TOPIC, _describe_topic_partitions),
    61: (_TOPIC, TRANSACTION_REFUSALS[61]),
    **{key: (_GROUP, build) for key, build in GROUP_REFUSALS.items()},
    **{key: (_TRANSACTION, build) for key, build in TRANSACTION_REFUSALS.items() if key != 61},
}
"""By API: the number for a client that may not use it, and the response."""
