"""Polls with acknowledgements: without one in time a record is delivered again, on both formats and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from logserver.groups.unacknowledged import MAX_HELD
from storage.errors import DiskFull
from tests.http.groups.consumers import Consumer, consumer, produce
from tests.http.groups.test_retries import Clock
from tests.http.harness import ONE_PARTITION, V2, Api, opener, serving, settings

INVISIBLE_MS = 1000
MANUAL = f"timeout=0&ack=manual&invisible_ms={INVISIBLE_MS}"
BACKENDS = ("kafka", "rocketmq", "memory")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=BACKENDS)
async def api(tmp_path: Path, clock: Clock, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A store with topic t of one partition; the test's clock is that of the server and of the store."""
    backend = request.param
    chosen = settings(
        tmp_path / "store", delivery_interval_ms=1, set=ONE_PARTITION.get(backend, {})
    )
    async with serving(chosen, opener(backend, chosen, clock=clock), clock=clock) as running:
        await running.create("t")
        yield running


async def reader(api: Api, name: str = "c", **config: Any) -> Consumer:
    member = await consumer(api, name, **config)
    await member.subscribe("t")
    return member


def places(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the places of rows; of a retry that in its retry topic."""
    return [
        {
            "topic": row.get("retry", row)["topic"],
            "partition": row.get("retry", row)["partition"],
            "offset": row["offset"],
        }
        for row in rows
    ]


async def ack(
    member: Consumer, rows: Iterable[dict[str, Any]], call: str = "ack", **more: Any
) -> tuple[int, int]:
    """Acknowledge rows; return how many were held, and how many were not."""
    answer = await member.post(call, {"records": places(rows), **more})
    assert answer.status == 200, answer.body
    return answer.json["acknowledged"], len(answer.json["unknown"])


async def committed(member: Consumer) -> int | None:
    return (await member.committed()).get(("t", 0))


async def test_what_is_not_acknowledged_comes_again(api: Api, clock: Clock) -> None:
    await produce(api, "t", "a", "b", "c")
    member = await reader(api)
    rows = await member.poll(MANUAL)
    assert [row["value"] for row in rows] == ["a", "b", "c"]
    assert await member.poll(MANUAL) == []
    assert await ack(member, [rows[1]]) == (1, 0)
    assert await ack(member, [rows[1]]) == (0, 1)
    clock.now_ms += INVISIBLE_MS - 1
    assert await member.poll(MANUAL) == []
    clock.now_ms += 1
    again = await member.poll(MANUAL)
    assert again == [rows[0], rows[2]]
    assert await member.poll(MANUAL) == []
    clock.now_ms += INVISIBLE_MS
    assert await member.poll(MANUAL) == again, "again and again"
    assert await ack(member, again) == (2, 0)
    clock.now_ms += INVISIBLE_MS
    assert await member.poll(MANUAL) == []


async def test_a_poll_waits_on_where_the_clock_is_behind_the_event_loop(
    api: Api, clock: Clock
) -> None:
    await produce(api, "t", "a")
    member = await reader(api)
    rows = await member.poll("timeout=0&ack=manual&invisible_ms=5")
    waiting = asyncio.create_task(member.poll("timeout=10000&ack=manual&invisible_ms=5"))
    await asyncio.sleep(0.1)  # the event loop's timer is over many times, the record's time is not
    assert not waiting.done()
    clock.now_ms += 5
    assert await waiting == rows


async def test_progress_is_the_lowest_record_that_is_not_acknowledged(api: Api) -> None:
    await produce(api, "t", *"abcd")
    member = await reader(api, auto_commit_interval_ms="0")
    rows = await member.poll(MANUAL)
    for number, expected in ((2, 0), (0, 1), (3, 1), (1, 4)):
        assert await ack(member, [rows[number]]) == (1, 0)
        assert await member.poll(MANUAL) == []  # its auto-commit does not pass a held record
        assert await committed(member) == expected


async def test_a_commit_without_a_body_keeps_what_is_held(api: Api) -> None:
    await produce(api, "t", *"abc")
    member = await reader(api)
    rows = await member.poll(MANUAL)
    await ack(member, rows[:1])
    assert (await member.post("offsets")).status == 200
    assert await committed(member) == 1
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
    assert (await member.post("offsets", body)).status == 200
    assert await ack(member, rows) == (1, 2), "an offset acknowledges everything before it"
    assert await committed(member) == 3


async def test_another_member_begins_at_the_first_that_was_held(api: Api, clock: Clock) -> None:
    await produce(api, "t", *"abc")
    first = await reader(api, "first")
    rows = await first.poll(MANUAL)
    await ack(first, [rows[0], rows[2]])
    await first.delete()
    second = await reader(api, "second")
    assert await second.poll(MANUAL) == rows[1:]
    assert await ack(second, rows) == (2, 1)
    assert await committed(second) == 3


async def test_a_seek_forgets_what_is_held(api: Api, clock: Clock) -> None:
    await produce(api, "t", *"abc")
    member = await reader(api)
    rows = await member.poll(MANUAL)
    await member.done("positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 2}]})
    assert await member.poll(MANUAL) == rows[2:]
    clock.now_ms += INVISIBLE_MS
    assert await member.poll(MANUAL) == rows[2:]
    assert await ack(member, rows) == (1, 2)


async def test_a_poll_waits_for_the_time_of_a_held_record(tmp_path: Path) -> None:
    """On the machine's clock: the wait ends when the record is due, not when the poll's time is over."""
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen)) as api:
        await api.create("t")
        await produce(api, "t", "a")
        member = await reader(api)
        query = "timeout=10000&ack=manual&invisible_ms=20"
        rows = await member.poll(query)
        async with asyncio.timeout(5):
            assert await member.poll(query) == rows


async def test_a_deleted_record_is_no_longer_held(tmp_path: Path, clock: Clock) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen, clock=clock), clock=clock) as api:
        await api.create("t")
        await produce(api, "t", "a", "b")
        member = await reader(api)
        rows = await member.poll(MANUAL)
        answer = await api.call("DELETE", "/topics/t/partitions/0/records?before=1")
        assert answer.status == 200
        clock.now_ms += INVISIBLE_MS
        assert await member.poll(MANUAL) == rows[1:]
        assert await ack(member, rows) == (1, 1)
        assert await committed(member) == 2


async def test_an_acknowledgement_that_failed_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise DiskFull("no space", path="x")

    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("rocketmq", chosen)) as api:
        await api.create("t")
        await produce(api, "t", "a", "b")
        member = await reader(api)
        rows = await member.poll(MANUAL)
        with monkeypatch.context() as patch:
            patch.setattr(api.service.store, "commit_offsets", full)
            assert (await member.post("ack", {"records": places(rows[:1])})).code == 50701
        assert await ack(member, rows[:1]) == (1, 0)
        assert await committed(member) == 1


async def test_a_restart_delivers_again_what_was_held(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen)) as api:
        await api.create("t")
        await produce(api, "t", *"abc")
        member = await reader(api)
        rows = await member.poll(MANUAL)
        await ack(member, rows[:1])
    async with serving(chosen, opener("kafka", chosen)) as api:
        member = await reader(api)
        assert await member.poll(MANUAL) == rows[1:]


async def test_handed_back_goes_to_the_retries(api: Api, clock: Clock) -> None:
    await produce(api, "t", "bad", "good")
    member = await reader(api)
    bad, good = await member.poll(MANUAL)
    assert await ack(member, [bad], "nack") == (1, 0)
    assert await ack(member, [bad], "nack") == (0, 1), "not twice"
    assert await ack(member, [good]) == (1, 0)
    assert await committed(member) == 2
    if api.service.store.capabilities.messages:
        clock.now_ms += 20_000
    else:
        member = await consumer(api, "retries")
        await member.subscribe("g.retry")
    async with asyncio.timeout(10):
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = await member.poll(f"timeout=100&ack=manual&invisible_ms={INVISIBLE_MS}")
    assert [row["value"] for row in rows] == ["bad"]
    assert await ack(member, rows, "nack", delay_level=-1) == (1, 0)
    dead = "%DLQ%g" if api.service.store.capabilities.messages else "g.dlq"
    answer = await api.get(f"/topics/{dead}/partitions/0/records?format=json")
    assert [row["value"] for row in answer.json] == ["bad"]
    clock.now_ms += INVISIBLE_MS
    assert await member.poll(MANUAL) == []


async def test_an_instance_holds_so_many_records(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logserver.groups.consumer.MAX_HELD", 3)
    await produce(api, "t", *"abcde")
    member = await reader(api)
    rows = await member.poll(MANUAL)
    assert [row["value"] for row in rows] == ["a", "b", "c"]
    assert await member.poll(MANUAL) == []
    await ack(member, rows[:2])
    assert [row["value"] for row in await member.poll(MANUAL)] == ["d", "e"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("invisible_ms=5", 42201),
        ("ack=manual&invisible_ms=0", 40000),
        ("ack=manual&invisible_ms=43200001", 40000),
        ("ack=later", 40000),
    ],
)
async def test_wrong_polls(api: Api, query: str, code: int) -> None:
    member = await reader(api)
    answer = await api.get(f"{member.path}/records?{query}")
    assert answer.code == code


@pytest.mark.parametrize("call", ["ack", "nack"])
@pytest.mark.parametrize(
    "body", [{}, {"records": []}, {"records": [{"topic": "t", "partition": 0, "offset": -1}]}]
)
async def test_wrong_bodies(api: Api, call: str, body: object) -> None:
    member = await reader(api)
    assert (await member.post(call, body)).code == 42201
    answer = await api.post(
        "/consumers/g/instances/none/ack",
        {"records": [{"topic": "t", "partition": 0, "offset": 1}]},
        content_type=V2,
    )
    assert answer.code == 40403
    many = [{"topic": "t", "partition": 0, "offset": n} for n in range(MAX_HELD + 1)]
    assert (await member.post(call, {"records": many})).code == 42201


async def test_a_nack_of_an_unknown_level_keeps_the_record(api: Api, clock: Clock) -> None:
    await produce(api, "t", "a")
    member = await reader(api)
    rows = await member.poll(MANUAL)
    answer = await member.post("nack", {"records": places(rows), "delay_level": 99})
    assert answer.code in {42201, 42207}
    clock.now_ms += INVISIBLE_MS
    assert await member.poll(MANUAL) == rows
