"""`logserver rebuild` on RocketMQ stores: queues and index rebuilt from the log alone equal the real store's files."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from storage import (
    Record,
    StoreOptions,
    SupportsParts,
    TopicPartition,
    open_inspector,
    open_store,
)
from storage.contract import run_serially
from storage.files import RealFileSystem
from storage.rocketmq.state.root import take_lock
from tests.cli.runner import fine, run, settings_options
from tests.contract.harness import ManualClock
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id
from tests.golden.trees import picture

WHOLE = [stores.golden(name) for name in stores.CLEAN if name != "deleted-head"]
KINDS = ("consumequeue", "indexfile")
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
SETTINGS = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "10",
    "maxIndexNum": "50",
}


def rebuild(golden: GoldenStore, root: Path, what: str, *options: object, code: int = 0) -> Any:
    """Run a rebuild and return its report."""
    sizes = settings_options(golden.settings)
    ended = run("rebuild", root, "--what", what, *options, *sizes)
    assert ended.code == code, ended.err
    return ended.document


def derived(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Return the files of the queues by path, and the files of the index in order."""
    folder = root / "consumequeue"
    queues = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return queues, [p.read_bytes() for p in sorted((root / "index").iterdir())]


def beside(root: Path) -> list[str]:
    """Return the names of files next to a store, without times."""
    return sorted(p.name.rsplit("-", 1)[0] for p in root.parent.iterdir() if p.name != root.name)


@pytest.mark.parametrize("golden", WHOLE, ids=by_id)
def test_byte_for_byte(golden: GoldenStore, tmp_path: Path) -> None:
    """Queues and index are rebuilt byte for byte, even if only the log is left."""
    root = stores.copy_store(golden, tmp_path / "store")
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    (root / "checkpoint").unlink()
    for what in KINDS:
        report = rebuild(golden, root, what, "--write")
        assert report["written"] is True
        assert len(report["changed"]) == report["files"] > 0
    assert derived(root) == derived(golden.root)
    assert beside(root) == []
    options = settings_options(golden.settings)
    assert fine("dump", root, *options).rows == fine("dump", golden.root, *options).rows
    assert fine("verify", root, *options).rows == []


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("golden", WHOLE, ids=by_id)
def test_nothing_would_change(golden: GoldenStore, what: str) -> None:
    before = picture(golden.folder)
    report = rebuild(golden, golden.root, what)
    assert (report["what"], report["written"]) == (what, False)
    assert report["files"] > 0
    assert report["changed"] == []
    assert picture(golden.folder) == before


def spoiled(tmp_path: Path) -> tuple[GoldenStore, Path, list[Path]]:
    """Create a store with a damaged queue file and a damaged index file."""
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    queue = root / "consumequeue/order_s1/0" / f"{0:020}"
    index = sorted((root / "index").iterdir())[1]
    for path in (queue, index):
        path.write_bytes(b"\x5a" * 60 + path.read_bytes()[60:])
    return golden, root, [queue, index]


@pytest.mark.parametrize("what", KINDS)
def test_without_write_it_is_only_told(what: str, tmp_path: Path) -> None:
    golden, root, damaged = spoiled(tmp_path)
    before = picture(tmp_path)
    report = rebuild(golden, root, what)
    assert report["changed"] == [str(damaged[KINDS.index(what)])]
    assert picture(tmp_path) == before
    table = run(
        *("rebuild", root, "--what", what, "--output", "table"), *settings_options(golden.settings)
    )
    assert table.out.decode().splitlines()[-1] == "to write them, give --write"


def test_without_a_kind_it_is_all_that_is_derived(tmp_path: Path) -> None:
    golden, root, damaged = spoiled(tmp_path)
    options = settings_options(golden.settings)
    reported = run("rebuild", root, *options).document
    assert (reported["what"], reported["written"]) == ("consumequeue,indexfile", False)
    assert reported["changed"] == [str(path) for path in damaged]
    done = run("rebuild", root, "--write", *options)
    assert done.code == 0
    assert [finding["code"] for finding in done.document["findings"]] == ["kept-aside"] * 2
    assert derived(root) == derived(golden.root)


def test_what_was_there_is_kept_aside(tmp_path: Path) -> None:
    golden, root, damaged = spoiled(tmp_path)
    before = [path.read_bytes() for path in damaged]
    kept = []
    for what in KINDS:
        report = rebuild(golden, root, what, "--write")
        (finding,) = report["findings"]
        assert (finding["code"], finding["severity"]) == ("kept-aside", "info")
        kept.append(Path(finding["path"]))
    assert derived(root) == derived(golden.root)
    assert [
        (folder / path.relative_to(root)).read_bytes()
        for folder, path in zip(kept, damaged, strict=True)
    ] == before
    assert beside(root) == ["store.cut", "store.cut"]
    assert fine("verify", root, *settings_options(golden.settings)).rows == []


def test_the_checkpoint_follows(tmp_path: Path) -> None:
    golden, root, _ = spoiled(tmp_path)
    (root / "checkpoint").unlink()
    for what in KINDS:
        rebuild(golden, root, what, "--write")
    (row,) = fine("dump", root / "checkpoint").rows
    (entry,) = row["entries"]
    last = max(golden.expected(), key=lambda row: int(row["physicalOffset"]))
    assert entry["logicsPhysicalOffset"] == last["physicalOffset"]
    assert entry["logicsMsgTimestamp"] == last["storeTimestamp"]
    assert entry["indexMsgTimestamp"] == golden.index_dump[-1]["endTimestamp"]


def test_a_log_without_its_head(tmp_path: Path) -> None:
    """A queue's first file begins with fillers, as the real store writes it; readers see the same records."""
    golden = stores.golden("deleted-head")
    root = stores.copy_store(golden, tmp_path / "store")
    before = fine("dump", root, *settings_options(golden.settings)).rows
    for what in KINDS:
        rebuild(golden, root, what, "--write")
    options = settings_options(golden.settings)
    assert fine("dump", root, *options).rows == before
    for address, (start, end) in golden.queues.items():
        bounds = fine("offsets", root, "--topic", address[0], "--partition", address[1], *options)
        assert bounds.document["earliest"] == start
        assert bounds.document["latest"] == end
        first = min((root / "consumequeue" / address[0] / str(address[1])).iterdir())
        fillers = start - int(first.name) // 20
        assert first.read_bytes()[: 20 * (fillers + 1)].startswith(FILLER * fillers)
        assert first.read_bytes()[20 * fillers :][:20] != FILLER
    assert fine("verify", root, *options).rows == []


def test_a_queue_without_records_keeps_its_place(tmp_path: Path) -> None:
    """A queue with all records deleted keeps its next offset, which only its files contain."""
    root = tmp_path / "store"
    quiet, busy = TopicPartition("t", 0), TopicPartition("t", 1)
    options = StoreOptions(settings=SETTINGS)
    with open_store("rocketmq", root, options, clock=ManualClock()) as store:
        store.create_topic("t", 2)
        store.append(quiet, [Record(b"k", b"v")] * 3)
        for _ in range(8):
            store.append(busy, [Record(b"k", b"v" * 1500)])
    (root / "commitlog" / f"{0:020}").unlink()
    (root / "consumequeue/t/1" / f"{0:020}").write_bytes(b"\x5a" * 200)
    sizes = settings_options(SETTINGS)
    assert run("rebuild", root, "--what", "consumequeue", "--write", *sizes).code == 0
    with open_store("rocketmq", root, options, clock=ManualClock()) as store:
        assert store.bounds(quiet) == (3, 3, 3)
        assert store.append(quiet, [Record(b"k", b"v")]).base_offset == 3
        assert store.bounds(busy).end == 8


def one_queue_off(golden: GoldenStore, tmp_path: Path) -> tuple[Path, Path]:
    """Copy a store; return it and the path of a file for a queue without records in the log."""
    root = stores.copy_store(golden, tmp_path / "store")
    folder = root / "consumequeue/zz/0"
    folder.mkdir(parents=True)
    return root, folder / f"{0:020}"


def test_a_queue_that_only_seems_to_be_one_goes(tmp_path: Path) -> None:
    """A queue that only seems to exist is removed, as by a start.

    No record of the log is in the queue, and no entry of it can refer to a deleted record.
    """
    golden = stores.golden("small")
    options = settings_options(golden.settings)
    root, path = one_queue_off(golden, tmp_path)
    units = b"\xff" * 20 + struct.pack(">qiq", 1 << 40, 100, 0)
    path.write_bytes(units.ljust(int(golden.settings["mappedFileSizeConsumeQueue"]), b"\0"))
    codes = {row["code"] for row in run("verify", root, *options).rows}
    assert codes == {"bad-unit", "unit-beyond-log"}
    before = picture(root)
    assert rebuild(golden, root, "consumequeue")["changed"] == [str(path)]
    assert picture(root) == before
    report = rebuild(golden, root, "consumequeue", "--write")
    assert report["changed"] == [str(path)]
    assert not path.exists()
    assert (Path(report["findings"][0]["path"]) / "consumequeue/zz/0" / path.name).exists()
    assert fine("verify", root, *options).rows == []


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_a_queue_keeps_what_may_lead_to_deleted_records(shared: bool, tmp_path: Path) -> None:
    """The next offset follows the last entry that may refer to a deleted record; impossible entries become fillers."""
    golden = stores.golden("deleted-head")
    options = settings_options(golden.settings)
    root, path = one_queue_off(golden, tmp_path)
    deleted = [struct.pack(">qiq", 100 * n, 100, 0) for n in range(5)]
    bad = struct.pack(">qiq", -1, 100, 0)
    elsewhere = next(iter(golden.expected()))["physicalOffset"]
    other = struct.pack(">qiq", elsewhere, 100, 0)
    units = [*deleted[:2], bad, deleted[3], deleted[4], other, bad]
    length = int(golden.settings["mappedFileSizeConsumeQueue"])
    path.write_bytes(b"".join(units).ljust(length, b"\0"))
    if shared:
        rebuild_in_parts(golden, root)
    else:
        assert str(path) in rebuild(golden, root, "consumequeue", "--write")["changed"]
    made = [*deleted[:2], FILLER, *deleted[3:]]
    assert path.read_bytes() == b"".join(made).ljust(length, b"\0")
    assert {row["code"] for row in fine("verify", root, *options).rows} == {"entries-before-log"}


def rebuild_in_parts(golden: GoldenStore, root: Path) -> None:
    inspector = open_inspector(root, StoreOptions(settings=golden.settings))
    assert isinstance(inspector, SupportsParts)
    inspector.rebuild_in_parts("consumequeue", run_serially, write=True)
    inspector.close()


def test_without_a_log_the_queues_stay(tmp_path: Path) -> None:
    """Without a log no queue is changed: the log's disk may be missing, and a start refuses to cut the queues."""
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    shutil.rmtree(root / "commitlog")
    before = derived(root)
    assert rebuild(golden, root, "consumequeue", "--write")["changed"] == []
    assert derived(root) == before


def test_damage_of_the_log_is_told_and_passed_over(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    row = [r for r in golden.expected() if r["topic"] == "order_s1" and r["queueId"] == 0][5]
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(row["physicalOffset"] + 90)
        file.write(b"\xff")
    shutil.rmtree(root / "consumequeue")
    report = rebuild(golden, root, "consumequeue", "--write", code=1)
    found = [finding["code"] for finding in report["findings"]]
    assert found == ["damaged-record", "unit-offset-differs"]
    made, real = derived(root)[0], derived(golden.root)[0]
    assert made.keys() == real.keys()
    changed = {path for path in real if made[path] != real[path]}
    assert {path.rpartition("/")[0] for path in changed} == {"order_s1/0"}
    made_queue, real_queue = (queue_bytes(files, "order_s1/0") for files in (made, real))
    assert made_queue == real_queue[:100] + real_queue[120:] + bytes(20)


def queue_bytes(files: dict[str, bytes], queue: str) -> bytes:
    """Return the entries of a queue, file after file."""
    return b"".join(files[path] for path in sorted(files) if path.startswith(queue + "/"))


def test_an_offset_that_cannot_be(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    row = [r for r in golden.expected() if r["topic"] == "order_s1" and r["queueId"] == 0][5]
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(row["physicalOffset"] + 20)
        file.write(struct.pack(">q", 1 << 40))
    report = rebuild(golden, root, "consumequeue", code=1)
    finding, moved = report["findings"]
    assert finding["code"] == "impossible-queue-offset"
    assert finding["position"] == row["physicalOffset"]
    assert (moved["code"], moved["offset"]) == ("unit-offset-differs", 6)


@pytest.mark.parametrize("what", KINDS)
def test_not_beside_a_server(what: str, tmp_path: Path) -> None:
    golden, root, _ = spoiled(tmp_path)
    lock = take_lock(RealFileSystem(), root)
    before = picture(tmp_path)
    sizes = settings_options(golden.settings)
    ended = run("rebuild", root, "--what", what, "--write", *sizes)
    assert ended.code == 3
    assert "[store-locked]" in ended.err
    assert picture(tmp_path) == before
    lock.release()


def test_refusals() -> None:
    golden = stores.golden("small")
    sizes = settings_options(golden.settings)
    queue = golden.root / "consumequeue/order_s1/0"
    for path, what, word in (
        (golden.root, "indexes", "consumequeue, indexfile"),
        (queue, "consumequeue", "whole store"),
        (golden.root / "checkpoint", "consumequeue", "needs a store"),
    ):
        ended = run("rebuild", path, "--what", what, *sizes)
        assert ended.code == 2
        assert word in ended.err


def test_an_extended_queue_is_not_made_anew(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    (root / "consumequeue_ext").mkdir()
    ended = run("rebuild", root, "--what", "consumequeue", *settings_options(golden.settings))
    assert ended.code == 2
    assert "consumequeue_ext" in ended.err


def test_progress_is_told(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = {**SETTINGS, "mappedFileSizeCommitLog": str(8 << 20)}
    with open_store("rocketmq", root, StoreOptions(settings=settings)) as store:
        store.create_topic("t", 1)
        for _ in range(12):
            store.append(TopicPartition("t", 0), [Record(None, bytes(3 << 20))])
    reported: list[tuple[str, int, int]] = []
    inspector = open_inspector(root, StoreOptions(settings=settings))
    inspector.rebuild("consumequeue", progress=lambda *step: reported.append(step))
    list(inspector.verify(lambda *step: reported.append(step)))
    inspector.close()
    assert {what for what, _, _ in reported} == {"rebuilding consumequeue", "verifying"}
    assert all(0 < done <= total for _, done, total in reported)
