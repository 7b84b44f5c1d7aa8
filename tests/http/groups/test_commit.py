"""Promises of an answer: group commit, acks, and a disk that fails or is full."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage import TopicPartition
from storage.errors import Corrupt, DiskFull, StoreFenced
from tests.http.harness import Answer, Api, records, serving, settings
from tests.watched_store import WatchedStore

FENCED = StoreFenced("sync of /data/t-0/0.log failed", path="/data", cause="EIO")
FULL = DiskFull("no space left on /data", path="/data", operation="pwrite", errno=28)


@pytest.fixture
def store() -> WatchedStore:
    """A store with topic t of three partitions."""
    watched = WatchedStore()
    watched.create_topic("t", 3)
    return watched


@pytest.fixture
async def api(store: WatchedStore, tmp_path: Path) -> AsyncIterator[Api]:
    """A server in sync mode on the watched store; its own upkeep does not run."""
    chosen = settings(tmp_path, flush_interval_ms=3_600_000)
    async with serving(chosen, store.opener()) as running:
        try:
            yield running
        finally:
            store.gate.set()
            store.fail_flush = None


async def held_up(api: Api, store: WatchedStore) -> asyncio.Task[Answer]:
    """Start a request whose flush blocks until the gate opens."""
    store.gate.clear()
    store.flushing.clear()
    first = asyncio.create_task(api.post("/topics/t/partitions/0", records("first")))
    assert await asyncio.to_thread(store.flushing.wait, 10)
    return first


async def queued(api: Api, count: int, path: str) -> list[asyncio.Task[Answer]]:
    """Start requests and wait until they are queued, while a group is held up."""
    tasks = [asyncio.create_task(api.post(path, records(number))) for number in range(count)]
    await api.until_queued(count)
    return tasks


async def test_all_that_waits_shares_one_flush(api: Api, store: WatchedStore) -> None:
    first = await held_up(api, store)
    waiting = await queued(api, 20, "/topics/t/partitions/1")
    assert not first.done()
    store.gate.set()
    answers = await asyncio.gather(first, *waiting)
    assert {answer.status for answer in answers} == {200}
    assert len(store.flushes) == 2
    offsets = [answer.json["offsets"][0]["offset"] for answer in answers[1:]]
    assert sorted(offsets) == list(range(20))
    assert sorted(await api.values("t", 1)) == list(range(20))
    values = await api.values("t", 1)
    for number, answer in enumerate(answers[1:]):
        assert values[answer.json["offsets"][0]["offset"]] == number


async def test_small_requests_share_an_append(api: Api, store: WatchedStore) -> None:
    first = await held_up(api, store)
    waiting = await queued(api, 20, "/topics/t/partitions/1")
    store.gate.set()
    await asyncio.gather(first, *waiting)
    shared = [count for partition, count, _ in store.appends if partition.partition == 1]
    assert sum(shared) == 20
    assert len(shared) <= 2


async def test_nothing_is_seen_before_it_is_flushed(api: Api, store: WatchedStore) -> None:
    first = await held_up(api, store)
    assert await api.values("t") == []
    bounds = await api.get("/topics/t/partitions/0/offsets")
    assert bounds.json["end_offset"] == 0
    store.gate.set()
    assert (await first).status == 200
    assert await api.values("t") == ["first"]


async def test_only_touched_partitions_are_flushed(api: Api, store: WatchedStore) -> None:
    await api.post("/topics/t/partitions/2", records(1))
    assert [{tp.partition for tp in flushed} for flushed in store.flushes] == [{2}]


async def test_a_failed_flush_acknowledges_nothing_of_its_group(
    api: Api, store: WatchedStore
) -> None:
    first = await held_up(api, store)
    waiting = await queued(api, 5, "/topics/t/partitions/1")
    store.fail_flush = FENCED
    store.gate.set()
    answers = await asyncio.gather(first, *waiting)
    assert {answer.code for answer in answers} == {50301}
    assert {answer.json["cause"] for answer in answers} == {"EIO"}
    assert await api.values("t", 0) == []
    assert await api.values("t", 1) == []
    assert store.flushes == []


@pytest.mark.parametrize("acks", ["0", "1"])
async def test_less_than_all_does_not_wait_for_a_flush(
    api: Api, store: WatchedStore, acks: str
) -> None:
    first = await held_up(api, store)
    answer = await asyncio.wait_for(
        api.post(f"/topics/t/partitions/1?acks={acks}", records("quick")), 10
    )
    assert answer.status == (202 if acks == "0" else 200)
    seen = await api.get("/topics/t/partitions/1/records?timeout=10000")
    assert len(seen.json) == 1
    assert not first.done()
    assert store.appends[-1][2] is True
    store.gate.set()
    await first
    assert len(store.flushes) == 1


async def test_a_quick_record_behind_one_in_flight_is_published_with_it(
    api: Api, store: WatchedStore
) -> None:
    first = await held_up(api, store)
    answer = await api.post("/topics/t/partitions/0?acks=1", records("behind"))
    assert answer.json["offsets"][0]["offset"] == 1
    assert await api.values("t") == []
    store.gate.set()
    await first
    assert await api.values("t") == ["first", "behind"]


@pytest.mark.parametrize("mode", ["async", "os"])
async def test_other_modes_publish_at_the_write(tmp_path: Path, mode: str) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)
    chosen = settings(tmp_path, flush=mode, flush_interval_ms=3_600_000)
    async with serving(chosen, store.opener()) as api:
        assert (await api.post("/topics/t", records(1))).status == 200
        assert await api.values("t") == [1]
        assert store.flushes == []


async def test_async_mode_flushes_by_interval(tmp_path: Path) -> None:
    store = WatchedStore()
    store.create_topic("t", 2)
    async with serving(
        settings(tmp_path, flush="async", flush_interval_ms=1), store.opener()
    ) as api:
        store.flushing.clear()
        await api.post("/topics/t/partitions/1", records(1))
        assert await asyncio.to_thread(store.flushing.wait, 10)
    assert [{tp.partition for tp in flushed} for flushed in store.flushes] == [{1}]


async def test_a_timeout_says_that_the_outcome_is_unknown(api: Api, store: WatchedStore) -> None:
    first = await held_up(api, store)
    late = await api.post("/topics/t/partitions/1?timeout=20", records("late"))
    assert late.code == 50401
    assert late.json["timeout_ms"] == 20
    assert api.service.budget.held_bytes > 0
    store.gate.set()
    await first
    seen = await api.get("/topics/t/partitions/1/records?timeout=10000")
    assert len(seen.json) == 1
    assert api.service.budget.held_bytes == 0


async def test_a_full_disk_fails_its_own_request_only(api: Api, store: WatchedStore) -> None:
    store.fail_append = lambda partition, _: FULL if partition.partition == 1 else None
    first = await held_up(api, store)
    full = asyncio.create_task(api.post("/topics/t/partitions/1", records(1)))
    fine = asyncio.create_task(api.post("/topics/t/partitions/2", records(2)))
    await api.until_queued(2)
    store.gate.set()
    await first
    assert (await full).code == 50701
    assert (await fine).status == 200
    store.fail_append = lambda partition, records: None
    assert (await api.post("/topics/t/partitions/1", records(3))).status == 200
    assert await api.values("t", 1) == [3]


async def test_a_full_disk_speaks_for_the_whole_request(api: Api, store: WatchedStore) -> None:
    store.fail_append = lambda partition, _: FULL if partition.partition == 1 else None
    body = {"records": [{"value": number, "partition": number % 2} for number in range(4)]}
    assert (await api.post("/topics/t", body)).code == 50701


async def test_readiness_tells_of_a_full_disk_until_there_is_space(
    api: Api, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logserver.service.service.DISK_FULL_BELOW_BYTES", 1 << 62)
    store.fail_append = lambda partition, records: FULL
    await api.post("/topics/t", records(1))
    unready = await api.get("/readyz")
    assert unready.code == 50301
    assert unready.json["disk_full"] is True
    store.fail_append = lambda partition, records: None
    await api.post("/topics/t", records(1))
    assert (await api.get("/readyz")).status == 200


async def test_damage_is_told_with_its_place(api: Api, store: WatchedStore) -> None:
    store.fail_read = Corrupt(
        "batch at offset 7: CRC is wrong",
        kind="record batch",
        path="t-0/0.log",
        position=4711,
        next_good_offset=9,
    )
    answer = await api.get("/topics/t/partitions/0/records")
    assert answer.code == 50010
    reported = [answer.json[name] for name in ("file", "position", "next_good_offset")]
    assert reported == ["t-0/0.log", 4711, 9]


async def test_requests_of_several_partitions_share_one_answer(
    api: Api, store: WatchedStore
) -> None:
    body = {"records": [{"value": number, "partition": number % 3} for number in range(9)]}
    answer = await api.post("/topics/t", body)
    placed = [(row["partition"], row["offset"]) for row in answer.json["offsets"]]
    assert placed == [(number % 3, number // 3) for number in range(9)]
    assert store.flushes == [{TopicPartition("t", p) for p in range(3)}]


async def test_readiness_tells_of_a_fenced_store(
    api: Api, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = dataclasses.replace(store.stats(), fenced="sync failed: EIO")
    monkeypatch.setattr(store, "stats", lambda: stats)
    unready = await api.get("/readyz")
    assert unready.code == 50301
    assert unready.json["fenced"] == "sync failed: EIO"
    assert (await api.get("/livez")).status == 200
    assert b"logserver_store_fenced 1.0" in (await api.get("/metrics")).body
