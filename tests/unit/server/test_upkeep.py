"""Upkeep: each step called directly, driven clocks, the schedule, and failing steps, which do not end the schedule."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logserver.config import Settings
from logserver.service import delay
from logserver.service.maintenance import maintenance
from logserver.service.upkeep import UNEXPECTED, Service, ServiceStatus, Upkeep
from storage import Delivery, Record, RetentionReport, TopicPartition
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


SILENT = SimpleNamespace(flush=lambda: None)


def services(store: MemoryStore, journal: Journal | None = None, **changed: Any) -> list[Service]:
    settings = Settings(data=Path("unused"), **changed)
    return maintenance(store, settings, lambda: {T0}, journal or cast("Journal", SILENT))


@asynccontextmanager
async def tending(
    store: MemoryStore, journal: Journal | None = None, **changed: Any
) -> AsyncIterator[Upkeep]:
    upkeep = Upkeep(services(store, journal, **changed), clock=lambda: 4711)
    yield upkeep
    await upkeep.stop()


def test_each_step_by_hand() -> None:
    store = TendedStore()
    store.create_topic("t", 1)
    for service in services(store):
        service.step(4711)
    assert (store.flushes, store.checkpoints, store.retained_at) == ([{T0}], 1, [4711])


def test_a_partition_that_went_away_does_not_keep_the_others_from_being_flushed() -> None:
    store = TendedStore()
    store.create_topic("t", 1)
    store.append(T0, [Record(None, b"v")], publish=False)
    unflushed = {TopicPartition("gone", 0), T0}
    for service in maintenance(
        store, Settings(data=Path("unused")), lambda: unflushed, cast("Journal", SILENT)
    ):
        service.step(0)
    assert store.bounds(T0).end == 1


class Driven:
    """A service that notes when it was stepped, with a clock that the test drives."""

    def __init__(self, *intervals_ms: int, lag_ms: Callable[[int], int] | None = None) -> None:
        self.now_ms = 1000
        self.steps: list[tuple[str, int]] = []
        self.fails: Exception | None = None
        named = ((f"every-{interval_ms}", interval_ms) for interval_ms in intervals_ms)
        self.upkeep = Upkeep(
            [
                Service(name=name, interval_ms=ms, step=partial(self._step, name), lag_ms=lag_ms)
                for name, ms in named
            ],
            clock=lambda: self.now_ms,
        )

    def _step(self, name: str, now_ms: int) -> None:
        self.steps.append((name, now_ms))
        if self.fails is not None:
            raise self.fails

    def at(self, now_ms: int) -> ServiceStatus:
        self.now_ms = now_ms
        self.upkeep.step(now_ms)
        return self.upkeep.status()[0]


def test_a_driven_clock_steps_what_is_due_in_the_order_of_the_list() -> None:
    driven = Driven(300, 100)
    for now_ms in (1000, 1099, 1100, 1150, 1300, 1399, 5000):
        driven.at(now_ms)
    fast, slow = "every-100", "every-300"
    assert driven.steps == [
        (fast, 1100),
        *((slow, 1300), (fast, 1300)),
        *((slow, 5000), (fast, 5000)),
    ]


def test_the_status_of_a_service() -> None:
    driven = Driven(100)
    status = driven.upkeep.status()[0]
    assert (status.name, status.interval_ms, status.last_run_ms) == ("every-100", 100, None)
    assert (status.error, status.lag_ms) == (None, 0)
    driven.now_ms = 1130  # its turn was at 1100
    assert driven.upkeep.status()[0].lag_ms == 30
    status = driven.at(1140)
    assert (status.last_run_ms, status.error, status.lag_ms) == (1140, None, 0)
    driven.fails = DiskFull("the disk is full", path="/data")
    status = driven.at(1240)
    assert (status.last_run_ms, status.error, status.lag_ms) == (1140, DiskFull.code, 0)
    status = driven.at(1500)
    assert (status.last_run_ms, status.error, status.lag_ms) == (1140, DiskFull.code, 260)
    driven.fails = ZeroDivisionError("a mistake")
    assert driven.at(1700).error == UNEXPECTED
    driven.fails = None
    status = driven.at(1900)
    assert (status.last_run_ms, status.error, status.lag_ms) == (1900, None, 0)


def test_a_service_may_measure_its_own_lag() -> None:
    driven = Driven(100, lag_ms=lambda now_ms: now_ms - 1250)
    assert driven.upkeep.status()[0].lag_ms == 0
    driven.now_ms = 1251
    assert driven.upkeep.status()[0].lag_ms == 1


def test_a_step_of_the_delivery_ends_although_more_messages_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a long stop a million may be due: flush, retention and the stop of the server do not wait for all."""
    now_s, left = [0.0], [10]
    monkeypatch.setattr("logserver.service.delay.time.monotonic", lambda: now_s[0])

    def deliver(_now_ms: int, *, max_records: int) -> Delivery:
        assert max_records <= 4096
        now_s[0] += delay.STEP_SECONDS / 2
        left[0] -= 1
        return Delivery((T0,), 1, left[0] > 0)

    store: Any = SimpleNamespace(
        delays=SimpleNamespace(deliver=deliver, lag_ms=lambda _: 7), topics=dict
    )
    (service,) = delay.delivery(store, 100, lambda _partitions, _topics: None)
    steps = 0
    while left[0]:
        service.step(0)
        steps += 1
    assert steps == 4, "three deliveries in a step: the third begins just in time"


def test_a_failed_journal_does_not_keep_records_from_being_flushed() -> None:
    def fails() -> None:
        raise StoreFenced("the journal is fenced")

    store = TendedStore()
    store.create_topic("t", 1)
    journal = cast("Journal", SimpleNamespace(flush=fails))
    upkeep = Upkeep(services(store, journal, flush="async", flush_interval_ms=1), clock=lambda: 0)
    upkeep.step(1)
    assert store.flushes == [{T0}]
    errors = {status.name: status.error for status in upkeep.status()}
    assert (errors["journal"], errors["flush"]) == (StoreFenced.code, None)


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
