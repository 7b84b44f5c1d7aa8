"""A start that repairs in threads does the same as one without, and syncs side by side what it may."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from storage import LogStore, Record, StoreOptions, TopicPartition, open_store
from storage.contract import TaskRunner, run_serially
from tests.contract.harness import ManualClock
from tests.killed_store import killed

P = TypeVar("P")
R = TypeVar("R")

TOPICS = 24
THREADS = 4
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


def opened(backend: str, path: Path, in_threads: TaskRunner = run_serially) -> LogStore:
    options = StoreOptions(settings=SETTINGS[backend], open_files=8, in_threads=in_threads)
    return open_store(backend, path, options, clock=ManualClock())


def left_by_a_kill(backend: str, path: Path) -> Path:
    with killed(opened(backend, path)) as store:
        for number in range(TOPICS):
            topic = f"topic-{number}"
            store.create_topic(topic, 1)
            for value in range(5):
                record = Record(value=b"%d" % value, key=b"k", timestamp_ms=value)
                store.append(TopicPartition(topic, 0), [record])
    return path


def contents(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def values(store: LogStore) -> list[list[bytes | None]]:
    pages = (store.read(TopicPartition(f"topic-{n}", 0), 0) for n in range(TOPICS))
    return [[record.value for record in page.records] for page in pages]


@pytest.mark.parametrize("backend", SETTINGS)
def test_threads_repair_the_same(backend: str, tmp_path: Path) -> None:
    """All partitions are handed to the runner; files and records are the same as without threads."""
    first = left_by_a_kill(backend, tmp_path / "first")
    second = tmp_path / "second"
    shutil.copytree(first, second)
    used: Counter[str] = Counter()

    def in_threads(work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
        met = threading.Barrier(THREADS, timeout=30)

        def noted(part: P) -> R:
            name = threading.current_thread().name
            if name not in used:
                met.wait()  # so that each thread gets a part
            used[name] += 1
            return work(part)

        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(noted, parts)

    with killed(opened(backend, first)) as serial:
        wanted = contents(first), values(serial), serial.recovery.findings
    with killed(opened(backend, second, in_threads=in_threads)) as store:
        found = contents(second), values(store), store.recovery.findings
    assert len(used) == THREADS
    assert used.total() == TOPICS
    assert found[1:] == wanted[1:]
    assert found[0].keys() == wanted[0].keys()
    assert {name for name in found[0] if found[0][name] != wanted[0][name]} == set()


@pytest.mark.parametrize("backend", SETTINGS)
def test_an_error_in_a_thread_ends_the_start(backend: str, tmp_path: Path) -> None:
    path = left_by_a_kill(backend, tmp_path / "store")

    def failing(work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
        with ThreadPoolExecutor(THREADS) as pool:
            for done, result in enumerate(pool.map(work, parts)):
                if done == TOPICS // 2:
                    raise OSError(5, "the disk failed")
                yield result

    with pytest.raises(OSError, match="the disk failed"):
        opened(backend, path, in_threads=failing)
    with killed(opened(backend, path)) as store:
        assert values(store) == [[b"0", b"1", b"2", b"3", b"4"]] * TOPICS
