"""Upkeep: each pass called directly, the schedule, and failing passes, which do not end the schedule."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logserver.config import Settings
from logserver.service.access import StoreAccess
from logserver.service.commit import Writer
from logserver.service.upkeep import Upkeep
from storage import Record, RetentionReport, StoreOptions, TopicPartition
from storage.errors import DiskFull, StoreFenced
from storage.memory.store import MemoryStore
from storage.shared.journal import Journal
from tests.robustness.crash.power import Power
from tests.watched_store import WatchedStore

T0 = TopicPartition("t", 0)


class TendedStore(WatchedStore):
    """A store that counts the calls of upkeep."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints = 0
        self.retained_at: list[int] = []
        self.flush_attempts = 0
        self.mistakes = 0  # calls of retention that fail

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self.flush_attempts += 1
        super().flush(partitions)

    def checkpoint(self) -> None:
        self.checkpoints += 1

    def enforce_retention(self, now_ms: int) -> RetentionReport:
        self.retained_at.append(now_ms)
        if len(self.retained_at) <= self.mistakes:
            raise ZeroDivisionError("a mistake")
        return RetentionReport(segments_deleted=1, bytes_deleted=10)


@asynccontextmanager
async def tending(
    store: MemoryStore, journal: Journal | None = None, **changed: Any
) -> AsyncIterator[Upkeep]:
    access = SimpleNamespace(
        store=store, settings=Settings(data=Path("unused"), **changed), clock=lambda: 4711
    )
    writer = SimpleNamespace(take_unflushed=lambda: {T0})
    upkeep = Upkeep(cast("StoreAccess", access), cast("Writer", writer), journal)
    yield upkeep
    await upkeep.stop()


async def test_each_pass_by_hand() -> None:
    store = TendedStore()
    store.create_topic("t", 1)
    async with tending(store) as upkeep:
        upkeep.flush_pass({T0})
        upkeep.flush_pass(set())
        assert store.flushes == [{T0}]
        upkeep.checkpoint_pass()
        assert store.checkpoints == 1
        assert upkeep.retention_pass().segments_deleted == 1
        assert store.retained_at == [4711]


async def test_a_partition_that_went_away_does_not_keep_the_others_from_being_flushed() -> None:
    store = TendedStore()
    store.create_topic("t", 1)
    store.append(T0, [Record(None, b"v")], publish=False)
    async with tending(store) as upkeep:
        upkeep.flush_pass({TopicPartition("gone", 0), T0})
    assert store.bounds(T0).end == 1


async def test_the_schedule_does_all_of_it() -> None:
    store = TendedStore()
    intervals: dict[str, Any] = dict.fromkeys(
        ("flush_interval_ms", "checkpoint_interval_ms", "retention_interval_ms"), 1
    )
    async with tending(store, **intervals) as upkeep:
        upkeep.start()
        await until(lambda: store.flushes and store.checkpoints and store.retained_at)
        await upkeep.stop()
        seen = len(store.flushes)
        await asyncio.sleep(0.01)
        assert len(store.flushes) == seen


@pytest.mark.parametrize("count", [1, 2, 50])
async def test_notes_of_keys_are_synced_by_interval(count: int) -> None:
    """Notes of requests that did not wait for the disk are synced long before the journal's file is full."""
    power, folder = Power(), Path("/")
    notes = [b"note %d" % number for number in range(count)]
    journal = Journal(power, folder, "keys", generation_entries=1000)
    journal.append([b"first"], sync=True)
    journal.append(notes, sync=False)
    assert Journal(power.cut(), folder, "keys", generation_entries=1000).take() == [b"first"]
    store = TendedStore()
    store.create_topic("t", 1)
    async with tending(store, journal, flush="async", flush_interval_ms=1) as upkeep:
        upkeep.start()
        await until(lambda: len(store.flushes) > 1)
    found = Journal(power.cut(), folder, "keys", generation_entries=1000).take()
    assert found == [b"first", *notes]


async def test_os_mode_never_flushes() -> None:
    store = TendedStore()
    async with tending(store, flush="os", flush_interval_ms=1) as upkeep:
        upkeep.start()
        await asyncio.sleep(0.02)
    assert store.flushes == []


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_pass_that_fails_is_told_once_and_the_schedule_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = TendedStore()
    store.fail_flush = StoreFenced("the store is fenced", path="/data", cause="EIO")
    async with tending(store, flush_interval_ms=1) as upkeep:
        upkeep.start()
        await until(lambda: store.flush_attempts >= 3)
        assert caplog.text.count("the store is fenced") == 1
        store.fail_flush = DiskFull("the disk is full", path="/data")
        await until(lambda: "the disk is full" in caplog.text)
        store.fail_flush = DiskFull("no space for another file", path="/data/other")
        tried = store.flush_attempts
        await until(lambda: store.flush_attempts >= tried + 3)
        assert "another file" not in caplog.text
        store.fail_flush = None
        await until(lambda: store.flushes)
        store.fail_flush = DiskFull("the disk is full", path="/data")
        await until(lambda: caplog.text.count("the disk is full") == 2)


async def test_a_pass_that_breaks_is_told_and_the_schedule_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = TendedStore()
    store.mistakes = 2
    async with tending(store, retention_interval_ms=1) as upkeep:
        upkeep.start()
        await until(lambda: len(store.retained_at) >= 4)
    assert caplog.text.count("the retention pass broke") == 2
    assert "ZeroDivisionError: a mistake" in caplog.text


async def test_stopping_waits_for_the_pass_that_runs() -> None:
    store = TendedStore()
    store.gate.clear()
    async with tending(store, flush_interval_ms=1) as upkeep:
        upkeep.start()
        assert await asyncio.to_thread(store.flushing.wait, 10)
        stopping = asyncio.create_task(upkeep.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        store.gate.set()
        await stopping
    assert store.flushes == [{T0}]


async def test_a_pass_that_fails_while_it_is_stopped_is_no_unseen_error() -> None:
    store = TendedStore()
    entered, go_on = threading.Event(), threading.Event()

    def fails_late() -> None:
        entered.set()
        go_on.wait(10)
        raise StoreFenced("fenced")

    store.checkpoint = fails_late  # type: ignore[method-assign]
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    async with tending(store, checkpoint_interval_ms=1) as upkeep:
        upkeep.start()
        await asyncio.to_thread(entered.wait, 10)
        stopping = asyncio.create_task(upkeep.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []


async def test_a_read_only_store_is_left_alone() -> None:
    store = MemoryStore(StoreOptions(), clock=lambda: 0, read_only=True)
    async with tending(store, flush_interval_ms=1) as upkeep:
        upkeep.start()
        assert not upkeep._tasks
