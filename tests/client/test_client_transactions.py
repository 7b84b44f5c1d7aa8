"""Transactions with the Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logserver.client import (
    Isolation,
    LogClient,
    PlacedLater,
    Record,
    ServerRefused,
    TopicPartition,
    Transaction,
)
from tests.http.harness import opener, serving, settings
from tests.unit.kafka.log.batches import data_batch


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[LogClient]:
    """A client of a server with the topic orders of two partitions."""
    chosen = settings(tmp_path / "store", set={"transaction.state.log.num.partitions": "1"})
    async with serving(chosen, opener("kafka", chosen)) as api, LogClient(api.url) as one:
        await one.create_topic("orders", partitions=2)
        yield one


async def committed(client: LogClient) -> list[str]:
    records = client.records("orders", isolation=Isolation.READ_COMMITTED)
    return sorted([record.text async for record in records])


async def test_the_end_of_the_block_commits(client: LogClient) -> None:
    await client.produce("orders", "plain", partition=0)
    async with client.transaction() as transaction:
        await transaction.produce("orders", "a", partition=0)
        await transaction.produce("orders", "b", key="k", partition=1)
        await transaction.commit_offsets("billing", {TopicPartition("orders", 0): 1})
        assert await committed(client) == ["plain"]
        (listed,) = await client.transactions("Ongoing")
        assert listed.id == transaction.id
        assert {(at.topic, at.partition) for at in listed.partitions} >= {("orders", 0)}
    assert await committed(client) == ["a", "b", "plain"]
    (partition,) = (await client.group("billing")).partitions
    assert partition.committed == 1
    assert [one.state for one in await client.transactions()] == ["CompleteCommit"]


async def test_an_exception_rolls_back(client: LogClient) -> None:
    used: list[Transaction] = []

    async def fails() -> None:
        async with client.transaction("billing", timeout_ms=1000) as transaction:
            used.append(transaction)
            await transaction.produce("orders", "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert await committed(client) == []
    with pytest.raises(ServerRefused) as refusal:
        await used[0].produce("orders", "late")
    assert refusal.value.error_code == 40903


async def test_batches_in_a_transaction(client: LogClient) -> None:
    begun = await client.begin_transaction()
    assert begun.producer_id is not None
    assert begun.epoch is not None
    producer = (begun.producer_id, begun.epoch, 0)
    batch = data_batch(0, value=b"v", producer=producer, transactional=True)
    await client.produce_batches("orders", 0, batch, transaction=begun.id)
    await client.rollback_transaction(begun.id)
    await client.rollback_transaction(begun.id)
    assert await committed(client) == []
    with pytest.raises(ServerRefused) as refusal:
        await client.commit_transaction(begun.id)
    assert (refusal.value.status, refusal.value.error_code) == (409, 40903)


async def test_half_messages(tmp_path: Path) -> None:
    """On RocketMQ's format a commit delivers what was prepared; a producer polls what it has to end."""
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("rocketmq", chosen)) as api, LogClient(api.url) as client:
        await client.create_topic("orders", partitions=2)
        async with client.transaction("billing", timeout_ms=1) as transaction:
            place = await transaction.produce("orders", "a", partition=0)
            assert isinstance(place, PlacedLater)
            assert (place.partition, place.offset, place.delay_level) == (0, -1, 0)
            await transaction.produce_many("orders", [Record(b"k", b"b"), Record(b"k", b"c")])
            assert await committed(client) == []
            await asyncio.sleep(0.002)
            (listed,) = await client.transactions("unknown")
            assert (listed.id, listed.transactional_id, listed.messages, listed.checks) == (
                transaction.id,
                "billing",
                3,
                0,
            )
            assert listed.message_id == place.message_id
            with pytest.raises(ServerRefused) as refusal:
                await transaction.commit_offsets("billing", {TopicPartition("orders", 0): 0})
            assert refusal.value.error_code == 42207
        assert await committed(client) == ["a", "b", "c"]
        begun = await client.begin_transaction()
        await client.produce_many("orders", [Record(None, b"no")], transaction=begun.id)
        await client.rollback_transaction(begun.id)
        assert await committed(client) == ["a", "b", "c"]
        assert await client.transactions() == []
