"""A start that repairs in threads does the same as one without, and ends them before it gives the store away."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from logserver.config import Settings
from logserver.opening import REPAIRERS, StorePlan, plan_store
from storage import (
    LogStore,
    Record,
    RepairRunner,
    StoreOptions,
    TopicPartition,
    open_store,
)
from storage.contract import no_progress
from storage.errors import IoFailure
from storage.files import HandleCache
from storage.repairs import repair_serially
from tests.contract.harness import ManualClock
from tests.killed_store import killed

P = TypeVar("P")
R = TypeVar("R")

TOPICS = 18
RECORDS = 3
SETTINGS = {
    "kafka": {"internal.segment.bytes": "300", "log.index.interval.bytes": "100"},
    "rocketmq": {
        "defaultTopicQueueNums": "1",
        "mappedFileSizeCommitLog": "16384",
        "mappedFileSizeConsumeQueue": "200",
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
    },
}


def options_of(backend: str, repair: RepairRunner = repair_serially) -> StoreOptions:
    return StoreOptions(settings=SETTINGS[backend], open_files=8, repair=repair)


def opened(backend: str, path: Path, repair: RepairRunner = repair_serially) -> LogStore:
    return open_store(backend, path, options_of(backend, repair), clock=ManualClock())


def left_by_a_kill(backend: str, path: Path) -> Path:
    with killed(opened(backend, path)) as store:
        for number in range(TOPICS):
            topic = f"topic-{number}"
            store.create_topic(topic, 1)
            for value in range(RECORDS):
                record = Record(value=b"%d" % value, key=b"k", timestamp_ms=value)
                store.append(TopicPartition(topic, 0), [record])
        # RocketMQ: a queue whose file does not exist yet has nothing to repair.
        while store.stats().details.get("dispatch_lag_bytes"):
            time.sleep(0.01)
    return path


def plan_of(backend: str, path: Path, *, read_only: bool = False) -> StorePlan:
    settings = Settings(data=path, set=SETTINGS[backend], read_only=read_only)
    return plan_store(settings)


def contents(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def values(store: LogStore) -> list[list[bytes | None]]:
    pages = (store.read(TopicPartition(f"topic-{n}", 0), 0) for n in range(TOPICS))
    return [[record.value for record in page.records] for page in pages]


WANTED = [[b"%d" % value for value in range(RECORDS)]] * TOPICS


class Syncs:
    """The syncs of files: how many run at the same time, and in which threads."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.threads: Counter[str] = Counter()
        self.running_at_close: list[int] = []
        self.fails: Callable[[Path], bool] = lambda path: False
        self.lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        name = threading.current_thread().name.rpartition("_")[0]
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.threads[name] += 1
        try:
            if name == "repair":
                time.sleep(0.01)  # long enough for the syncs of other threads to begin
            yield
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    found = Syncs()
    datasync, close = HandleCache.datasync, HandleCache.close

    def counted(cache: HandleCache, path: Path) -> None:
        with found.counted():
            datasync(cache, path)
            if found.fails(path):
                raise IoFailure(f"{path}: cannot sync")

    def closed(cache: HandleCache, *, sync: bool = True) -> None:
        found.running_at_close.append(found.running)
        close(cache, sync=sync)

    monkeypatch.setattr(HandleCache, "datasync", counted)
    monkeypatch.setattr(HandleCache, "close", closed)
    return found


@pytest.mark.parametrize("backend", SETTINGS)
def test_the_order_of_the_repairs_does_not_matter(backend: str, tmp_path: Path) -> None:
    """Repairs change only their own files: done from the last to the first, they leave the same store."""
    first = left_by_a_kill(backend, tmp_path / "first")
    second = tmp_path / "second"
    shutil.copytree(first, second)
    handed: list[int] = []

    def backwards(work: Callable[[P], R], parts: Sequence[P], /) -> Generator[R, None, None]:
        handed.append(len(parts))
        yield from [work(part) for part in reversed(parts)][::-1]

    with killed(opened(backend, first)) as serial:
        wanted = contents(first), values(serial), serial.recovery.findings
    with killed(opened(backend, second, backwards)) as store:
        assert (contents(second), values(store), store.recovery.findings) == wanted
    assert handed == [TOPICS]


@pytest.mark.parametrize("backend", SETTINGS)
def test_threads_repair_the_same(backend: str, tmp_path: Path, syncs: Syncs) -> None:
    first = left_by_a_kill(backend, tmp_path / "first")
    second = tmp_path / "second"
    shutil.copytree(first, second)
    with killed(opened(backend, first)) as serial:
        wanted = values(serial), serial.recovery.findings
        serial_files = contents(first)
    assert wanted[0] == WANTED
    syncs.threads.clear()
    syncs.most = 0
    with killed(plan_of(backend, second).open(no_progress)) as store:
        assert (values(store), store.recovery.findings) == wanted
        threaded_files = contents(second)
    assert syncs.threads["repair"] >= TOPICS
    assert 1 < syncs.most <= REPAIRERS
    assert threaded_files.keys() == serial_files.keys()
    different = {name for name, data in threaded_files.items() if data != serial_files[name]}
    assert {Path(name).name for name in different} <= {"checkpoint"}  # the clock of this start


@pytest.mark.parametrize("backend", SETTINGS)
def test_a_failed_sync_in_a_thread_ends_the_start(
    backend: str, tmp_path: Path, syncs: Syncs
) -> None:
    """The error is reported, and the other threads have ended when the store closes its files and gives the lock up."""
    path = left_by_a_kill(backend, tmp_path / "store")
    syncs.running_at_close.clear()
    syncs.fails = lambda file: "topic-7" in str(file)
    with pytest.raises(IoFailure, match=r"topic-7.*: cannot sync"):
        plan_of(backend, path).open(no_progress)
    assert syncs.running_at_close
    assert set(syncs.running_at_close) == {0}
    assert not [t.name for t in threading.enumerate() if t.name.startswith("repair")]
    syncs.fails = lambda file: False
    with killed(opened(backend, path)) as store:
        assert values(store) == WANTED


@pytest.mark.parametrize("backend", SETTINGS)
def test_a_start_that_is_stopped_ends_its_threads(
    backend: str, tmp_path: Path, syncs: Syncs
) -> None:
    """A stop raises in the report of progress (ServerState.note_progress): repairs that have not begun are dropped."""
    path = left_by_a_kill(backend, tmp_path / "store")
    syncs.running_at_close.clear()
    syncs.threads.clear()

    def progress(what: str, done: int, total: int) -> None:
        if what in ("repairing partitions", "syncing queues"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        plan_of(backend, path).open(progress)
    assert syncs.running_at_close
    assert set(syncs.running_at_close) == {0}
    assert syncs.threads["repair"] > 0
    left = contents(path)
    time.sleep(0.05)
    assert contents(path) == left
    with killed(opened(backend, path)) as store:
        assert values(store) == WANTED


@pytest.mark.parametrize("backend", SETTINGS)
def test_a_read_only_start_uses_no_threads(backend: str, tmp_path: Path, syncs: Syncs) -> None:
    path = left_by_a_kill(backend, tmp_path / "store")
    before = contents(path)
    syncs.threads.clear()
    store = plan_of(backend, path, read_only=True).open(no_progress)
    assert values(store) == WANTED
    store.close()
    assert not syncs.threads["repair"]
    assert contents(path) == before
