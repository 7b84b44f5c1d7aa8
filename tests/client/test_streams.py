"""Records streamed to the server while rows are streamed back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from logserver.client import LogClient, Record, ServerRefused, StrangeAnswer, as_record
from tests.client.stub import answer, stub


async def texts(client: LogClient) -> list[str]:
    return [record.text async for record in client.records("t")]


async def test_many(client: LogClient) -> None:
    count = 5000
    records = (as_record(str(n)) for n in range(count))
    rows = [row async for row in client.produce_stream("t", records, acks=1)]
    assert [row.offset for row in rows] == list(range(count))
    assert {row.error_code for row in rows} == {None}
    assert await texts(client) == [str(n) for n in range(count)]


async def test_each_as_it_comes(client: LogClient) -> None:
    """The client sends the next record only after the row of the previous record arrives."""
    turns: asyncio.Queue[str] = asyncio.Queue()
    turns.put_nowait("0")

    async def records() -> AsyncIterator[Record]:
        while (text := await turns.get()) != "3":
            yield as_record(text, key="k")

    async for row in client.produce_stream("t", records(), partition=0):
        assert row.partition == 0
        turns.put_nowait(str((row.offset or 0) + 1))
    assert await texts(client) == ["0", "1", "2"]


async def test_a_record_that_is_refused(client: LogClient) -> None:
    wrong = Record(b"k", b"v", properties={"nonsense": "1"})
    rows = client.produce_stream("t", [as_record("a"), wrong, as_record("b")])
    found = [(row.offset, row.error_code) async for row in rows]
    assert found[0] == (0, None)
    assert found[1][0] is None
    assert found[1][1] is not None
    assert found[2] == (1, None)


async def test_long_values(client: LogClient) -> None:
    long = "x" * 700_000
    rows = [row async for row in client.produce_stream("t", [as_record(long)] * 3)]
    assert [row.offset for row in rows] == [0, 1, 2]
    assert {len(text) for text in await texts(client)} == {700_000}


async def test_nothing(client: LogClient) -> None:
    assert [row async for row in client.produce_stream("t", [])] == []


async def test_a_name_that_is_none(client: LogClient) -> None:
    with pytest.raises(ServerRefused) as raised:
        [row async for row in client.produce_stream("a b", [as_record("a")])]
    assert raised.value.error_code == 42203


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"partition":0,"offset":0}\n{"error_code":50301,"error":"stopping"}\n', 503), (b"", 500)],
)
async def test_a_stream_that_ends_early(body: bytes, status: int) -> None:
    three = [as_record("a"), as_record("b"), as_record("c")]
    async with stub([answer(200, body)]) as server, LogClient(server.url) as client:
        with pytest.raises(ServerRefused, match="ended before its records did") as raised:
            [row async for row in client.produce_stream("t", three)]
        assert raised.value.status == status


async def test_rows_that_are_none() -> None:
    async with stub([answer(200, b"<html>\n")]) as server, LogClient(server.url) as client:
        with pytest.raises(StrangeAnswer):
            [row async for row in client.produce_stream("t", [as_record("a")])]
