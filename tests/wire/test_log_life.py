"""Partitions that are added, records that are deleted, and the ends of leader epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.kafka.apis import SERVED
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.offsets import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochRequestOffsetForLeaderTopic,
)
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from storage import TopicPartition
from tests.wire.harness import BOTH, Broker, Connection, batch, broker, fetch, produce


def versions(key: int) -> range:
    """Return the versions of an API that are offered."""
    return range(SERVED[key].first, SERVED[key].last + 1)


def more(name: str, count: int, nodes: list[int] | None = None, *, check: bool = False) -> Any:
    """Return a request for a number of partitions, on these nodes."""
    assigned = (
        None
        if nodes is None
        else [CreatePartitionsRequestAssignment(broker_ids=[node]) for node in nodes]
    )
    topic = CreatePartitionsRequestTopic(name=name, count=count, assignments=assigned)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=check)


@BOTH
@pytest.mark.parametrize("version", versions(37))
async def test_more_partitions(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t")

    async def code(request: Any) -> int:
        (row,) = (await connection.call(request, version)).results
        assert bool(row.error_message) == bool(row.error_code)
        return int(row.error_code)

    assert await code(more("t", 3, check=True)) == 0
    assert len(kafka.service.topics["t"].partitions) == 1
    assert await code(more("t", 3, [1])) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await code(more("t", 3, [1, 1])) == 0
    assert len(kafka.service.topics["t"].partitions) == 3
    assert await code(more("t", 3)) == ErrorCode.INVALID_PARTITIONS
    assert await code(more("t", 1_000_000)) == ErrorCode.INVALID_PARTITIONS
    assert await code(more("u", 3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = (
        (await connection.call(produce("t", (2, batch(b"a"))), 9)).responses[0].partition_responses
    )
    assert (row.error_code, row.base_offset) == (0, 0)


@pytest.mark.parametrize("version", versions(21))
async def test_deleted_records(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t")
    for value in (b"a", b"b", b"c"):
        await connection.call(produce("t", (0, batch(value))), 9)

    async def deleted(offset: int, number: int = 0) -> tuple[int, int]:
        asked = DeleteRecordsRequestPartition(partition_index=number, offset=offset)
        topic = DeleteRecordsRequestTopic(name="t", partitions=[asked])
        response = await connection.call(DeleteRecordsRequest(topics=[topic]), version)
        (row,) = response.topics[0].partitions
        return row.error_code, row.low_watermark

    assert await deleted(2) == (0, 2)
    assert await deleted(1) == (0, 2)
    assert await deleted(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await deleted(0, 5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    (row,) = (await connection.call(fetch("t", (0, 0)), 12)).responses[0].partitions
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await deleted(-1) == (0, 3)


@pytest.mark.parametrize("version", versions(23))
async def test_ends_of_epochs(tmp_path: Path, version: int) -> None:
    """A start raises the epoch with its first append."""
    path = tmp_path / "store"
    for _ in range(2):
        async with broker(path) as kafka, kafka.connect() as connection:
            if "t" not in kafka.service.topics:
                await kafka.api.create("t")
            await connection.call(produce("t", (0, batch(b"a", b"b"))), 9)

    async with broker(path) as kafka, kafka.connect() as connection:

        async def end(epoch: int, number: int = 0) -> tuple[int, int, int]:
            asked = OffsetForLeaderEpochRequestOffsetForLeaderPartition(
                partition=number, leader_epoch=epoch
            )
            topic = OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[asked])
            request = OffsetForLeaderEpochRequest(topics=[topic])
            (row,) = (await connection.call(request, version)).topics[0].partitions
            return row.error_code, row.leader_epoch, row.end_offset

        assert await end(0) == (0, 0, 2)
        assert await end(1) == (0, 1, 4)
        assert await end(2) == (0, -1, -1)
        assert (await end(0, 5))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_with_another_history(tmp_path: Path) -> None:
    """A fetch names the epoch of the client's last record: the answer says where the histories diverge."""
    path = tmp_path / "store"
    for _ in range(3):  # epoch N has offsets 2N and 2N + 1
        async with broker(path) as kafka, kafka.connect() as connection:
            if "t" not in kafka.service.topics:
                await kafka.api.create("t")
            await connection.call(produce("t", (0, batch(b"a", b"b"))), 9)

    async with broker(path) as kafka, kafka.connect() as connection:

        async def after(epoch: int, offset: int) -> tuple[int, int, int, bool]:
            request = fetch("t", (0, offset))
            request.topics[0].partitions[0].last_fetched_epoch = epoch
            (row,) = (await connection.call(request, 12)).responses[0].partitions
            end = row.diverging_epoch
            return row.error_code, end.epoch, end.end_offset, bool(row.records)

        async def first() -> tuple[int, int]:
            asked = ListOffsetsRequestPartition(partition_index=0, timestamp=-2)
            topic = ListOffsetsRequestTopic(name="t", partitions=[asked])
            response = await connection.call(ListOffsetsRequest(topics=[topic]), 8)
            (row,) = response.topics[0].partitions
            return row.offset, row.leader_epoch

        assert await after(0, 2) == (0, -1, -1, True)
        assert await after(0, 3) == (0, 0, 2, False)
        assert await after(1, 4) == (0, -1, -1, True)
        assert await after(1, 6) == (0, 1, 4, False)
        assert await after(2, 6) == (0, -1, -1, False)
        assert await after(3, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, False)
        partition = TopicPartition("t", 0)
        for before, epoch in ((0, 0), (1, 0), (2, 1), (5, 2), (6, 2)):
            await kafka.service.topics.delete_records(partition, before)
            assert await first() == (before, epoch)
        assert await after(2, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, False)


@BOTH
@pytest.mark.parametrize("version", range(7, SERVED[2].last + 1))
async def test_the_largest_time(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t", 2)
    await connection.call(produce("t", (0, batch(b"a", b"b"))), 9)

    async def found(timestamp_ms: int, number: int = 0) -> tuple[int, int, int]:
        asked = ListOffsetsRequestPartition(partition_index=number, timestamp=timestamp_ms)
        topic = ListOffsetsRequestTopic(name="t", partitions=[asked])
        response = await connection.call(ListOffsetsRequest(topics=[topic]), version)
        (row,) = response.topics[0].partitions
        return row.error_code, row.offset, row.timestamp

    if kafka.keeps_batches:
        assert await found(-3) == (0, 0, 1_700_000_000_000)
    else:  # the largest store time is that of the last message
        assert (await found(-3))[:2] == (0, 1)
    assert await found(-3, 1) == (0, -1, -1)
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert await found(-4) == ((0, 0, -1) if version >= 8 else refused)
    assert await found(-5) == ((0, -1, -1) if version >= 9 else refused)
    assert await found(-99) == refused
