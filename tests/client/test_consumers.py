"""Members of consumer groups: each record at least once, and no commit after the last record taken."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from logserver.client import (
    ClientError,
    GroupConsumer,
    LogClient,
    ServerRefused,
    ServerUnreachable,
    TopicPartition,
    as_record,
)

FIRST = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
async def topic(client: LogClient) -> None:
    """A topic of two partitions with three records in each."""
    await client.create_topic("t", partitions=2)
    for partition in range(2):
        records = [as_record(f"{partition}-{n}") for n in range(3)]
        await client.produce_many("t", records, partition=partition)


async def taken(consumer: GroupConsumer, count: int) -> list[str]:
    """Return the texts of the next records."""
    found: list[str] = []
    async with asyncio.timeout(20), aclosing(consumer.records()) as records:
        while len(found) < count:
            found.append((await anext(records)).text)
    return found


ALL = [f"{partition}-{n}" for partition in range(2) for n in range(3)]


async def test_all_records_once(client: LogClient) -> None:
    async with client.consumer("g", ["t"], name="one") as consumer:
        assert consumer.name == "one"
        assert sorted(await consumer.assigned()) == [FIRST, TopicPartition("t", 1)]
        assert sorted(await taken(consumer, 6)) == ALL
        await consumer.commit()
        assert await consumer.poll(timeout_ms=0) == []
    async with client.consumer("g", ["t"]) as consumer:
        assert await consumer.poll(timeout_ms=100) == []
    assert await client.groups() == ["g"]
    group = await client.group("g")
    assert (group.lag, group.members) == (0, [])
    assert [(one.partition, one.committed) for one in group.partitions] == [(0, 3), (1, 3)]


async def test_only_what_was_taken_is_committed(client: LogClient) -> None:
    """Only records taken by the reader are committed, not all records of the poll."""
    async with client.consumer("g", partitions=[FIRST]) as consumer:
        assert await taken(consumer, 2) == ["0-0", "0-1"]
        await consumer.commit()
        await consumer.commit()  # commits nothing more
    async with client.consumer("g", partitions=[FIRST]) as consumer:
        assert await taken(consumer, 1) == ["0-2"]


async def test_what_was_not_committed_comes_again(client: LogClient) -> None:
    for _ in range(2):
        async with client.consumer("g", partitions=[FIRST]) as consumer:
            assert [one.text for one in await consumer.poll()] == ["0-0", "0-1", "0-2"]


async def test_two_share(client: LogClient) -> None:
    async with (
        client.consumer("g", ["t"]) as one,
        client.consumer("g", pattern="[s-u]") as other,
    ):
        shares = [await one.assigned(), await other.assigned()]
        assert sorted(map(len, shares)) == [1, 1]
        members = (await client.group("g")).members
        assert sorted(member.topic_pattern or "" for member in members) == ["", "[s-u]"]
        assert sorted(await taken(one, 3) + await taken(other, 3)) == ALL


async def test_seeking(client: LogClient) -> None:
    async with client.consumer("g", partitions=[FIRST], offset_reset="latest") as consumer:
        assert await consumer.poll(timeout_ms=0) == []
        await consumer.seek({FIRST: 1})
        assert [one.text for one in await consumer.poll()] == ["0-1", "0-2"]
        await consumer.seek_to_beginning([FIRST])
        assert len(await consumer.poll()) == 3
        await consumer.seek_to_end([FIRST])
        assert await consumer.poll(timeout_ms=0) == []


async def test_some_at_a_time(client: LogClient) -> None:
    """Records left from a poll are returned by the next poll, unless the reader seeks."""
    async with client.consumer("g", partitions=[FIRST]) as consumer:
        assert [one.text for one in await consumer.poll(max_records=1)] == ["0-0"]
        assert [one.text for one in await consumer.poll(max_records=1)] == ["0-1"]
        await consumer.commit()
        await consumer.seek({FIRST: 0})
        assert len(await consumer.poll()) == 3
    assert (await client.group("g")).partitions[0].committed == 2


async def test_seeking_in_a_partition_loses_nothing_of_another(client: LogClient) -> None:
    """A seek in a partition keeps records of other partitions left from a poll: the server returns them only once."""
    async with client.consumer("g", ["t"]) as consumer:
        (one,) = await consumer.poll(max_records=1)
        await consumer.seek_to_end([TopicPartition("t", one.partition)])
        others = [text for text in ALL if not text.startswith(f"{one.partition}-")]
        assert await taken(consumer, 3) == others


async def test_a_lost_answer_is_not_passed_over(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.consumer("g", partitions=[FIRST]) as consumer:
        once = client.transport._once

        async def lossy(*arguments: Any, **options: Any) -> Any:
            await once(*arguments, **options)
            raise ServerUnreachable("lost", url="")

        with monkeypatch.context() as patched:
            patched.setattr(client.transport, "_once", lossy)
            with pytest.raises(ServerUnreachable):
                await consumer.poll()
        with pytest.raises(ClientError, match="make another"):
            await consumer.poll()
        await consumer.commit()
    async with client.consumer("g", partitions=[FIRST]) as consumer:
        assert await taken(consumer, 1) == ["0-0"]


async def test_a_commit_that_failed_may_be_tried_again(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.consumer("g", partitions=[FIRST]) as consumer:
        await taken(consumer, 2)

        async def refuse(*_: object, **__: object) -> None:
            raise ServerUnreachable("lost", url="")

        with monkeypatch.context() as patched:
            patched.setattr(client.transport, "call", refuse)
            with pytest.raises(ServerUnreachable):
                await consumer.commit()
        await consumer.commit()
    assert (await client.group("g")).partitions[0].committed == 2


async def test_what_cannot_be_subscribed_leaves_no_member(client: LogClient) -> None:
    with pytest.raises(ServerRefused):
        async with client.consumer("g", pattern="("):
            pass
    with pytest.raises(ServerRefused) as raised:
        await client.group("g")
    assert raised.value.error_code == 40405


async def test_a_member_that_never_joined_says_so(client: LogClient) -> None:
    with pytest.raises(ClientError, match="async with"):
        await client.consumer("g", ["t"]).poll()
    with pytest.raises(ClientError, match="async with"):
        await client.producer("t").send("x")


async def test_an_instance_that_is_gone(client: LogClient) -> None:
    """Polling as a deleted instance fails, but leaving the group is then no error."""
    async with client.consumer("g", ["t"], name="one") as consumer:
        await client.transport.call("DELETE", "/consumers/g/instances/one")
        with pytest.raises(ServerRefused) as raised:
            await consumer.poll()
        assert raised.value.error_code == 40403


@pytest.fixture
async def committed(client: LogClient) -> None:
    """A group that has read and committed everything."""
    async with client.consumer("g", ["t"]) as consumer:
        await taken(consumer, 6)
        await consumer.commit()


@pytest.mark.usefixtures("committed")
async def test_resetting(client: LogClient) -> None:
    second = TopicPartition("t", 1)
    assert await client.reset_group("g", "earliest") == {FIRST: 0, second: 0}
    assert await client.reset_group("g", 2, topic="t", partitions=[1]) == {second: 2}
    assert (await client.group("g")).lag == 4
    assert await client.reset_group("g", "@0", topic="t") == {FIRST: 0, second: 0}
    assert await client.reset_group("g", "latest") == {FIRST: 3, second: 3}


@pytest.mark.usefixtures("committed")
async def test_deleting(client: LogClient) -> None:
    async with client.consumer("g", ["t"]):
        with pytest.raises(ServerRefused) as raised:
            await client.delete_group("g")
    assert raised.value.error_code == 40903
    await client.delete_group("g")
    assert await client.groups() == []


async def test_records_are_acknowledged_one_by_one(client: LogClient) -> None:
    async with client.consumer("g", partitions=[FIRST], invisible_ms=50) as consumer:
        records = await consumer.poll()
        assert [one.text for one in records] == ["0-0", "0-1", "0-2"]
        assert await consumer.ack([]) == 0
        assert await consumer.ack(records[1:]) == 2
        assert (await client.group("g")).partitions[0].committed == 0
        assert await consumer.poll(timeout_ms=5000) == records[:1], "after the time"
        assert await consumer.nack(records, dead=True) == 1
        assert (await client.group("g")).partitions[0].committed == 3
        assert await consumer.poll(timeout_ms=100) == []


async def test_a_lost_answer_is_delivered_again_where_records_are_acknowledged(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.consumer("g", partitions=[FIRST], invisible_ms=20) as consumer:
        answers = consumer._transport.json

        async def lost(*args: Any, **options: Any) -> Any:
            await answers(*args, **options)
            raise ServerUnreachable("the answer was lost", url="")

        with monkeypatch.context() as patch:
            patch.setattr(consumer._transport, "json", lost)
            with pytest.raises(ServerUnreachable):
                await consumer.poll()
        assert len(await consumer.poll(timeout_ms=5000)) == 3
