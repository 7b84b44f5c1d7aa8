"""Inspection and Spark's reads of a store whose cleaner replaces segments in the middle: nothing looks damaged."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage import Isolation, OffsetRange, StoreOptions
from storage.columns import COMMON_COLUMNS
from storage.errors import IoFailure
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.columns.read import read_split
from storage.kafka.columns.splits import KafkaSplitter
from storage.kafka.store import KafkaStore
from storage.kafka.tools import open_inspector
from tests.chunks import rows_of
from tests.robustness.crash.compacted import AT, FOLDER, SETTINGS, CompactedTopic
from tests.robustness.crash.workload import PATH

REQUESTS = 20
IN = 12  # CI lets the cleaner run at one call in so many


class Meanwhile(OverlayFileSystem):
    """A view of a disk on which the cleaner runs right before the `nth` call that names a file of the topic."""

    def __init__(self, base: FileSystem, act: Callable[[], None], *, nth: int) -> None:
        super().__init__(base)
        self._disk = base
        self._act = act
        self.left = nth

    def _meet(self, path: Path) -> None:
        if path == FOLDER or path.parent == FOLDER:
            self.left -= 1
            if not self.left:
                self._act()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> Any:
        self._meet(path)
        return self._disk.open(path)

    def list_dir(self, path: Path) -> Sequence[str]:
        self._meet(path)
        return self._disk.list_dir(path)

    def size(self, path: Path) -> int:
        self._meet(path)
        return self._disk.size(path)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        return self._disk.is_dir(path, follow=follow)

    def read_bytes(self, path: Path) -> bytes:
        self._meet(path)
        return self._disk.read_bytes(path)

    def mtime_ms(self, path: Path) -> int:
        return self._disk.mtime_ms(path)


class Live:
    """A store that a server has open, with a log to clean."""

    def __init__(self) -> None:
        self.disk = OverlayFileSystem()
        self.disk.make_dir(PATH.parent)
        self.topic = CompactedTopic()
        self.store: KafkaStore = self.topic.open(self.disk)
        dice = random.Random(7)
        self.topic.fill(self.store, dice, REQUESTS)
        assert self.topic.clean(self.store)
        self.topic.fill(self.store, dice, REQUESTS)

    def clean(self) -> None:
        assert self.topic.clean(self.store)

    def remove_too(self) -> None:
        """Clean, and remove the replaced files at once."""
        self.clean()
        self.topic.clock.now_ms += 10**9
        self.store.compact(self.topic.clock.now_ms)

    def inspect(self, act: Callable[[], None], nth: int) -> tuple[Any, Meanwhile]:
        fs = Meanwhile(self.disk, act, nth=nth)
        options = StoreOptions(settings=SETTINGS)
        inspector = open_inspector(PATH, options, fs=fs, clock=self.topic.clock)
        assert inspector is not None
        return inspector, fs


def check_findings(found: Sequence[Any]) -> None:
    assert [f for f in found if f.severity != "info"] == []


def calls(work: Callable[[Any], object]) -> int:
    """Return how many calls a piece of work makes when nothing happens meanwhile."""
    live = Live()
    inspector, fs = live.inspect(lambda: None, 1 << 30)
    work(inspector)
    inspector.close()
    return (1 << 30) - fs.left


def dumped(inspector: Any) -> list[Any]:
    return [
        row for run in inspector.dump("records", isolation=Isolation.READ_COMMITTED) for row in run
    ]


def batches(inspector: Any) -> list[Any]:
    return [row for run in inspector.dump("batches") for row in run]


@pytest.mark.parametrize("way", ["clean", "remove_too"])
def test_a_dump_has_the_newest_record_of_each_key(
    way: str, amount: Callable[[int, int], int]
) -> None:
    every = amount(IN, 1)
    total = calls(dumped)
    assert total > 10
    for nth in range(1 + random.randrange(every), total + 1, every):
        live = Live()
        inspector, fs = live.inspect(getattr(live, way), nth)
        rows = dumped(inspector)
        assert fs.left <= 0
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets)), nth
        found: dict[bytes, bytes | None] = {}
        for row in rows:
            found[row["key"]] = row["value"]
        assert {k: v for k, v in found.items() if v is not None} == live.topic.values, nth
        check_findings(inspector.findings())
        inspector.close()


def test_batches_are_all_whole(amount: Callable[[int, int], int]) -> None:
    every = amount(IN, 1)
    for nth in range(1 + random.randrange(every), calls(batches) + 1, every):
        live = Live()
        inspector, _ = live.inspect(live.remove_too, nth)
        rows = batches(inspector)
        assert all(row["valid"] for row in rows), nth
        offsets = [row["baseOffset"] for row in rows]
        assert offsets == sorted(set(offsets)), nth
        assert rows[-1]["lastOffset"] + 1 == live.topic.end
        check_findings(inspector.findings())
        inspector.close()


@pytest.mark.parametrize("way", ["clean", "remove_too"])
def test_verify_finds_nothing(way: str, amount: Callable[[int, int], int]) -> None:
    every = amount(IN, 1)
    for nth in range(1 + random.randrange(every), calls(lambda it: list(it.verify())) + 1, every):
        live = Live()
        inspector, _ = live.inspect(getattr(live, way), nth)
        check_findings(list(inspector.verify()))
        inspector.close()


@pytest.mark.parametrize("way", ["clean", "remove_too"])
def test_a_summary_finds_nothing(way: str, amount: Callable[[int, int], int]) -> None:
    every = amount(IN, 1)
    for nth in range(1 + random.randrange(every), calls(lambda it: it.summary()) + 1, every):
        live = Live()
        inspector, _ = live.inspect(getattr(live, way), nth)
        shown = inspector.summary()
        assert [row for row in shown["findings"] if row["severity"] == "error"] == [], nth
        assert shown["topics"][-1]["partitions"][0]["latest"] == live.topic.end
        inspector.close()


def test_a_partition_that_never_stays_the_same_is_left_out() -> None:
    """It is named once, as a warning, and the command ends."""
    live = Live()
    fs = Meanwhile(live.disk, lambda: None, nth=1 << 30)

    class Restless(Meanwhile):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> Any:
            if path.parent == FOLDER and path.suffix == ".log":
                live.topic.fill(live.store, random.Random(1), REQUESTS)
                live.topic.clean(live.store)
            return super().open(path)

    fs = Restless(live.disk, lambda: None, nth=1 << 30)
    options = StoreOptions(settings=SETTINGS)
    inspector = open_inspector(PATH, options, fs=fs, clock=live.topic.clock)
    assert inspector is not None
    found = [f for f in inspector.verify() if f.severity != "info"]
    assert [(f.code, f.severity, f.topic) for f in found] == [
        ("changed-meanwhile", "warning", AT.topic)
    ]
    inspector.close()


# ---- Spark ----


def planned(live: Live, fs: FileSystem) -> Any:
    """Return the splits of the whole topic, committed records only."""
    splitter = KafkaSplitter(PATH, StoreOptions(settings=SETTINGS), fs=fs, clock=live.topic.clock)
    try:
        bounds = splitter.bounds(AT)
        wanted = OffsetRange(AT, bounds.start, bounds.end)
        return splitter.plan([wanted], split_bytes=400, isolation=Isolation.READ_COMMITTED)
    finally:
        splitter.close()


def newest(splits: Any, fs: FileSystem) -> dict[bytes | None, bytes]:
    """Return the newest value of each key in these splits, in the order of their offsets."""
    found: dict[bytes | None, bytes | None] = {}
    for split in splits:
        read = read_split(split.plan, COMMON_COLUMNS, check_crcs=True, on_damage=None, fs=fs)
        for row in rows_of(read):
            found[row.key] = row.value
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("way", ["clean", "remove_too"])
def test_splits_that_the_cleaner_interrupts(way: str, amount: Callable[[int, int], int]) -> None:
    """Files that are replaced after the last look are read under their other name, as long as they are there."""
    every = amount(4, 1)
    counted = Live()
    fs = Meanwhile(counted.disk, lambda: None, nth=1 << 30)
    assert newest(planned(counted, fs), counted.disk) == counted.topic.values
    total = (1 << 30) - fs.left
    refused = []
    for nth in range(1 + random.randrange(every), total + 1, every):
        live = Live()
        fs = Meanwhile(live.disk, getattr(live, way), nth=nth)
        try:
            assert newest(planned(live, fs), live.disk) == live.topic.values, nth
        except IoFailure as error:
            if "run the job again" not in error.message:
                raise
            refused.append(nth)
    assert way == "remove_too" or not refused
    assert len(refused) <= 1 + total // 4


def test_a_task_reads_the_files_that_were_planned_for() -> None:
    """They have another name for a minute; after that the task says what to do."""
    live = Live()
    splits = planned(live, live.disk)
    live.clean()
    assert newest(splits, live.disk) == live.topic.values
    live.topic.clock.now_ms += 10**9
    live.store.compact(live.topic.clock.now_ms)
    with pytest.raises(IoFailure, match="run the job again"):
        newest(splits, live.disk)
