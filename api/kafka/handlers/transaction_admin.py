"""ListTransactions, DescribeTransactions, DescribeProducers and WriteTxnMarkers: what tools do with transactions.

Owns the filters of a list; must not know the coordinator's rules. From KafkaApis and TransactionStateManager.
Transactions that were begun over HTTP without a transactional id are listed too, with the id of the server's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartitionResponse,
    DescribeProducersResponseProducerState,
    DescribeProducersResponseTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseWritableTxnMarkerPartitionResult,
    WriteTxnMarkersResponseWritableTxnMarkerResult,
    WriteTxnMarkersResponseWritableTxnMarkerTopicResult,
)
from api.kafka.refusals import code_of
from logserver.groups.topic_pattern import TopicPattern
from storage import (
    PartitionMarker,
    StorageError,
    SupportsTransactions,
    TopicPartition,
    TransactionState,
    TransactionStatus,
)
from storage.errors import InvalidArgument, StoreReadOnly

STATES: Final = frozenset(status.label for status in TransactionStatus)
OTHER_STATES: Final = frozenset({"PrepareEpochFence"})
"""States of the real coordinator that no transaction has here."""


async def list_transactions(
    call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Return the transactional ids with their states, as far as the filters admit them."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = TopicPattern(request.transactional_id_pattern)
        except InvalidArgument:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [name for name in request.state_filters if name not in {*STATES, *OTHER_STATES}]
    now_ms = call.service.topics.access.clock()
    rows = [
        ListTransactionsResponseTransactionState(
            transactional_id=state.transactional_id,
            producer_id=state.producer_id,
            transaction_state=state.status.label,
        )
        for _, state in await call.service.transactions.states()
        if _is_wanted(request, state, now_ms)
        and (pattern is None or pattern.matches(state.transactional_id))
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _is_wanted(request: ListTransactionsRequest, state: TransactionState, now_ms: int) -> bool:
    """Return whether state, producer and duration of a transaction pass the filters."""
    if request.state_filters and state.status.label not in request.state_filters:
        return False
    if request.producer_id_filters and state.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - state.start_ms > request.duration_filter


async def describe_transactions(
    call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Return the state of each transactional id that is asked for."""
    rows = []
    for name in request.transactional_ids:
        await call.give_way()
        state = await call.service.transactions.state(name) if name else None
        if state is not None:
            rows.append(_described(state))
            continue
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
        rows.append(
            DescribeTransactionsResponseTransactionState(error_code=code, transactional_id=name)
        )
    return DescribeTransactionsResponse(transaction_states=rows)


def _described(state: TransactionState) -> DescribeTransactionsResponseTransactionState:
    topics: dict[str, DescribeTransactionsResponseTopicData] = {}
    for name, number in sorted(state.partitions):
        topic = DescribeTransactionsResponseTopicData(topic=name)
        topics.setdefault(name, topic).partitions.append(number)
    return DescribeTransactionsResponseTransactionState(
        transactional_id=state.transactional_id,
        transaction_state=state.status.label,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=state.start_ms,
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        topics=list(topics.values()),
    )


async def describe_producers(
    call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Return the producers that each partition knows, with their open transactions."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopicResponse(
                name=topic.name,
                partitions=[
                    await _producers(call, TopicPartition(topic.name, number))
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _producers(call: Call, at: TopicPartition) -> DescribeProducersResponsePartitionResponse:
    store = call.service.store
    assert isinstance(store, SupportsTransactions)
    await call.give_way()
    try:
        if at.topic not in call.topics:
            call.service.batches.check_name(at.topic)
        call.topics.partition(*at)
        producers = await call.service.topics.access.run(store.active_producers, at)
    except StorageError as error:
        return DescribeProducersResponsePartitionResponse(
            partition_index=at.partition, error_code=code_of(error), error_message=error.message
        )
    return DescribeProducersResponsePartitionResponse(
        partition_index=at.partition,
        active_producers=[
            DescribeProducersResponseProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.open_from,
            )
            for producer in producers
        ],
    )


async def write_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """End transactions in single partitions, whatever their coordinator knows: `kafka-transactions abort` does so for a
    hanging one. Several markers of a producer have one part of the answer, as from the real broker.
    """
    found: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            for number in topic.partition_indexes:
                at = TopicPartition(topic.name, number)
                code = await _mark(call, at, marker)
                found.setdefault(marker.producer_id, {})[at] = code
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponseWritableTxnMarkerResult(
                producer_id=producer_id, topics=_marked(codes)
            )
            for producer_id, codes in found.items()
        ]
    )


async def _mark(
    call: Call, at: TopicPartition, wanted: WriteTxnMarkersRequestWritableTxnMarker
) -> ErrorCode:
    """Write a marker. Return its number, which is that of a failure of the server for a negative id or epoch."""
    store = call.service.store
    assert isinstance(store, SupportsTransactions)
    marker = PartitionMarker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )
    try:
        await call.service.topics.access.run(store.mark_end, at, marker)
    except InvalidArgument:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    except StoreReadOnly:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    except StorageError as error:
        return code_of(error)
    call.service.waiters.notify(at)
    return ErrorCode.NONE


def _marked(
    codes: Mapping[TopicPartition, ErrorCode],
) -> list[WriteTxnMarkersResponseWritableTxnMarkerTopicResult]:
    topics: dict[str, WriteTxnMarkersResponseWritableTxnMarkerTopicResult] = {}
    for (name, number), code in codes.items():
        topic = topics.setdefault(
            name, WriteTxnMarkersResponseWritableTxnMarkerTopicResult(name=name)
        )
        topic.partitions.append(
            WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(
                partition_index=number, error_code=code
            )
        )
    return list(topics.values())
