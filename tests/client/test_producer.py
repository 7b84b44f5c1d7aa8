"""The idempotent producer: each record is stored once, whichever requests and answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from logserver.client import (
    ClientError,
    LogClient,
    Placed,
    ServerRefused,
    ServerUnreachable,
    as_record,
)
from tests.http.harness import Api


async def texts(client: LogClient, partition: int | None = None) -> list[str]:
    return [record.text async for record in client.records("t", partition)]


def losing(client: LogClient, monkeypatch: pytest.MonkeyPatch, losses: Iterator[str]) -> None:
    """Lose requests ("before") and answers ("after") in the order of `losses`; all others pass."""
    send = client.produce_encoded

    async def lossy(*arguments: Any, **options: Any) -> list[Placed]:
        loss = next(losses, "")
        if loss == "before":
            raise ServerUnreachable("lost", url="")
        placed = await send(*arguments, **options)
        if loss == "after":
            raise ServerUnreachable("lost", url="")
        return placed

    monkeypatch.setattr(client, "produce_encoded", lossy)


async def test_lost_requests_and_answers(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing(client, monkeypatch, iter(["after", "before", "after", "", "", "before", "", "after"]))
    monkeypatch.setattr("logserver.client.producer._PAUSE_S", (0.001,))
    async with client.producer("t") as producer:
        placed = [await producer.send(f"v{n}") for n in range(5)]
    assert [place.offset for place in placed] == [0, 1, 2, 3, 4]
    assert await texts(client) == [f"v{n}" for n in range(5)]


async def test_it_gives_up_and_takes_no_more(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing(client, monkeypatch, iter(["", "after", "after", "after"]))
    monkeypatch.setattr("logserver.client.producer._PAUSE_S", (0.001, 9))
    async with client.producer("t", give_up_s=1) as producer:
        await producer.send("v0")
        with pytest.raises(ServerUnreachable):
            await producer.send("v1")
        with pytest.raises(ClientError, match="it is unknown"):
            await producer.send("v2")
    assert await texts(client) == ["v0", "v1"]


async def test_a_call_that_was_cancelled_leaves_its_number_to_nobody_else(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.producer("t") as producer:
        await producer.send("v0")
        losing(client, monkeypatch, iter(["after"] * 9))
        sending = asyncio.create_task(producer.send("v1"))
        while await texts(client) != ["v0", "v1"]:  # noqa: ASYNC110  # the server has no event
            await asyncio.sleep(0.001)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        with pytest.raises(ClientError, match="it is unknown"):
            await producer.send("v2")


async def test_what_is_refused_takes_no_number(client: LogClient) -> None:
    async with client.producer("t") as producer:
        await producer.send("v0")
        with pytest.raises(ServerRefused):
            await producer.send("v1", properties={"nonsense": "1"})
        await producer.send("v2")
    assert await texts(client) == ["v0", "v2"]


async def test_keys_go_where_kafkas_clients_send_them(api: Api, client: LogClient) -> None:
    """Keys select the partitions that the server selects; rows come in the order of the records."""
    await client.create_topic("t", partitions=3)
    records = [as_record(f"v{n}", key=f"k{n % 7}") for n in range(50)]
    by_server = await client.produce_many("t", records)
    async with client.producer("t") as producer:
        by_us = await producer.send_many(records)
        again = await producer.send_many(records, partition=1)
    assert [place.partition for place in by_us] == [place.partition for place in by_server]
    assert {place.partition for place in by_us} == {0, 1, 2}
    assert [place.partition for place in again] == [1] * 50
    stored = {(one.partition, one.offset): one.text async for one in client.records("t")}
    for placed in (by_us, again):
        assert [stored[place.partition, place.offset] for place in placed] == [
            f"v{n}" for n in range(50)
        ]


async def test_keyless_records_of_a_call_stay_together(client: LogClient) -> None:
    await client.create_topic("t", partitions=2)
    async with client.producer("t") as producer:
        placed = [await producer.send_many([as_record("a"), as_record("b")]) for _ in range(4)]
    assert [[place.partition for place in call] for call in placed] == [[0, 0], [1, 1]] * 2


async def test_more_than_one_batch(client: LogClient) -> None:
    large = "x" * 300_000
    async with client.producer("t") as producer:
        placed = await producer.send_many([as_record(large) for _ in range(4)])
        placed += await producer.send_many([as_record(str(n)) for n in range(2500)])
        with pytest.raises(ServerRefused) as raised:
            await producer.send("y" * 5_000_000)
        placed.append(await producer.send("last"))
    assert raised.value.error_code == 41302
    assert [place.offset for place in placed] == list(range(2505))


async def test_several_tasks_take_turns(client: LogClient) -> None:
    async with client.producer("t") as producer:
        placed = await asyncio.gather(*(producer.send(str(n)) for n in range(20)))
    assert sorted(place.offset for place in placed) == list(range(20))
    assert sorted(await texts(client)) == sorted(map(str, range(20)))
