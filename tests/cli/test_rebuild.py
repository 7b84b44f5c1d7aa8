"""`logserver rebuild`: indexes rebuilt from the logs alone equal the indexes that the real broker wrote."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from storage import Record, TopicPartition, open_store
from tests.cli.runner import fine, run, settings_options
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id
from tests.golden.trees import picture

SUFFIXES = (".index", ".timeindex", ".txnindex")
TXN = GoldenPartition("txn", "txn-mixed-0")
each_partition = pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)


def across_restarts(partition: GoldenPartition) -> set[str]:
    """Return names of segments during which the broker was restarted: it then counted index intervals from zero."""
    bases = [int(path.stem) for path in partition.log_files]
    return {
        f"{base:020d}"
        for base, limit in pairwise([*bases, 1 << 62])
        if any(base < restart < limit for restart in partition.restarts)
    }


def copy_of(partition: GoldenPartition, tmp_path: Path) -> Path:
    """Copy the partition's store; return the partition's folder in the copy."""
    return stores.copy_store(partition.root, tmp_path / "data") / partition.name


def index_files(folder: Path) -> dict[str, bytes]:
    """Return the index files of a folder with their bytes."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name.endswith(SUFFIXES)}


def delete(path: Path) -> None:
    """Delete the file."""
    path.unlink()


def garble(path: Path) -> None:
    """Replace the content by useless bytes."""
    path.write_bytes(b"\x5a" * 41)


def zero(path: Path) -> None:
    """Replace the content by zeros, as after a crash before any byte of the index reached the disk."""
    path.write_bytes(bytes(4096))


def fine_but_told(*arguments: object) -> dict[str, Any]:
    """Run a command that exits with 0 and may print messages on standard error; return its document."""
    ended = run(*arguments)
    assert ended.code == 0
    document: dict[str, Any] = ended.document
    return document


@pytest.mark.slow
@each_partition
@pytest.mark.parametrize("spoil", [delete, garble, zero])
def test_byte_for_byte(partition: GoldenPartition, spoil: object, tmp_path: Path) -> None:
    """Rebuilt indexes are equal byte for byte. Aborted transactions of a compacted log cannot be rebuilt and stay."""
    assert callable(spoil)
    folder = copy_of(partition, tmp_path)
    expected = index_files(folder)
    for name in expected:
        if not (name.endswith(".txnindex") and partition.store == stores.COMPACTED):
            spoil(folder / name)
    report = fine_but_told("rebuild", folder, "--write", *settings_options(partition.settings))
    made = index_files(folder)
    differing = {name for name in expected if made.get(name) != expected[name]}
    assert made.keys() == expected.keys()
    assert {name[:20] for name in differing} <= across_restarts(partition)
    assert report["written"] is True
    verified = run("verify", folder, *settings_options(partition.settings))
    still_open = ["hanging-transaction"] if partition.store == "txnopen" else []
    assert [row["code"] for row in verified.rows if row["severity"] != "info"] == still_open


def test_healthy_indexes_need_no_change() -> None:
    """Healthy indexes equal the rebuilt ones, except seven files of segments with a restart of the broker."""
    different = 0
    for partition in stores.partitions():
        report = fine("rebuild", partition.data, *settings_options(partition.settings)).document
        names = {Path(path).name[:20] for path in report["changed"]}
        assert names <= across_restarts(partition)
        assert report["written"] is False
        assert report["files"] >= 2 * len(partition.log_files)
        different += len(report["changed"])
    assert different == 7


def test_without_write_nothing_changes(tmp_path: Path) -> None:
    folder = copy_of(TXN, tmp_path)
    path = folder / "00000000000000000021.index"
    garble(path)
    before = picture(tmp_path)
    report = fine("rebuild", folder, *settings_options(TXN.settings))
    assert report.document["changed"] == [str(path)]
    assert picture(tmp_path) == before
    lines = fine("rebuild", folder, "--output", "table", *settings_options(TXN.settings)).out
    assert lines.decode().splitlines() == [
        f"would change: {path}",
        f"1 of {report.document['files']} files would change",
        "to write them, give --write",
    ]


def test_right_indexes_of_another_interval_are_named_as_such(tmp_path: Path) -> None:
    (golden,) = [one for one in stores.partitions() if one.data.name == "seg-index-full-0"]
    folder = copy_of(golden, tmp_path)
    assert run("verify", folder).code == 0
    *_, last = fine("rebuild", folder, "--output", "table").out.decode().splitlines()
    assert "`logserver verify` does not report" in last
    options = settings_options(golden.settings)
    assert fine("rebuild", folder, "--output", "table", *options).out.decode() == (
        "0 of 12 files would change\n"
    )


def test_only_indexes_that_differ_are_written_and_what_was_there_is_kept(tmp_path: Path) -> None:
    folder = copy_of(TXN, tmp_path)
    spoiled = folder / "00000000000000000021.index"
    missing = folder / "00000000000000000112.txnindex"
    surplus = folder / "00000000000000000000.txnindex"
    garble(spoiled)
    missing.unlink()
    surplus.write_bytes(index_files(TXN.data)["00000000000000000021.txnindex"])
    before = picture(folder)
    ended = run("rebuild", folder.parent, "--write", *settings_options(TXN.settings))
    report = ended.document
    assert ended.code == 0
    after = picture(folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {".", spoiled.name, missing.name, surplus.name}
    in_topic = [path for path in report["changed"] if folder.name in path]
    assert sorted(in_topic) == sorted(map(str, (spoiled, missing, surplus)))
    assert index_files(folder) == index_files(TXN.data)
    (kept,) = tmp_path.glob("data.cut-*")
    found = {p.name: p.read_bytes() for p in (kept / folder.name).iterdir()}
    assert found[spoiled.name] == b"\x5a" * 41
    assert found.keys() == {spoiled.name, surplus.name}
    assert [(f["code"], f["path"]) for f in report["findings"]] == [("kept-aside", str(kept))]


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    folder = copy_of(TXN, tmp_path)
    garble(folder / "00000000000000000021.index")
    options = ["--write", *settings_options(TXN.settings)]
    assert len(fine_but_told("rebuild", folder, *options)["changed"]) == 1
    before = picture(tmp_path)
    assert fine("rebuild", folder, *options).document["changed"] == []
    assert picture(tmp_path) == before


def test_logs_are_never_written(tmp_path: Path) -> None:
    """A rebuild keeps a torn tail in the log; the indexes end before the tail."""
    root = stores.copy_store(stores.KAFKA / "torn/cut-mid-batch/data", tmp_path / "data")
    folder = root / "epoch-idem-0"
    logs = {path.name: entry for path in folder.glob("*.log") for entry in [picture(path)["."]]}
    for path in folder.glob("*index"):
        path.unlink()
    ended = run("rebuild", root, "--write")
    assert ended.code == 1
    assert "[torn-tail]" in ended.err
    assert {path.name: picture(path)["."] for path in folder.glob("*.log")} == logs
    last = fine("dump", folder / "00000000000000001113.index").rows[0]["entries"]
    assert all(position < 6804 for _, position in last)


def test_damage_is_passed_over_and_told(tmp_path: Path) -> None:
    root = stores.copy_store(
        stores.KAFKA / "torn/flip-middle-segment-clean/data", tmp_path / "data"
    )
    ended = run("rebuild", root, "--write", "--set", "index.interval.bytes=0")
    assert ended.code == 1
    assert "[damaged-batch]" in ended.err
    wrong = [row["code"] for row in run("verify", root).rows if row["severity"] != "info"]
    assert wrong == ["damaged-batch"]


def test_not_while_a_server_owns_the_store(tmp_path: Path) -> None:
    with open_store("kafka", tmp_path / "data") as store:
        store.create_topic("t", 1)
        store.append(TopicPartition("t", 0), [Record(None, b"v")])
        ended = run("rebuild", tmp_path / "data", "--write")
        assert ended.code == 3
        assert "[store-locked]" in ended.err
        assert run("rebuild", tmp_path / "data").code == 0


def test_a_partition_directory_without_a_store_is_not_written(tmp_path: Path) -> None:
    """A partition folder alone has no lock that a server respects, so it is not written; a report is allowed."""
    folder = stores.copy_store(TXN.data, tmp_path / "alone")
    before = picture(tmp_path)
    ended = run("rebuild", folder, "--write")
    assert ended.code == 2
    assert "nothing to lock" in ended.err
    assert run("rebuild", folder).code == 0
    assert picture(tmp_path) == before


@pytest.mark.parametrize("path", [TXN.log_files[0], TXN.data / "leader-epoch-checkpoint"])
def test_one_file_is_not_rebuilt(path: Path) -> None:
    ended = run("rebuild", path)
    assert ended.code == 2
    assert "needs a store or a partition directory" in ended.err


def test_an_unknown_kind() -> None:
    ended = run("rebuild", TXN.root, "--what", "consumequeue")
    assert ended.code == 2
    assert "only 'indexes' is" in ended.err
