"""Broker data that is not read (compacted topics, timers, DLedger logs): it is reported, never left out silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage import Finding, StoreOptions, convert_store, open_inspector, open_splitter
from storage.errors import UnsupportedFormat
from tests.unit.rocketmq.workshop import ROOT, SMALL, Workshop, put_file, put_value

NEW = ROOT.parent / "new"
OPTIONS = StoreOptions(settings=SMALL)


@pytest.fixture
def shop() -> Workshop:
    shop = Workshop()
    with shop.open_with_topic() as store:
        for number in range(9):
            put_value(store, b"v%d" % number)
    return shop


def put(shop: Workshop, name: str, data: bytes) -> None:
    path = ROOT / name
    missing: list[Path] = []
    folder = path.parent
    while not shop.fs.exists(folder):
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        shop.fs.make_dir(folder)
    put_file(shop.fs, path, data)


def verified(shop: Workshop) -> dict[str, Finding]:
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    try:
        return {f.code: f for f in inspector.verify()}
    finally:
        inspector.close()


def salvaged(shop: Workshop) -> dict[str, Finding]:
    """Return the findings of a salvage about data that it leaves out, by the name of the file or folder."""
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    try:
        found = inspector.salvage(NEW).findings
    finally:
        inspector.close()
    return {Path(f.path).name: f for f in found if f.code == "left-behind"}


@pytest.mark.parametrize(("topic", "queue"), [("t", 0), ("kv", 3), ("%RETRY%g", 1)])
def test_compacted_records_are_named_with_topic_queue_and_size(
    shop: Workshop, topic: str, queue: int
) -> None:
    put(shop, f"compaction/compactionLog/{topic}/{queue}/00000000000000000000", b"x" * 300)
    put(shop, "compaction/position-checkpoint", b"{}")
    found = verified(shop)["compaction-log"]
    assert (found.topic, found.partition, found.severity) == (topic, queue, "warning")
    assert "300 bytes" in found.message
    report = convert_store(ROOT, NEW, to="kafka", options=OPTIONS, fs=shop.fs, clock=shop.clock)
    assert "compaction-log" in {f.code for f in report.findings}
    shop.fs.remove_tree(NEW)
    assert "compaction-mismatch" in {f.code for f in report.findings}, "it has no entries"
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    codes = [found.code for found in inspector.salvage(NEW).findings]
    inspector.close()
    assert "compaction-mismatch" in codes
    assert not shop.fs.exists(NEW / "compaction" / "compactionLog")


def test_an_empty_folder_of_compaction_is_nothing(shop: Workshop) -> None:
    """Every broker of version 5.x creates this folder."""
    put(shop, "compaction/position-checkpoint", b"{}")
    assert "compaction-log" not in verified(shop)
    assert "compaction" not in salvaged(shop)
    assert shop.fs.read_bytes(NEW / "compaction" / "position-checkpoint") == b"{}"


@pytest.mark.parametrize(
    "present", [("timerlog",), ("timerlog", "timerwheel"), ("timerwheel",), ()]
)
def test_timer_files_are_left_behind_together(shop: Workshop, present: tuple[str, ...]) -> None:
    """With timercheck alone the broker takes its timer wheel as complete, and never delivers the waiting messages."""
    for name in present:
        put(shop, f"{name}/00000000000000000000" if name == "timerlog" else name, b"t" * 50)
    for name in ("timercheck", "timercheck.bak", "timermetrics"):
        put(shop, f"config/{name}", b"c" * 20)
    left = salvaged(shop)
    assert {*present, "timercheck", "timercheck.bak", "timermetrics"} == {*left}
    for name in ("timerlog", "timerwheel", "config/timercheck", "config/timercheck.bak"):
        assert not shop.fs.exists(NEW / name)
    assert all("bytes" in found.message for found in left.values())


@pytest.mark.parametrize(
    "name",
    [
        "batchconsumequeue/b/0/00000000000000000000",
        "consumequeue_ext/t/0/0",
        "rocksdbstore/CURRENT",
    ],
)
def test_other_live_data_is_left_behind_with_its_size(shop: Workshop, name: str) -> None:
    put(shop, name, b"q" * 46)
    found = salvaged(shop)[name.split("/")[0]]
    assert (found.severity, "46 bytes in 1 file" in found.message) == ("warning", True)


def plain(shop: Workshop) -> None:
    """Remove the commit log, as in a broker that always used DLedger."""
    shop.fs.remove_tree(ROOT / "commitlog")


def without_queues(shop: Workshop) -> None:
    plain(shop)
    shop.fs.remove_tree(ROOT / "consumequeue")


def log_alone(shop: Workshop) -> None:
    for name in ("commitlog", "consumequeue", "index", "config"):
        shop.fs.remove_tree(ROOT / name)
    for name in ("checkpoint", ".logserver.store.json"):
        shop.fs.remove(ROOT / name)


def beside_an_old_log(shop: Workshop) -> None:
    """Change nothing: a broker that was switched to DLedger keeps its first files in commitlog."""


@pytest.mark.parametrize("change", [plain, without_queues, log_alone, beside_an_old_log])
def test_a_log_of_dledger_is_refused_by_name(
    shop: Workshop, change: Callable[[Workshop], None]
) -> None:
    put(shop, "dledger-n0/data/00000000000000000000", bytes(1024))
    change(shop)
    before = shop.files()
    found = verified(shop)["dledger-store"]
    assert (found.severity, "1024 bytes" in found.message) == ("error", True)
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    assert "dledger-store" in str(inspector.summary()["findings"])
    inspector.close()
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    for refused in (
        lambda: inspector.salvage(NEW),
        lambda: inspector.rebuild("consumequeue"),
        lambda: list(inspector.dump("records")),
        lambda: shop.open(),
        lambda: shop.open(accept_loss=True),
        lambda: shop.open(read_only=True),
        lambda: convert_store(ROOT, NEW, to="kafka", options=OPTIONS, fs=shop.fs),
        lambda: open_splitter(ROOT, OPTIONS, fs=shop.fs),
    ):
        with pytest.raises(UnsupportedFormat, match="DLedger"):
            refused()
    assert shop.files() == before
    assert not shop.fs.exists(NEW)


def test_a_folder_of_that_name_without_a_log_is_none(shop: Workshop) -> None:
    put(shop, "dledger-notes/readme.txt", b"x")
    assert "dledger-store" not in verified(shop)
    shop.open().close()
