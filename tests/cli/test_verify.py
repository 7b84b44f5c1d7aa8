"""`logserver verify`: no finding for healthy stores of the real Kafka, and a code for every kind of damage."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.coding.checksum import crc32c
from storage.kafka.format.batch import HEADER_SIZE, decode_header
from tests.cli.rocketmq.test_rocketmq_verify import DAMAGES as ROCKETMQ
from tests.cli.runner import fine, run, settings_options
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id
from tests.test_project import table
from tests.unit.kafka.log.old_messages import old_log

TXN = GoldenPartition("txn", "txn-mixed-0")
SEGMENTS = GoldenPartition("segments", "seg-small-0")
IDEM = GoldenPartition("epochs", "epoch-idem-0")
COMPACTED = GoldenPartition("compacted", "compact-none-0")
PARTS = GoldenPartition("parts", "keyed-0")


OPEN = "txnopen"  # a store with a transaction that its producer never ended


@pytest.mark.parametrize("store", stores.healthy_stores())
def test_healthy_stores(store: str) -> None:
    """A healthy store has no finding worse than info, except a hanging transaction.

    Compaction leaves deleted files until the broker's next start: an information, not a fault.
    """
    reported = {"compacted": {"leftover-file"}, OPEN: {"hanging-transaction"}}
    rows = run("verify", stores.KAFKA / store / "data").rows
    assert {row["code"] for row in rows} == reported.get(store, set())
    assert {row["severity"] for row in rows} <= ({"warning"} if store == OPEN else {"info"})


@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
def test_healthy_partitions(partition: GoldenPartition) -> None:
    """With the topic's own index interval the indexes are compared with rebuilt indexes too."""
    rows = run("verify", partition.data, *settings_options(partition.settings)).rows
    codes = {row["code"] for row in rows}
    known = {
        "epochs": {"index-differs"},  # written across restarts: different, but correct
        "compacted": {"leftover-file"},
        OPEN: {"hanging-transaction"},
    }
    assert codes <= known.get(partition.store, set())
    assert {row["severity"] for row in rows} <= (
        {"warning"} if partition.store == OPEN else {"info"}
    )


@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
def test_healthy_files(partition: GoldenPartition) -> None:
    for path in partition.data.iterdir():
        if not path.name.endswith(".deleted"):
            assert fine("verify", path).rows == []


# ---- damage ---------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """A damage to a copy of a partition's store, and the code, severity and position of its finding."""

    code: str
    severity: str
    where: GoldenPartition
    inflict: Callable[[Path, Path], Path]
    position: int | None = None


def file_of(folder: Path, suffix: str, number: int = 1) -> Path:
    """Return the second (or `number`-th) file of a kind."""
    return sorted(folder.glob(f"*{suffix}"))[number]


def rewrite(path: Path, at: int, data: bytes) -> Path:
    """Overwrite bytes of a file."""
    old = path.read_bytes()
    path.write_bytes(old[:at] + data + old[at + len(data) :])
    return path


def flip(path: Path, at: int) -> Path:
    """Flip a bit."""
    return rewrite(path, at, bytes([path.read_bytes()[at] ^ 1]))


def gone(path: Path) -> Path:
    """Remove a file."""
    path.unlink()
    return path


def folder_made(path: Path) -> Path:
    path.mkdir()
    return path


def written(path: Path, text: str) -> Path:
    """Write a text file."""
    path.write_text(text)
    return path


def nonsense_with_a_good_crc(path: Path) -> Path:
    """Make the first batch's records invalid, with a correct CRC."""
    data = bytearray(path.read_bytes())
    header = decode_header(bytes(data))
    data[HEADER_SIZE] ^= 0x40  # the first record's length
    crc = crc32c(bytes(data[21 : header.size_bytes]))
    struct.pack_into(">I", data, 17, crc)
    path.write_bytes(data)
    return path


def of_old_messages(folder: Path) -> Path:
    """Replace the second log by messages in the format of an old broker."""
    path = file_of(folder, ".log")
    path.write_bytes(old_log(3, first=int(path.stem)))
    return path


def without_first_segment(folder: Path) -> Path:
    first, second = sorted(folder.glob("*.log"))[:2]
    for path in folder.glob(f"{first.stem}.*"):
        path.unlink()
    return second


def without_logs(folder: Path) -> Path:
    for path in folder.glob("*.log"):
        path.unlink()
    return folder


def without_folder(folder: Path) -> Path:
    shutil.rmtree(folder)
    return folder


def without_middle_segment(folder: Path) -> Path:
    """Remove all files of the third segment; return the fourth log, the place of the finding."""
    logs = sorted(folder.glob("*.log"))
    for path in folder.glob(f"{logs[2].stem}.*"):
        path.unlink()
    return logs[3]


def without_snapshots(folder: Path) -> Path:
    """Remove all snapshots; return the first of them, the place of the finding."""
    paths = sorted(folder.glob("*.snapshot"))
    for path in paths:
        path.unlink()
    return paths[0]


def emptied(path: Path) -> Path:
    """Make a file empty."""
    path.write_bytes(b"")
    return path


def appended(path: Path, data: bytes) -> Path:
    """Append bytes to a file."""
    path.write_bytes(path.read_bytes() + data)
    return path


def batch_position(where: GoldenPartition, log: int, batch: int) -> int:
    """Return the position of a batch in its log."""
    batches = where.json("batches.json")[where.log_files[log].name]
    return int(batches[batch]["position"])


def renumbered(path: Path) -> Path:
    """Write another topic id to a partition.metadata."""
    return rewrite(path, len("version: 0\ntopic_id: "), b"B" * 21)


def checkpoint(root: Path, name: str, offset: int) -> Path:
    """Write a checkpoint at the root with this offset for epoch-idem-0."""
    lines = f"0\n2\nepoch-idem 0 {offset}\nepoch-sparse 0 0\n"
    return written(root / name, lines)


def start_above_recovery_point(root: Path, point: int, start: int) -> Path:
    """Write a log start that no deletion of records sets: a broker raises the recovery point with it."""
    checkpoint(root, "recovery-point-offset-checkpoint", point)
    return checkpoint(root, "log-start-offset-checkpoint", start)


DAMAGES = {
    "a bit of a batch": Damage(
        "damaged-batch",
        "error",
        SEGMENTS,
        lambda _, folder: flip(file_of(folder, ".log"), 100),
        position=0,
    ),
    "a torn tail": Damage(
        "torn-tail",
        "warning",
        PARTS,
        lambda _, folder: appended(file_of(folder, ".log", -1), b"\7" * 9),
        position=PARTS.log_files[-1].stat().st_size,
    ),
    "zeros": Damage(
        "zero-tail",
        "warning",
        PARTS,
        lambda _, folder: appended(file_of(folder, ".log", -1), bytes(600)),
        position=PARTS.log_files[-1].stat().st_size,
    ),
    "messages of format v1": Damage(
        "old-message-format", "error", SEGMENTS, lambda _, folder: of_old_messages(folder), 0
    ),
    "records that are none": Damage(
        "undecodable-batch",
        "error",
        SEGMENTS,
        lambda _, folder: nonsense_with_a_good_crc(file_of(folder, ".log")),
        position=0,
    ),
    "a missing segment": Damage(
        "offset-gap",
        "error",
        SEGMENTS,
        lambda _, folder: without_middle_segment(folder),
        position=0,
    ),
    "another leader epoch": Damage(
        "leader-epoch-mismatch",
        "warning",
        SEGMENTS,
        lambda _, folder: rewrite(file_of(folder, ".log"), 12, struct.pack(">i", 77)),
        position=0,
    ),
    "no index": Damage(
        "missing-index", "warning", SEGMENTS, lambda _, folder: gone(file_of(folder, ".index"))
    ),
    "no time index": Damage(
        "missing-index", "warning", SEGMENTS, lambda _, folder: gone(file_of(folder, ".timeindex"))
    ),
    "an index of odd size": Damage(
        "bad-index",
        "warning",
        SEGMENTS,
        lambda _, folder: appended(file_of(folder, ".index"), b"\1"),
    ),
    "a transaction index of odd size": Damage(
        "bad-index", "warning", TXN, lambda _, folder: appended(file_of(folder, ".txnindex"), b"\1")
    ),
    "an entry with another position": Damage(
        "wrong-index-entry",
        "warning",
        SEGMENTS,
        lambda _, folder: flip(file_of(folder, ".index"), 8 + 7),
        position=8,
    ),
    "an entry with another offset": Damage(
        "wrong-index-entry",
        "warning",
        SEGMENTS,
        lambda _, folder: flip(file_of(folder, ".index"), 8 + 3),
        position=8,
    ),
    "an entry with another time": Damage(
        "wrong-index-entry",
        "warning",
        SEGMENTS,
        lambda _, folder: flip(file_of(folder, ".timeindex"), 12 + 7),
        position=12,
    ),
    "a time at another offset": Damage(
        "wrong-index-entry",
        "warning",
        SEGMENTS,
        lambda _, folder: flip(file_of(folder, ".timeindex"), 12 + 11),
        position=12,
    ),
    "no closing time entry": Damage(
        "time-index-behind",
        "warning",
        SEGMENTS,
        lambda _, folder: emptied(file_of(folder, ".timeindex")),
    ),
    "another aborted transaction": Damage(
        "wrong-txn-index",
        "warning",
        TXN,
        lambda _, folder: flip(file_of(folder, ".txnindex"), 33),
    ),
    "a forgotten aborted transaction": Damage(
        "wrong-txn-index", "warning", TXN, lambda _, folder: emptied(file_of(folder, ".txnindex"))
    ),
    "zeros after an index": Damage(
        "index-not-trimmed",
        "warning",
        SEGMENTS,
        lambda _, folder: appended(file_of(folder, ".index", -1), bytes(80)),
        position=(SEGMENTS.data / SEGMENTS.log_files[-1].name).with_suffix(".index").stat().st_size,
    ),
    "an index without a log": Damage(
        "orphan-index",
        "warning",
        SEGMENTS,
        lambda _, folder: written(folder / "00000000000000099999.index", ""),
    ),
    "a bad snapshot": Damage(
        "bad-snapshot", "warning", IDEM, lambda _, folder: flip(file_of(folder, ".snapshot"), 12)
    ),
    "no snapshots": Damage(
        "missing-snapshot", "warning", IDEM, lambda _, folder: without_snapshots(folder)
    ),
    "bad epochs": Damage(
        "bad-leader-epochs",
        "error",
        IDEM,
        lambda _, folder: written(folder / "leader-epoch-checkpoint", "0\n1\n"),
    ),
    "epochs that fall": Damage(
        "conflicting-leader-epochs",
        "warning",
        IDEM,
        lambda _, folder: written(folder / "leader-epoch-checkpoint", "0\n2\n5 0\n3 9\n"),
    ),
    "no epochs": Damage(
        "missing-leader-epochs",
        "warning",
        IDEM,
        lambda _, folder: gone(folder / "leader-epoch-checkpoint"),
    ),
    "bad metadata": Damage(
        "bad-partition-metadata",
        "error",
        PARTS,
        lambda _, folder: written(folder / "partition.metadata", "version: 0\ntopic_id: ?"),
    ),
    "no metadata": Damage(
        "missing-partition-metadata",
        "warning",
        PARTS,
        lambda _, folder: gone(folder / "partition.metadata"),
    ),
    "another topic id": Damage(
        "topic-id-mismatch",
        "warning",
        GoldenPartition("parts", "keyed-1"),
        lambda _, folder: renumbered(folder / "partition.metadata"),
    ),
    "a left-over file": Damage(
        "leftover-file",
        "info",
        PARTS,
        lambda _, folder: written(folder / "leader-epoch-checkpoint.tmp", ""),
    ),
    "a folder that was deleted": Damage(
        "renamed-folder",
        "info",
        PARTS,
        lambda root, _: shutil.copytree(root / "keyed-2", root / "keyed-2.0a1b-delete"),
    ),
    "a stray folder": Damage(
        "renamed-folder",
        "warning",
        PARTS,
        lambda root, _: shutil.copytree(root / "keyed-2", root / "other-5.0a1b-stray"),
    ),
    "a foreign folder": Damage(
        "foreign-folder", "error", PARTS, lambda root, _: folder_made(root / "lost+found")
    ),
    "a swap that was broken off": Damage(
        "leftover-swap",
        "warning",
        SEGMENTS,
        lambda _, folder: written(folder / "00000000000000000000.log.cleaned", ""),
    ),
    "a strange file": Damage(
        "unknown-file", "info", PARTS, lambda _, folder: written(folder / "notes.txt", "hello")
    ),
    "a strange file at the root": Damage(
        "unknown-file", "info", PARTS, lambda root, _: written(root / "notes.txt", "hello")
    ),
    "no marker": Damage(
        "unclean-stop", "info", PARTS, lambda root, _: gone(root / ".kafka_cleanshutdown")
    ),
    "a bad checkpoint": Damage(
        "bad-root-file",
        "error",
        IDEM,
        lambda root, _: written(root / "replication-offset-checkpoint", "0\n7\n"),
    ),
    "a checkpoint with a word for a number": Damage(
        "bad-root-file",
        "warning",
        IDEM,
        lambda root, _: written(root / "log-start-offset-checkpoint", "0\n1\na 0 x\n"),
    ),
    "a bad note of an append": Damage(
        "damaged-append-note",
        "error",
        PARTS,
        lambda root, _: written(root / ".logserver.staged.json", "nul"),
    ),
    "a bad report of a salvage": Damage(
        "damaged-report",
        "warning",
        PARTS,
        lambda root, _: written(root / ".logserver.salvage.json", "[1,2"),
    ),
    "a bad identity": Damage(
        "bad-root-file",
        "error",
        IDEM,
        lambda root, _: written(root / "meta.properties", "version=9\n"),
    ),
    "a checkpoint ahead of the log": Damage(
        "checkpoint-ahead",
        "error",
        IDEM,
        lambda root, _: checkpoint(root, "recovery-point-offset-checkpoint", 1204),
    ),
    "an epoch above the end": Damage(
        "log-ends-below-named",
        "error",
        IDEM,
        lambda _, folder: written(folder / "leader-epoch-checkpoint", "0\n2\n0 0\n9 5000\n"),
    ),
    "no first segment": Damage(
        "log-starts-late",
        "error",
        SEGMENTS,
        lambda _, folder: without_first_segment(folder),
    ),
    "no log": Damage(
        "partition-without-logs", "error", IDEM, lambda _, folder: without_logs(folder)
    ),
    "no folder of a partition": Damage(
        "partition-without-folder", "error", PARTS, lambda _, folder: without_folder(folder)
    ),
    "a topic by name only": Damage(
        "topic-without-folder",
        "info",
        IDEM,
        lambda root, _: written(
            root / "replication-offset-checkpoint", "0\n2\nepoch-idem 0 1203\ndeleted 0 7\n"
        ),
    ),
    "a start above the recovery point": Damage(
        "doubtful-log-start",
        "warning",
        IDEM,
        lambda root, _: start_above_recovery_point(root, 1000, 1100),
    ),
    "a start after the end": Damage(
        "log-start-beyond-end",
        "error",
        IDEM,
        lambda root, folder: checkpoint(root, "log-start-offset-checkpoint", 5000).parent / folder,
    ),
}


@pytest.mark.parametrize("point", [0, 600, 999])
def test_a_hidden_range_is_named(point: int, tmp_path: Path) -> None:
    root = stores.copy_store(IDEM.root, tmp_path / "data")
    start_above_recovery_point(root, point, 1000)
    found = [r for r in run("verify", root, *settings_options(IDEM.settings)).rows if r["offset"]]
    named = [r["message"] for r in found if r["code"] == "doubtful-log-start"]
    assert len(named) == 1
    assert "0 to 999 are in the segments" in named[0]
    start_above_recovery_point(root, 1000, 1000)
    rows = run("verify", root, *settings_options(IDEM.settings)).rows
    assert "doubtful-log-start" not in {row["code"] for row in rows}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage(case: str, tmp_path: Path) -> None:
    damage = DAMAGES[case]
    root = stores.copy_store(damage.where.root, tmp_path / "data")
    path = damage.inflict(root, root / damage.where.name)
    options = settings_options(damage.where.settings)
    ended = run("verify", root, *options)
    found = [row for row in ended.rows if row["code"] == damage.code]
    assert [(row["severity"], row["path"]) for row in found] == [(damage.severity, str(path))]
    assert found[0]["position"] == damage.position
    assert found[0]["message"]
    assert ended.code == (0 if damage.severity == "info" else 1)
    shown = run("verify", root, "--output", "table", *options).out.decode()
    assert str(path) in shown
    assert f"[{damage.code}]" in shown


def test_every_code_of_the_page_is_found_somewhere() -> None:
    """Every documented code is found by a damage here, or elsewhere: by a rebuild or a comparison with a rebuild, by a
    start, or by a store of another version.
    """
    elsewhere = "hanging-transaction "
    elsewhere += "index-differs kept-aside index-without-tags changed-meanwhile missing-log-file log-ends-early "
    elsewhere += "impossible-queue-offset earlier-topic batch-topic broken-queue deleted-left-out open-transaction "
    elsewhere += "unreadable-file unreadable-range copied-unchecked wrong-queue-type rocksdb-store other-delay-level"
    elsewhere += (
        " log-begins-late missing-config-file name-of-deleted-topic"  # test_missing_files.py
    )
    elsewhere += " queue-ends-early entries-before-log"
    elsewhere += " log-file-behind-end"  # tests/unit/rocketmq/test_salvage_report.py
    elsewhere += " compaction-log dledger-store left-behind timer-log"  # test_live_data.py
    # tests/golden/test_rocketmq_compacted.py
    elsewhere += " bad-compacted-record compaction-mismatch"
    elsewhere += " symbolic-link"  # test_links.py
    elsewhere += " timed-messages-wait"  # tests/unit/rocketmq/test_schedule.py
    elsewhere += " overlapping-segments"  # tests/unit/kafka/recovery/test_overlaps.py
    elsewhere += " misnamed-segment"  # tests/unit/kafka/recovery/test_misnamed.py
    elsewhere += " segment-without-log"  # tests/unit/kafka/recovery/test_missing.py
    elsewhere += " damaged-journal"  # tests/unit/test_request_journal.py
    elsewhere += " duplicate-partition mixed-log-dirs"  # test_log_dirs.py
    # tests/unit/kafka/log/test_odd_batches.py, test_overflow.py
    elsewhere += " misplaced-batch offset-overflow trailing-bytes unknown-attributes unknown-codec"
    elsewhere += " unknown-control-type unusual-offsets unknown-record"
    found = {code for code, _ in reported()}
    assert found | set(elsewhere.split()) == table("findings.md").keys()


def reported() -> set[tuple[str, str]]:
    """Return (code, severity) of every damage to Kafka's and RocketMQ's files."""
    kafka = {(damage.code, damage.severity) for damage in DAMAGES.values()}
    return kafka | {(damage.code, damage.severity) for damage in ROCKETMQ.values()}


def test_severities_are_those_of_the_page() -> None:
    page = {code: set(cells[0].split(", ")) for code, cells in table("findings.md").items()}
    assert [pair for pair in reported() if pair[1] not in page[pair[0]]] == []


def test_holes_of_compaction_are_none(tmp_path: Path) -> None:
    """Gaps left by compaction are no fault. The cleaner's checkpoint names the partition; else the batches show it."""
    root = stores.copy_store(COMPACTED.root, tmp_path / "data")
    assert run("verify", root).code == 0
    (root / "cleaner-offset-checkpoint").write_text("0\n0\n")
    assert [row["code"] for row in run("verify", root / COMPACTED.name).rows] == ["leftover-file"]


def test_an_index_that_was_written_across_a_restart_differs_but_is_right() -> None:
    rows = fine("verify", IDEM.data, *settings_options(IDEM.settings)).rows
    files = {Path(row["path"]).name for row in rows}
    assert {row["code"] for row in rows} == {"index-differs"}
    assert all(name.endswith(("index", "timeindex")) for name in files)
    assert run("verify", IDEM.data).rows == []


def test_what_a_transaction_index_knows_alone(tmp_path: Path) -> None:
    """Index entries of transactions that began before the log start are accepted, without their records in the log."""
    root = stores.copy_store(TXN.root, tmp_path / "data")
    folder = root / TXN.name
    bases = [int(path.stem) for path in TXN.log_files]
    aborted = [
        (int(name[:20]), entry)
        for name, entries in TXN.json("indexes.json").items()
        if name.endswith(".txnindex")
        for entry in entries
    ]
    base = next(base for base, entry in aborted if entry["firstOffset"] < base)
    for path in [p for p in folder.iterdir() if p.stem.isdecimal() and int(p.stem) < base]:
        path.unlink()
    assert base in bases
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {base}\n")
    assert [row for row in run("verify", folder).rows if row["severity"] != "info"] == []


def test_one_damage_does_not_hide_another(tmp_path: Path) -> None:
    root = stores.copy_store(TXN.root, tmp_path / "data")
    folder = root / TXN.name
    flip(file_of(folder, ".log", 0), 100)
    flip(file_of(folder, ".log", 3), 100)
    gone(file_of(folder, ".index", 5))
    flip(file_of(folder, ".snapshot", 0), 12)
    codes = [row["code"] for row in run("verify", root).rows]
    assert sorted(codes) == ["bad-snapshot", "damaged-batch", "damaged-batch", "missing-index"]


@pytest.mark.parametrize("clean", [True, False])
def test_damage_is_named_by_its_offset(clean: bool, tmp_path: Path) -> None:
    root = stores.copy_store(SEGMENTS.root, tmp_path / "data")
    if not clean:
        gone(root / ".kafka_cleanshutdown")
    path = file_of(root / SEGMENTS.name, ".log", 1)
    first = decode_header(path.read_bytes(), 0)
    flip(path, first.size_bytes + 100)
    (found,) = [row for row in run("verify", root).rows if row["code"] == "damaged-batch"]
    assert (found["position"], found["offset"]) == (first.size_bytes, first.next_offset)


def test_a_partition_directory_alone(tmp_path: Path) -> None:
    """A partition folder copied out of its store is read, under any name, without marker and checkpoints."""
    folder = stores.copy_store(SEGMENTS.data, tmp_path / "found-in-a-bucket")
    rows = fine("verify", folder).rows
    assert [row["code"] for row in rows] == ["unclean-stop"]
    shown = fine("dump", folder).rows
    assert [row["offset"] for row in shown] == [
        row["offset"] for row in SEGMENTS.lines("expected.jsonl")
    ]
    assert {row["topic"] for row in shown} == {"found-in-a-bucket"}


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("00000000000000000000.log", b"garbage" * 40, "torn-tail"),
        ("00000000000000000000.log", bytes(4096), "zero-tail"),
        ("00000000000000000000.index", b"garbage", "bad-index"),
        ("00000000000000000000.timeindex", b"\xff" * 24, "bad-index"),
        ("00000000000000000000.txnindex", b"\xff" * 34, "bad-index"),
        ("00000000000000000000.snapshot", b"garbage", "bad-snapshot"),
        ("leader-epoch-checkpoint", b"garbage", "bad-leader-epochs"),
        ("partition.metadata", b"garbage", "bad-partition-metadata"),
        ("recovery-point-offset-checkpoint", b"garbage", "bad-root-file"),
        ("meta.properties", b"garbage", "bad-root-file"),
        ("any name.log", b"garbage" * 40, "torn-tail"),
    ],
)
def test_garbage_in_one_file(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    ended = run("verify", path)
    assert ended.code == 1
    assert [row["code"] for row in ended.rows] == [code]
    for command in ("dump", "inspect"):
        ended = run(command, path)
        assert ended.code == 1
        assert "Traceback" not in ended.err
    assert f"[{code}]" in run("dump", path).err


def test_the_good_part_of_a_damaged_index_is_shown(tmp_path: Path) -> None:
    path = next(TXN.data.glob("*21.txnindex"))
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes() + b"\xff" * 40)
    ended = run("dump", copy)
    assert ended.rows[0]["entries"] == TXN.json("indexes.json")[path.name]
    assert ended.code == 1
