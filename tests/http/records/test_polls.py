"""Polls of consumer instances: the records, their number and order, and the answer to a repeated poll."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from api.request_context import RequestContext
from storage.errors import DiskFull
from tests.http.groups.consumers import consumer, produce
from tests.http.harness import BINARY, JSON, Api, b64

# -- records


async def test_the_first_poll_has_what_is_there(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1, 2)
    me = await consumer(api)
    await me.subscribe("t")
    assert await me.values() == [1, 2]
    assert await me.values() == []


async def test_latest_begins_at_the_subscription(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", "old")
    me = await consumer(api, auto_offset_reset="latest")
    await me.subscribe("t")
    await produce(api, "t", "new")
    assert await me.values() == ["new"]


async def test_none_wants_a_committed_offset(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1)
    me = await consumer(api, auto_offset_reset="none")
    await me.subscribe("t")
    answer = await api.get(f"{me.path}/records?timeout=0")
    assert answer.code == 40903
    assert "t-0 has no committed offset" in answer.json["message"]
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    assert (await me.post("offsets", body)).status == 200
    await produce(api, "t", 2)
    assert await me.values() == [2]


async def test_a_poll_waits_for_records_and_for_enough_of_them(api: Api) -> None:
    await api.create("t", partitions=2)
    me = await consumer(api, fetch_min_bytes=20)
    await me.subscribe("t")
    waiting = asyncio.create_task(me.values("timeout=20000"))
    await api.until_waiting()
    await produce(api, "t", "x" * 10)
    await produce(api, "t", "y" * 10, partition=1)
    assert sorted(await waiting) == ["x" * 10, "y" * 10]


async def test_a_record_larger_than_max_bytes_comes_alone(api: Api) -> None:
    await api.create("t", partitions=2)
    await produce(api, "t", "small", "L" * 5000, "small too")
    await produce(api, "t", "M" * 4000, partition=1)
    me = await consumer(api)
    await me.subscribe("t")
    seen = [await me.values("timeout=0&max_bytes=100") for _ in range(4)]
    assert all(len(values) == 1 for values in seen), seen
    assert {values[0][0] for values in seen} == {"s", "L", "M"}
    assert await me.values() == []


async def test_a_busy_partition_does_not_starve_another(api: Api) -> None:
    await api.create("t", partitions=3)
    for number in (0, 1):
        await produce(api, "t", *[number] * 50, partition=number)
    me = await consumer(api)
    await me.subscribe("t")
    firsts = [(await me.values("timeout=0&max_bytes=10"))[0] for _ in range(6)]
    assert firsts == [0, 1, 0, 1, 0, 1]


async def test_the_format_is_the_instance_s(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", {"n": 1})
    as_json, as_bytes = (
        await consumer(api, name="j"),
        await consumer(api, name="b", group="h", format="binary"),
    )
    for me in (as_json, as_bytes):
        await me.subscribe("t")
    assert (await api.get(f"{as_json.path}/records", accept=BINARY)).code == 40601
    assert (await api.get(f"{as_bytes.path}/records", accept=JSON)).code == 40601
    answer = await api.get(f"{as_bytes.path}/records?timeout=0")
    assert answer.headers["Content-Type"] == BINARY
    assert [row["value"] for row in answer.json] == [b64(b'{"n":1}')]
    answer = await api.get(f"{as_json.path}/records?timeout=0", accept="application/json")
    assert answer.headers["Content-Type"] == "application/json"
    assert [row["value"] for row in answer.json] == [{"n": 1}]


async def test_what_is_no_json_does_not_block(api: Api) -> None:
    await api.create("t")
    bad = {"records": [{"value": b64(b"\xff{")}, {"value": b64(b"2")}]}
    await api.post("/topics/t/partitions/0", bad, content_type=BINARY)
    me = await consumer(api)
    await me.subscribe("t")
    bad_row, good_row = await me.poll()
    assert (bad_row["value"], bad_row["value_b64"]) == (None, b64(b"\xff{"))
    assert good_row["value"] == 2


async def test_a_head_request_moves_nothing(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1)
    me = await consumer(api)
    await me.subscribe("t")
    assert (await api.call("HEAD", f"{me.path}/records?timeout=0")).status == 405
    assert await me.values() == [1]


# -- repeated polls


async def test_a_client_that_went_away_is_given_the_same_records_again(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    gone = asyncio.create_task(me.poll("timeout=20000"))
    await api.until_waiting()
    gone.cancel()
    await asyncio.wait((gone,))
    await produce(api, "t", 1, 2)
    assert await me.values() == [1, 2]


@pytest.mark.parametrize("waits", [True, False])
async def test_a_client_that_shut_its_side_down_is_answered_at_once(api: Api, waits: bool) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    async with api.connection() as (reader, writer):
        writer.write(f"GET {me.path}/records?timeout=20000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        if waits:
            await api.until_waiting()
        writer.write_eof()
        assert (await reader.read()).endswith(b"\r\n\r\n[]")
    await produce(api, "t", 1, 2)
    assert await me.values() == [1, 2]


async def test_an_answer_that_was_not_taken_is_given_again(api: Api) -> None:
    await api.create("t")
    large = "x" * 700_000
    await produce(api, "t", large)
    for _ in range(8):
        await produce(api, "t", large)
    me = await consumer(api)
    await me.subscribe("t")
    request = f"GET {me.path}/records?timeout=0&max_bytes=60000000 HTTP/1.1\r\nHost: x\r\n\r\n"
    async with api.connection(limit=1024) as (reader, writer):
        writer.write(request.encode())
        await reader.read(100)
    rows = await me.poll("timeout=0&max_bytes=60000000")
    assert [row["offset"] for row in rows] == list(range(9))


async def test_a_stop_ends_a_wait_without_an_error(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    waiting = asyncio.create_task(me.values("timeout=20000"))
    await api.until_waiting()
    api.service.begin_stop()
    assert await waiting == []


async def test_polls_take_turns_and_a_newer_one_ends_a_wait(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    older = asyncio.create_task(me.values("timeout=20000"))
    await api.until_waiting()
    newer = asyncio.create_task(me.values("timeout=20000"))
    assert await older == []
    await api.until_waiting()
    await produce(api, "t", 1)
    assert await newer == [1]


async def test_polls_at_once_give_each_record_once(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", *range(100))
    me = await consumer(api)
    await me.subscribe("t")
    pages = await asyncio.gather(*(me.values("timeout=0&max_bytes=10") for _ in range(20)))
    seen = [value for page in pages for value in page]
    assert sorted(seen) == sorted(set(seen))


async def test_deleting_an_instance_ends_its_poll(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    waiting = asyncio.create_task(api.get(f"{me.path}/records?timeout=20000"))
    await api.until_waiting()
    await me.delete()
    assert (await waiting).code == 40403


@pytest.mark.parametrize("to", [0, 1, 3])
async def test_a_seek_while_a_poll_is_delivered_holds(
    api: Api, to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seek during the delivery of a poll holds, even a seek to the offset where the poll began."""
    await api.create("t")
    await produce(api, "t", *range(5))
    me = await consumer(api)
    await me.subscribe("t")
    deliver = RequestContext.deliver

    async def seek_first(
        call: RequestContext, response: web.Response, *, once: bool = False
    ) -> None:
        monkeypatch.setattr(RequestContext, "deliver", deliver)
        await me.done("positions", {"offsets": [{"topic": "t", "partition": 0, "offset": to}]})
        await call.deliver(response, once=once)

    monkeypatch.setattr(RequestContext, "deliver", seek_first)
    assert await me.values() == [*range(5)]
    assert await me.values() == [*range(to, 5)]


@pytest.mark.parametrize("failures", [1, 2])
async def test_an_automatic_commit_that_failed_is_made_again(
    api: Api, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next due poll commits again, even if no new record was delivered."""
    await api.create("t")
    await produce(api, "t", *range(3))
    me = await consumer(api, auto_commit_interval_ms=0)
    await me.subscribe("t")
    assert await me.values() == [0, 1, 2]
    store: Any = api.service.store
    left = [failures]
    commit = store.commit_offsets

    def failing(*args: Any, **options: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise DiskFull("no space left", path="offsets", operation="write")
        commit(*args, **options)

    monkeypatch.setattr(store, "commit_offsets", failing)
    for _ in range(failures):
        assert await me.values() == []
        assert await me.committed() == {("t", 0): 0}
    assert await me.values() == []
    assert await me.committed() == {("t", 0): 3}
