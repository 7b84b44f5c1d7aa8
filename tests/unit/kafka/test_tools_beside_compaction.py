"""Salvage, rebuild and conversion of a store whose cleaner or retention replaces segments: nothing looks damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from storage import Isolation, StoreOptions
from storage.conversion.convert import convert
from storage.conversion.mapping import to_kafka
from storage.conversion.request import Order
from storage.conversion.sources import RocketMQSource
from storage.files import OverlayFileSystem
from storage.kafka.store import open_kafka
from storage.kafka.tools import open_inspector
from tests.robustness.crash.compacted import AT, FOLDER, SETTINGS
from tests.robustness.crash.workload import PATH
from tests.unit.kafka.test_beside_compaction import REQUESTS, Live, Meanwhile, check_findings

IN = 12  # CI acts at one call in so many
NEVER = 1 << 30
TARGET = Path("/new")
OPTIONS = StoreOptions(settings=SETTINGS)
SIZES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "100",
}


class Beside:
    """A file system with a store that a server changes meanwhile; all other files are in memory."""

    def __init__(self, store: Meanwhile) -> None:
        self.store = store
        self.others = OverlayFileSystem()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(path: Path, *more: Any, **named: Any) -> Any:
            is_above = path in PATH.parents and name in {"exists", "is_dir", "list_dir"}
            fs = self.store if is_above or PATH in (path, *path.parents) else self.others
            return getattr(fs, name)(path, *more, **named)

        return call


class Tool:
    """A tool that reads a live store, at whose `nth` call for a file of the topic something happens."""

    def __init__(self, live: Live, act: Callable[[], None], nth: int) -> None:
        self.live = live
        self.store = Meanwhile(live.disk, act, nth=nth)
        self.fs: Any = Beside(self.store)

    def inspector(self) -> Any:
        return open_inspector(PATH, OPTIONS, fs=self.fs, clock=self.live.topic.clock)

    def salvage(self) -> Any:
        return self.inspector().salvage(TARGET)

    def rebuild(self) -> Any:
        return self.inspector().rebuild("indexes")

    def convert(self) -> Any:
        order = Order(
            source=PATH,
            target=TARGET,
            to="rocketmq",
            encode=True,
            options=OPTIONS,
            target_options=StoreOptions(settings=SIZES),
        )
        return convert(order, fs=self.fs, clock=self.live.topic.clock)

    def opened(self) -> Any:
        """Return the store that salvage has made."""
        return open_kafka(
            TARGET, OPTIONS, fs=self.fs.others, clock=self.live.topic.clock, read_only=True
        )


def grow(live: Live) -> None:
    """Append what a compaction may take away at once."""
    live.topic.fill(live.store, random.Random(3), REQUESTS)
    live.remove_too()


def extend(live: Live) -> None:
    """Append: the indexes of the last segment name more than the listed log has."""
    live.topic.fill(live.store, random.Random(3), REQUESTS)


def retain(live: Live) -> None:
    """Remove the oldest segments, as retention does."""
    live.store.alter_topic(AT.topic, {"cleanup.policy": "compact,delete"})
    live.store.delete_records(AT, live.topic.end // 2)
    live.topic.clock.now_ms += 10**9
    live.store.enforce_retention(live.topic.clock.now_ms)


WAYS: dict[str, Callable[[Live], None]] = {
    "clean": Live.clean,
    "remove_too": Live.remove_too,
    "grow": grow,
    "extend": extend,
    "retain": retain,
}


@pytest.fixture(params=WAYS)
def moments(request: Any, amount: Callable[[int, int], int]) -> Callable[..., Any]:
    """Return a function that yields a tool for each moment at which the store changes."""
    every = amount(IN, 1)

    def each(work: Callable[[Tool], Any]) -> Any:
        calm = Tool(Live(), lambda: None, NEVER)
        work(calm)
        total = NEVER - calm.store.left
        assert total > 10
        for nth in range(1 + random.randrange(every), total + 1, every):
            live = Live()
            yield Tool(live, partial(WAYS[request.param], live), nth)

    return each


def latest(records: Any) -> dict[bytes, bytes]:
    """Return the newest value of each key."""
    found: dict[bytes, bytes] = {}
    for record in records:
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def test_salvage_keeps_the_newest_record_of_each_key(moments: Any, request: Any) -> None:
    way = request.node.callspec.params["moments"]
    for tool in moments(Tool.salvage):
        before = dict(tool.live.topic.values)
        report = tool.salvage()
        assert tool.store.left <= 0
        assert list(report.losses) == [], report.losses
        check_findings(report.findings)
        with tool.opened() as store:
            found = latest(store.scan(AT, isolation=Isolation.READ_COMMITTED))
        if way != "retain":
            assert found in (before, tool.live.topic.values)


def test_rebuild_finds_the_indexes_as_they_should_be(moments: Any, request: Any) -> None:
    calm_end = max(name for name in Live().disk.list_dir(FOLDER) if name.endswith(".log"))
    for tool in moments(Tool.rebuild):
        report = tool.rebuild()
        check_findings(report.findings)
        # A server writes the last entry of the last index later, and extends it meanwhile.
        logs = [name for name in tool.live.disk.list_dir(FOLDER) if name.endswith(".log")]
        before = calm_end if request.node.callspec.params["moments"] != "clean" else max(logs)
        last = {Path(name).stem for name in (max(logs), before)}
        assert {Path(path).stem for path in report.changed} <= last


def test_convert_takes_the_newest_record_of_each_key(moments: Any, request: Any) -> None:
    way = request.node.callspec.params["moments"]
    for tool in moments(Tool.convert):
        before = dict(tool.live.topic.values)
        report = tool.convert()
        assert tool.store.left <= 0
        check_findings(report.findings)
        source = RocketMQSource(
            TARGET, StoreOptions(settings=SIZES), fs=tool.fs.others, clock=tool.live.topic.clock
        )
        records = [to_kafka(message) for message in source.messages(AT)]
        source.close()
        if way != "retain":
            assert latest(records) in (before, tool.live.topic.values)


# ---- a store that never stays the same, and a topic that goes -------------------------------------


class Restless(Meanwhile):
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> Any:
        if path.parent == FOLDER and path.suffix == ".log":
            self._act()
        return super().open(path)


@pytest.mark.parametrize("work", [Tool.salvage, Tool.rebuild])
def test_a_partition_that_never_stays_the_same_is_left_out(work: Callable[[Tool], Any]) -> None:
    """It is named once, as a warning, and the command ends."""
    live = Live()
    tool = Tool(live, lambda: None, NEVER)
    tool.fs = Beside(Restless(live.disk, lambda: grow(live), nth=NEVER))
    found = [one for one in work(tool).findings if one.severity != "info"]
    assert [(one.code, one.severity, one.topic) for one in found] == [
        ("changed-meanwhile", "warning", AT.topic)
    ]


@pytest.mark.parametrize("work", [Tool.salvage, Tool.rebuild])
def test_a_topic_that_is_deleted_is_left_out(work: Callable[[Tool], Any]) -> None:
    calm = Tool(Live(), lambda: None, NEVER)
    work(calm)
    for nth in range(1, NEVER - calm.store.left + 1, 7):
        live = Live()
        report = work(Tool(live, partial(live.store.delete_topic, AT.topic), nth))
        found = [one for one in report.findings if one.severity != "info"]
        assert {one.code for one in found} <= {"changed-meanwhile"}, (nth, found)
