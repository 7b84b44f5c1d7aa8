"""Responses to the requests of transactions in which every part has the same error number.

Owns their shape; must not choose the number (`api.kafka.refusals`), but for the one thing that the shape decides: a
producer without a transactional id is not refused because of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from api.kafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartitionResponse,
    DescribeProducersResponseTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    ListTransactionsResponse,
)
from api.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartitionResult,
    AddPartitionsToTxnResponseTopicResult,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage import TopicPartition


def _init(request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and request.transactional_id is None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def added(
    request: AddPartitionsToTxnRequest, code: int, codes: Mapping[TopicPartition, int] | None = None
) -> AddPartitionsToTxnResponse:
    """Return the response with a number of each partition: that in `codes`, else `code`."""
    of = codes or {}
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponseTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponsePartitionResult(
                        partition_index=number,
                        partition_error_code=of.get(TopicPartition(topic.name, number), code),
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def committed(
    request: TxnOffsetCommitRequest, code: int, codes: Mapping[TopicPartition, int] | None = None
) -> TxnOffsetCommitResponse:
    """Return the response with a number of each partition: that in `codes`, else `code`."""
    of = codes or {}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=of.get(TopicPartition(topic.name, row.partition_index), code),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(request: DescribeProducersRequest, code: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopicResponse(
                name=topic.name,
                partitions=[
                    DescribeProducersResponsePartitionResponse(
                        partition_index=number, error_code=code
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(request: DescribeTransactionsRequest, code: int) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponseTransactionState(transactional_id=name, error_code=code)
            for name in request.transactional_ids
        ]
    )


TRANSACTION_REFUSALS: Final[Mapping[int, Callable[[Any, Any], Any]]] = {
    22: _init,
    24: added,
    25: lambda request, code: AddOffsetsToTxnResponse(error_code=code),
    26: lambda request, code: EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1),
    28: committed,
    61: _producers,
    65: _describe,
    66: lambda request, code: ListTransactionsResponse(error_code=code),
}
"""By API: the response."""
