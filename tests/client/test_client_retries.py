"""Messages handed back with the Python client: consumers that get them again, on both formats, and the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logserver.client import LogClient, RetryPlace, ServerRefused, TopicPartition
from tests.http.harness import opener, serving, settings

LEVELS = {"messageDelayLevel": "1s 1s 1s 1s"}


@pytest.fixture
async def rocketmq(tmp_path: Path) -> AsyncIterator[LogClient]:
    """A client of a server with the topic orders on RocketMQ's format; every level waits a second."""
    chosen = settings(tmp_path / "store", delivery_interval_ms=1, set=LEVELS)
    async with serving(chosen, opener("rocketmq", chosen)) as api, LogClient(api.url) as one:
        await one.create_topic("orders", partitions=1)
        yield one


@pytest.fixture
async def kafka(tmp_path: Path) -> AsyncIterator[LogClient]:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen)) as api, LogClient(api.url) as one:
        await one.create_topic("orders", partitions=1)
        yield one


async def test_a_consumer_gets_a_retry_and_commits_it(rocketmq: LogClient) -> None:
    await rocketmq.produce("orders", "first", key="k")
    async with rocketmq.consumer("g", ["orders"]) as consumer:
        (record,) = await consumer.poll(timeout_ms=5000)
        sent = await rocketmq.hand_back("g", record)
        assert (sent.topic, sent.partition, sent.times, sent.dead) == ("%RETRY%g", 0, 1, False)
        assert sent.delay_level == 3
        assert sent.deliver_at_ms is not None
        (again,) = await consumer.poll(timeout_ms=5000)
        assert (again.topic, again.partition, again.text, again.key) == (
            "orders",
            -1,
            "first",
            b"k",
        )
        assert again.retry == RetryPlace("%RETRY%g", 0, 1)
        assert again.stored_in == TopicPartition("%RETRY%g", 0)
        await consumer.commit()
    committed = {
        (one.topic, one.partition): one.committed for one in (await rocketmq.group("g")).partitions
    }
    assert committed == {("orders", 0): 1, ("%RETRY%g", 0): 1}
    dead = await rocketmq.hand_back("g", again, dead=True)
    assert (dead.topic, dead.times, dead.dead, dead.deliver_at_ms) == ("%DLQ%g", 2, True, None)


async def test_the_settings_of_a_group(rocketmq: LogClient) -> None:
    changed = await rocketmq.change_group_retries("g", 0)
    assert (changed.max_times, changed.retry_topic) == (0, "%RETRY%g")
    assert await rocketmq.group_retries("g") == changed
    placed = await rocketmq.produce("orders", "first")
    assert placed.message_id is not None
    assert (await rocketmq.hand_back("g", placed.message_id)).dead
    assert not (await rocketmq.hand_back("g", placed.message_id, max_times=1)).dead


async def test_topics_of_the_convention(kafka: LogClient) -> None:
    await kafka.produce("orders", "first")
    async with kafka.consumer("g", ["orders", "g.retry"]) as consumer:
        (record,) = await consumer.poll(timeout_ms=5000)
        sent = await kafka.hand_back("g", record)
        assert (sent.message_id, sent.times) == ("g.retry:0:0", 1)
        (again,) = await consumer.poll(timeout_ms=5000)
        assert (again.topic, again.text, again.retry) == ("g.retry", "first", None)
        assert (await kafka.hand_back("g", again)).times == 2
        with pytest.raises(ServerRefused) as caught:
            await kafka.hand_back("g", record, delay_level=3)
        assert caught.value.error_code == 42207
