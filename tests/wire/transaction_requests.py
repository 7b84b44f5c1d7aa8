"""Requests of transactional producers, as the tests of the wire protocol send them.

Owns how a request is filled; must not know what the answer should be. Works with a real broker too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from api.kafka.protocol.messages.produce import (
    InitProducerIdRequest,
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from api.kafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
)
from api.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from storage.kafka.format.batch import encode_batch
from storage.model import Record
from tests.wire.harness import Connection

ID = "tx"


class Owner(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


def init(
    name: str | None = ID, known: Owner | None = None, **changed: Any
) -> InitProducerIdRequest:
    """Return a request for the next epoch of a transactional id."""
    fields: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    if known is not None:
        fields.update(producer_id=known.producer_id, producer_epoch=known.epoch)
    return InitProducerIdRequest(**{**fields, **changed})


async def begun(connection: Connection, name: str = ID, version: int = 5) -> Owner:
    """Initialise a transactional id, and return its producer."""
    while True:
        answer = await connection.call(init(name), version)
        if answer.error_code != 51:  # the real coordinator has not ended the transaction before
            assert answer.error_code == 0
            return Owner(answer.producer_id, answer.producer_epoch)


def add(
    owner: Owner, partitions: Mapping[str, Sequence[int]], name: str = ID
) -> AddPartitionsToTxnRequest:
    """Return a request that adds partitions to a transaction."""
    topics = [
        AddPartitionsToTxnRequestTopic(name=topic, partitions=list(numbers))
        for topic, numbers in partitions.items()
    ]
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.epoch,
        v3_and_below_topics=topics,
    )


def add_offsets(owner: Owner, group: str = "g", name: str = ID) -> AddOffsetsToTxnRequest:
    """Return a request that adds the offsets of a group to a transaction."""
    return AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        group_id=group,
    )


def commit_offsets(
    owner: Owner,
    offset: int = 1,
    group: str = "g",
    name: str = ID,
    topic: str = "t",
    **changed: Any,
) -> TxnOffsetCommitRequest:
    """Return a request that commits an offset of partition 0 in a transaction."""
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m"
    )
    fields: dict[str, Any] = {
        "transactional_id": name,
        "group_id": group,
        "producer_id": owner.producer_id,
        "producer_epoch": owner.epoch,
        "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
    }
    return TxnOffsetCommitRequest(**{**fields, **changed})


def end(owner: Owner, *, commit: bool, name: str = ID) -> EndTxnRequest:
    """Return a request that ends a transaction."""
    return EndTxnRequest(
        transactional_id=name,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        committed=commit,
    )


def batch(owner: Owner, sequence: int, *values: bytes, transactional: bool = True) -> bytes:
    """Return a batch of a transaction."""
    return encode_batch(
        [Record(None, value, timestamp_ms=1_700_000_000_000) for value in values],
        base_offset=0,
        leader_epoch=-1,
        now_ms=0,
        codec=0,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def send(*parts: tuple[int, bytes], name: str | None = ID, topic: str = "t") -> ProduceRequest:
    """Return a produce request of a transaction."""
    rows = [
        ProduceRequestPartitionProduceData(index=number, records=data) for number, data in parts
    ]
    topics = [ProduceRequestTopicProduceData(name=topic, partition_data=rows)]
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=topics)


def producers(topic: str, *numbers: int) -> DescribeProducersRequest:
    """Return a request for the producers of partitions."""
    asked = DescribeProducersRequestTopicRequest(name=topic, partition_indexes=list(numbers))
    return DescribeProducersRequest(topics=[asked])


def marker(
    owner: Owner,
    partitions: Mapping[str, Sequence[int]],
    *,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequestWritableTxnMarker:
    """Return the end of a producer's transaction in these partitions."""
    return WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            WriteTxnMarkersRequestWritableTxnMarkerTopic(
                name=topic, partition_indexes=list(numbers)
            )
            for topic, numbers in partitions.items()
        ],
    )


def markers(*wanted: WriteTxnMarkersRequestWritableTxnMarker) -> WriteTxnMarkersRequest:
    """Return a request for markers."""
    return WriteTxnMarkersRequest(markers=list(wanted))
