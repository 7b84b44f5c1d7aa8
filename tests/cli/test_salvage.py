"""`logserver salvage`: its output, its exit codes, and that an incomplete store is never taken for a complete one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from storage import Record, StoreOptions, TopicPartition, detect, open_inspector, open_store
from storage.errors import DiskFull
from storage.files import RealFileSystem
from storage.kafka.tools.view import View
from tests.cli.runner import fine, run, settings_options
from tests.damage.test_kafka_damage import root_of
from tests.golden import rocketmq_stores, stores
from tests.golden.trees import picture
from tests.robustness.crash.faulty import FaultyFileSystem, Killed, at_change, fails, killed

DAMAGED = root_of("flip-active")
WHOLE = stores.KAFKA / "txn/data"
SMALL = rocketmq_stores.golden("small")
SIZES = settings_options(SMALL.settings)


def test_what_was_left_behind_is_told(tmp_path: Path) -> None:
    target = tmp_path / "new"
    ended = run("salvage", DAMAGED, "--to", target, "--output", "table")
    assert ended.code == 1
    path = DAMAGED / "epoch-idem-0" / f"{1113:020}.log"
    assert ended.out.decode().splitlines() == [
        f"lost: {path} at 3384: 578 bytes, epoch-idem-0 offsets 1155 to 1162 [crc]",
        "epoch-idem-0: kept offsets 0 to 1202, 1195 records, 94188 bytes; lost offsets 1155 to 1162",
        f"kept: 1195 records in 1 partition, 94188 bytes, in {target}",
        "lost: 578 bytes with 8 offsets in 1 place (1 crc)",
    ]


def test_a_lost_end_is_no_part_of_the_kept_offsets(tmp_path: Path) -> None:
    root = stores.copy_store(stores.KAFKA / "segments/data", tmp_path / "data")
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nseg-small 0 99999\n")
    ended = run("salvage", root, "--to", tmp_path / "new", "--output", "table")
    assert ended.code == 1
    (line,) = [one for one in ended.out.decode().splitlines() if one.startswith("seg-small-0: ")]
    assert line.startswith("seg-small-0: kept offsets 0 to 1018, 1019 records, ")
    assert line.endswith("; lost offsets 1019 to 99998")


@pytest.mark.parametrize("option", [["--json"], ["--output", "json"], ["--output", "ndjson"], []])
def test_the_report_as_json_is_the_one_in_the_new_store(option: list[str], tmp_path: Path) -> None:
    ended = run("salvage", DAMAGED, "--to", tmp_path / "new", *option)
    assert ended.code == 1
    assert ended.document == json.loads((tmp_path / "new/.logserver.salvage.json").read_bytes())
    (loss,) = ended.document["losses"]
    assert (loss["first_offset"], loss["next_offset"], loss["size_bytes"]) == (1155, 1163, 578)
    assert ended.document["lost_bytes"] == 578


@pytest.mark.parametrize(
    ("root", "options"), [(WHOLE, []), (SMALL.root, SIZES)], ids=["kafka", "rocketmq"]
)
def test_a_whole_store(root: Path, options: list[str], tmp_path: Path) -> None:
    target = tmp_path / "new"
    ended = fine("salvage", root, "--to", target, "--output", "table", *options)
    assert ended.out.decode().splitlines()[-1] == "lost: nothing"
    assert fine("verify", target, *options).rows == []
    ours, theirs = fine("dump", target, *options).rows, fine("dump", root, *options).rows
    assert ours == theirs


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_an_empty_store(backend: str, tmp_path: Path) -> None:
    open_store(backend, tmp_path / "old").close()
    ended = fine("salvage", tmp_path / "old", "--to", tmp_path / "new", "--output", "table")
    assert ended.out.decode().splitlines()[-1] == "lost: nothing"
    with open_store(backend, tmp_path / "new") as store:
        assert store.topics() == {}


def test_ids_that_move_are_told(tmp_path: Path) -> None:
    recipe = rocketmq_stores.recipe("small", "flip-body-first-in-last-file")
    root = rocketmq_stores.copy_store(SMALL, tmp_path / "store")
    recipe.apply(RealFileSystem(), root)
    ended = run("salvage", root, "--to", tmp_path / "new", "--output", "table", *SIZES)
    assert ended.code == 1
    assert f"message ids, are {SMALL.file_bytes} larger than before" in ended.out.decode()


def test_no_message_names_the_folder_of_the_unfinished_store(tmp_path: Path) -> None:
    golden = rocketmq_stores.golden("broker")
    root = rocketmq_stores.copy_store(golden, tmp_path / "store")
    sorted((root / "commitlog").iterdir())[1].unlink()
    new = tmp_path / "new"
    report = run("salvage", root, "--to", new, *settings_options(golden.settings)).document
    early = [found for found in report["findings"] if found["code"] == "queue-ends-early"]
    assert early
    assert all(f"{new}/config/" in found["message"] for found in early)
    assert ".unfinished-" not in json.dumps(report)


def test_the_report_of_a_start_has_the_same_shape(tmp_path: Path) -> None:
    root = stores.copy_store(DAMAGED, tmp_path / "store")
    with open_store("kafka", root, StoreOptions(accept_loss=True)) as store:
        assert store.recovery.losses
    (kept,) = tmp_path.glob("store.cut-*")
    cut = json.loads((kept / "report.json").read_bytes())
    report = run("salvage", DAMAGED, "--to", tmp_path / "new").document
    assert cut.keys() == report.keys()
    assert cut["losses"][0].keys() == report["losses"][0].keys()
    assert cut["lost_bytes"] == sum(loss["size_bytes"] for loss in cut["losses"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_beside_a_server(backend: str, tmp_path: Path) -> None:
    address = TopicPartition("t", 0)
    with open_store(backend, tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.append(address, [Record(b"k", b"v")] * 7)
        store.checkpoint()  # write the files that are built after appends
        before = picture(tmp_path / "store")
        ended = run("salvage", tmp_path / "store", "--to", tmp_path / "new")
        assert ended.code == 0, ended.err
        assert picture(tmp_path / "store") == before
        store.append(address, [Record(b"k", b"v")])
    with open_store(backend, tmp_path / "new") as copy:
        assert len(list(copy.scan(address))) == 7
        assert copy.append(address, [Record(b"k", b"v")]).base_offset == 7


# ---- wrong use -----------------------------------------------------------------------------------


def refused(code: int, *arguments: object) -> str:
    ended = run("salvage", *arguments)
    assert (ended.code, ended.out) == (code, b"")
    return ended.err


def test_no_store(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("no store")
    assert "[unsupported-format]" in refused(2, tmp_path / "other", "--to", tmp_path / "new")
    assert "does not exist" in refused(3, tmp_path / "missing", "--to", tmp_path / "new")
    assert "--to" in refused(2, WHOLE)
    assert not (tmp_path / "new").exists()


def test_files_that_hold_no_records(tmp_path: Path) -> None:
    for path in (WHOLE / "recovery-point-offset-checkpoint", SMALL.root / "checkpoint"):
        assert "needs records" in refused(2, path, "--to", tmp_path / "new")
    queue = SMALL.root / "consumequeue/order_s1/0"
    assert "whole store" in refused(2, queue, "--to", tmp_path / "new", *SIZES)
    assert not (tmp_path / "new").exists()


def test_a_target_that_is_taken(tmp_path: Path) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    before = picture(tmp_path)
    assert f"{full} is not empty, it holds mine.txt" in refused(2, DAMAGED, "--to", full)
    assert f"{file} is a file" in refused(2, DAMAGED, "--to", file)
    assert picture(tmp_path) == before


def test_an_empty_target_is_taken(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert run("salvage", WHOLE, "--to", tmp_path / "new").code == 0
    assert detect(tmp_path / "new") == ("kafka", True)


@pytest.mark.parametrize("inside", ["new", "deeper/new", "epoch-idem-0/new", "."])
def test_a_target_inside_the_source(inside: str, tmp_path: Path) -> None:
    root = stores.copy_store(DAMAGED, tmp_path / "store")
    before = picture(tmp_path)
    for path in (root, root / "epoch-idem-0", root / "epoch-idem-0" / f"{0:020}.log"):
        assert "is inside" in refused(2, path, "--to", root / inside)
    link = tmp_path / "link"
    link.symlink_to(root)
    assert "is inside" in refused(2, root, "--to", link / inside)
    link.unlink()
    left = {name: entry for name, entry in picture(tmp_path).items() if name != "."}
    assert left == {name: entry for name, entry in before.items() if name != "."}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "[io-failure]" in refused(3, WHOLE, "--to", tmp_path / "locked" / "new")


def test_a_place_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "[io-failure]" in refused(3, WHOLE, "--to", tmp_path / "file" / "new")


# ---- a disk that fails halfway ------------------------------------------------------------------


def test_a_partition_that_changes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out, so the exit code is 1."""
    chosen = next(iter(View(WHOLE, StoreOptions(), fs=RealFileSystem(), clock=lambda: 0).folders))
    monkeypatch.setattr(View, "is_changed", lambda _, address: address == chosen)
    target = tmp_path / "new"
    ended = run("salvage", WHOLE, "--to", target)
    found = [row for row in ended.document["findings"] if row["severity"] != "info"]
    assert [(row["code"], row["topic"], row["partition"]) for row in found] == [
        ("changed-meanwhile", *chosen)
    ]
    assert (ended.code, ended.document["losses"]) == (1, [])
    assert not (target / str(chosen)).exists()
    assert run("verify", target).rows == []


@pytest.mark.parametrize("root", [DAMAGED, SMALL.root], ids=["kafka", "rocketmq"])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_on_a_full_disk_nothing_is_left(root: Path, share: float, tmp_path: Path) -> None:
    fs = FaultyFileSystem(RealFileSystem())
    options = StoreOptions(settings=SMALL.settings if root == SMALL.root else {})
    changes = _changes(root, options, tmp_path / "whole")
    full = fails(errno.ENOSPC, "write")
    fs.fault = lambda done, path: full(done, path) if fs.changes > changes * share else None
    inspector = open_inspector(root, options, fs=fs)
    with pytest.raises(DiskFull):
        inspector.salvage(tmp_path / "new")
    inspector.close()
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert fs.open_files == set()


def _changes(root: Path, options: StoreOptions, target: Path) -> int:
    """Return the number of disk changes of a salvage."""
    fs = FaultyFileSystem(RealFileSystem())
    inspector = open_inspector(root, options, fs=fs)
    inspector.salvage(target)
    inspector.close()
    return fs.changes


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_a_kill_leaves_a_folder_whose_name_tells_it(share: float, tmp_path: Path) -> None:
    """The target exists only after the salvage is complete."""
    changes = _changes(DAMAGED, StoreOptions(), tmp_path / "whole")
    fs = FaultyFileSystem(RealFileSystem())
    fs.fault = at_change(fs, int(changes * share), killed)
    inspector = open_inspector(DAMAGED, StoreOptions(), fs=fs)
    with pytest.raises(Killed):
        inspector.salvage(tmp_path / "new")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[-1] == "whole"
    assert len(left) == 2
    assert left[0].startswith("new.unfinished-")
