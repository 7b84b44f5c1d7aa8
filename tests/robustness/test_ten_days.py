"""Ten days of a server on a clock that the test drives: every service works, and the disk does not fill.

Each step appends to topics of all kinds, reads them, and lets the services do their work: delivery of delayed
messages, retries, time-outs of transactions, retention, compaction, checkpoints. After each day the server restarts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import storage
from logserver.config import Settings
from storage import LogStore, StoreOptions
from storage.files import OverlayFileSystem
from tests.http.groups.consumers import Consumer, consumer
from tests.http.harness import Api, serving, settings

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAYS = 10
STEP_HOURS = (6, 1)  # in CI, and in the soak
TICK_MS = 250
TICKS = 12  # of the services, at each step
ROOT = Path("/soak")
VALUE = "x" * 300
KEYS = 20
LEVELS = 18
KAFKA = {
    "internal.segment.bytes": "16384",
    "segment.index.bytes": "4096",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "16384",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.ms": str(DAY_MS),
}
ROCKETMQ = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "defaultTopicQueueNums": "1",
    "fileReservedTime": "24",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
}


class World:
    """The clock, the disk, and what a server must have done so far."""

    def __init__(self, backend: str, seed: int) -> None:
        self.backend = backend
        self.is_kafka = backend == "kafka"
        self.dice = random.Random(seed)
        self.now_ms = 1_760_000_000_000
        self.fs = OverlayFileSystem(clock=self)
        self.fs.make_dir(ROOT)
        self.count = 0
        self.table: dict[str, int] = {}
        self.committed: list[int] = []
        self.undone: set[int] = set()
        self.due: dict[int, int] = {}
        self.delivered: dict[int, int] = {}
        self.work: set[int] = set()
        self.done: set[int] = set()
        self.sizes: list[int] = []
        self.deleted = self.cleanings = 0

    def __call__(self) -> int:
        return self.now_ms

    def next(self) -> int:
        self.count += 1
        return self.count

    def chosen(self) -> Settings:
        """Return the settings of the server."""
        given = KAFKA if self.is_kafka else ROCKETMQ
        return settings(
            ROOT / "store",
            set=given,
            retention_interval_ms=HOUR_MS,
            consumer_idle_ms=2 * DAY_MS,  # the sweep for idle consumers has a timer of its own
        )

    def open(self, progress: storage.Progress) -> LogStore:
        """Open the store on the disk in memory, as the server would."""
        options = StoreOptions(settings=self.chosen().set, progress=progress)
        return storage.open_store(self.backend, ROOT / "store", options, fs=self.fs, clock=self)

    def used_bytes(self, folder: Path = ROOT) -> int:
        """Return the size of all files."""
        paths = [folder / name for name in self.fs.list_dir(folder)]
        return sum(
            self.used_bytes(path) if self.fs.is_dir(path) else self.fs.size(path) for path in paths
        )


@asynccontextmanager
async def served(world: World) -> AsyncIterator[Api]:
    """Run a server whose services are stepped by `tick` alone."""
    async with serving(world.chosen(), world.open, clock=world) as api:
        upkeep = api.service._upkeep
        assert upkeep is not None
        await upkeep.stop()
        yield api


async def tick(world: World, api: Api) -> None:
    """Let every service do the work that is due now."""
    upkeep = api.service._upkeep
    assert upkeep is not None
    for _ in range(TICKS):
        world.now_ms += TICK_MS
        await asyncio.to_thread(upkeep.step, world.now_ms)
    for status in api.service.services():
        assert status.error is None, status
        assert status.lag_ms < HOUR_MS, status


async def send(api: Api, topic: str, *rows: Mapping[str, Any], query: str = "") -> None:
    answer = await api.post(f"/topics/{topic}/partitions/0{query}", {"records": list(rows)})
    assert answer.status == 200, answer.body


async def read(api: Api, topic: str, start: str = "earliest") -> list[dict[str, Any]]:
    """Return all committed records of a topic from its start on."""
    rows: list[dict[str, Any]] = []
    more = "" if api.service.store.capabilities.messages else "&isolation=read_committed"
    while True:
        answer = await api.get(
            f"/topics/{topic}/partitions/0/records?format=json&offset={start}{more}"
        )
        assert answer.status == 200, answer.body
        if not answer.json:
            return rows
        rows += answer.json
        start = str(rows[-1]["offset"] + 1)


async def plain(world: World, api: Api) -> None:
    await send(api, "plain", *({"value": VALUE} for _ in range(20)))


async def compacted(world: World, api: Api) -> None:
    """Overwrite keys; the topic says what the dictionary says."""
    for _ in range(4):
        rows = [(f"k{world.dice.randrange(KEYS)}", world.next()) for _ in range(10)]
        await send(api, "table", *({"key": key, "value": [n, VALUE]} for key, n in rows))
        world.table |= dict(rows)
    found = {row["key"]: row["value"][0] for row in await read(api, "table")}
    assert found == world.table


async def transactions(world: World, api: Api) -> None:
    """Commit, roll back, and leave one open, which times out."""
    for outcome in ("commit", "rollback", None):
        begun = await api.post(
            "/transactions", {"transactional_id": f"id-{outcome}", "timeout_ms": 60_000}
        )
        assert begun.status in {200, 201}, begun.body
        number = world.next()
        name = begun.json["id"]
        await send(api, "tx", {"value": number}, query=f"?transaction={name}")
        if outcome is None:
            world.undone.add(number)
            continue
        ended = await api.post(f"/transactions/{name}/{outcome}", {})
        assert ended.status in {200, 204}, ended.body
        (world.committed.append if outcome == "commit" else world.undone.add)(number)
    await tick(world, api)
    world.now_ms += 120_000
    await tick(world, api)
    found = [row["value"] for row in await read(api, "tx")]
    assert found == world.committed[-len(found) :]
    assert found
    assert not world.undone & set(found)


async def cut(world: World, api: Api) -> None:
    """Delete all records but the last ten."""
    await send(api, "cut", *({"value": VALUE} for _ in range(20)))
    end = (await api.get("/topics/cut/partitions/0/offsets")).json["end_offset"]
    answer = await api.call("DELETE", f"/topics/cut/partitions/0/records?before={end - 10}")
    assert answer.status == 200, answer.body
    assert len(await read(api, "cut")) == 10


async def delayed(world: World, api: Api) -> None:
    """Send messages of all levels; those that are due have been delivered, and none was early."""
    for _ in range(6):
        level, number = world.dice.randint(1, LEVELS), world.next()
        answer = await api.post(
            "/topics/later/partitions/0",
            {"records": [{"value": number, "delay_level": level}]},
        )
        assert answer.status == 200, answer.body
        world.due[number] = answer.json["offsets"][0]["deliver_at"]
    for row in await read(api, "later"):
        world.delivered.setdefault(row["value"], row["store_timestamp"])
    for number, due_ms in world.due.items():
        if number in world.delivered:
            assert world.delivered[number] >= due_ms
        else:
            assert due_ms >= world.now_ms - 1000, f"{number} is late"


async def worked(world: World, api: Api, member: Consumer) -> None:
    """Acknowledge most records, hand some back, and forget some, which come again."""
    numbers = [world.next() for _ in range(10)]
    world.work |= set(numbers)
    await send(api, "work", *({"value": n} for n in numbers))
    for _ in range(3):
        rows = await member.poll("timeout=0&ack=manual&invisible_ms=1000")
        for row in rows:
            place = row.get("retry", row)
            body = {
                "records": [
                    {**{n: place[n] for n in ("topic", "partition")}, "offset": row["offset"]}
                ]
            }
            fate = world.dice.randrange(10)
            if fate == 0:
                continue
            call = "nack" if fate == 1 else "ack"
            answer = await member.post(call, body)
            assert answer.status == 200, answer.body
            if call == "ack":
                world.done.add(row["value"])
        world.now_ms += 1000
        await tick(world, api)


async def joined(world: World, api: Api, day: int) -> Consumer:
    member = await consumer(api, f"day-{day}")
    await member.subscribe("work", *(["g.retry"] if world.is_kafka else []))
    return member


async def create(world: World, api: Api) -> None:
    for topic in ("plain", "work", "tx", "cut" if world.is_kafka else "later"):
        await api.create(topic)
    if world.is_kafka:
        await api.create("table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.1")
        await api.create("g.retry")


async def live(world: World, step_hours: int) -> None:
    """Live for ten days."""
    for day in range(DAYS):
        async with served(world) as api:
            if not day:
                await create(world, api)
            member = await joined(world, api, day)
            for _ in range(24 // step_hours):
                await plain(world, api)
                await transactions(world, api)
                if world.is_kafka:
                    await compacted(world, api)
                    await cut(world, api)
                else:
                    await delayed(world, api)
                await worked(world, api, member)
                world.now_ms += step_hours * HOUR_MS
                await tick(world, api)
            stats = (await api.get("/store")).json["stats"]
            world.deleted += stats["deleted_segments"]
            world.cleanings += (stats["compaction"] or {}).get("cleanings", 0)
            world.sizes.append(world.used_bytes())
            await member.delete()
    assert world.deleted >= DAYS // 2
    assert (world.cleanings >= DAYS) == world.is_kafka


async def finish(world: World) -> None:
    """Process the rest: every record of the group was acknowledged or is a dead letter."""
    async with served(world) as api:
        member = await joined(world, api, DAYS)
        for _ in range(60):
            rows = await member.poll("timeout=0&ack=manual&invisible_ms=1000")
            for row in rows:
                place = row.get("retry", row)
                at = {
                    "topic": place["topic"],
                    "partition": place["partition"],
                    "offset": row["offset"],
                }
                await member.post("ack", {"records": [at]})
                world.done.add(row["value"])
            world.now_ms += HOUR_MS // 20
            await tick(world, api)
        assert world.work == world.done


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
async def test_ten_days(
    backend: str, seed: int, amount: Callable[[int, int], int], figures: Callable[[str], None]
) -> None:
    world = World(backend, seed)
    await live(world, amount(*STEP_HOURS))
    figures(f"{backend}: bytes on the disk after each day: {world.sizes}")
    early, late = max(world.sizes[1:4]), max(world.sizes[-4:])
    assert late <= 1.5 * early, world.sizes
    await finish(world)
