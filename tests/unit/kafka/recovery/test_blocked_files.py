"""A folder in the place of a file that a start reads or writes: readers report it, a writable start refuses."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from storage import (
    Isolation,
    LogStore,
    Record,
    TopicPartition,
    open_inspector,
    open_splitter,
    open_store,
)
from storage.errors import DamagedStore
from tests.golden import stores

T0 = TopicPartition("t", 0)
VALUES = [b"%d" % number for number in range(5)]
SEGMENT = "t-0/00000000000000000000"
AT_ROOT = [
    ".logserver.staged.json",
    ".kafka_cleanshutdown",
    ".lock",
    ".logserver.store.json",
    ".logserver.store.json.tmp",
    ".logserver.topics.json",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "recovery-point-offset-checkpoint.tmp",
    "replication-offset-checkpoint",
]
IN_PARTITION = [
    f"{SEGMENT}.index",
    f"{SEGMENT}.timeindex",
    f"{SEGMENT}.txnindex",
    f"{SEGMENT}.log.deleted",
    f"{SEGMENT}.log.swap",
    "t-0/00000000000000000003.snapshot",
    "t-0/00000000000000000005.snapshot",
    "t-0/00000000000000000009.index",
    "t-0/00000000000000000009.log",
    "t-0/leader-epoch-checkpoint",
    "t-0/leader-epoch-checkpoint.tmp",
    "t-0/partition.metadata",
]
MADE_AGAIN = [
    ".kafka_cleanshutdown",
    ".lock",
    "recovery-point-offset-checkpoint",
    f"{SEGMENT}.index",
    f"{SEGMENT}.timeindex",
    "t-0/00000000000000000005.snapshot",
    "t-0/leader-epoch-checkpoint",
]
"""Files that a start recreates without a copy."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The path of a cleanly stopped store with five records."""
    path = tmp_path / "store"
    with open_store("kafka", path) as store:
        store.create_topic("t", 1)
        for value in VALUES:
            store.append(T0, [Record(None, value)])
    return path


def put_folder(path: Path, *, is_empty: bool) -> None:
    """Create a folder at `path`; an existing file there moves to `aside` next to the store."""
    if path.exists():
        path.rename(aside_of(path))
    path.mkdir()
    if not is_empty:
        (path / "notes.txt").write_bytes(b"x")


def aside_of(path: Path) -> Path:
    (store,) = (parent for parent in path.parents if parent.name == "store")
    return store.parent / "aside"


def everything(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def values(store: LogStore) -> list[bytes | None]:
    return [record.value for record in store.scan(T0)]


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("place", [*AT_ROOT, *IN_PARTITION])
def test_readers_report_it(place: str, is_empty: bool, root: Path) -> None:
    put_folder(root / place, is_empty=is_empty)
    before = everything(root)
    with open_store("kafka", root, read_only=True) as store:
        found = [f for f in store.recovery.findings if f.path == str(root / place)]
        assert ("unknown-file", "error") in [(f.code, f.severity) for f in found]
        assert values(store) == VALUES
    with closing(open_splitter(root)) as splitter:
        assert splitter.bounds(T0).end == len(VALUES)
    with closing(open_inspector(root)) as tools:
        reported = [f for f in tools.verify() if f.path == str(root / place)]
        (one,) = (f for f in reported if f.code == "unknown-file")
        assert one.severity == "error"
        assert "a folder in the place of a file. Move it away" in one.message
        assert (one.topic, one.partition) == (T0 if place in IN_PARTITION else (None, None))
    assert everything(root) == before


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("place", [*AT_ROOT, *IN_PARTITION, f"{SEGMENT}.log"])
def test_a_writable_start_changes_nothing(place: str, is_empty: bool, root: Path) -> None:
    put_folder(root / place, is_empty=is_empty)
    before = everything(root)
    with pytest.raises(DamagedStore, match=r"a folder in the place of a file\. Move it") as refused:
        open_store("kafka", root)
    assert refused.value.facts()["path"] == str(root / place)
    with closing(open_inspector(root)) as tools, pytest.raises(DamagedStore):
        tools.rebuild("indexes", write=True)
    assert everything(root) == before
    shutil.rmtree(root / place)
    if aside_of(root / place).exists():
        aside_of(root / place).rename(root / place)
    with open_store("kafka", root) as store:
        assert values(store) == VALUES
        assert store.append(T0, [Record(None, b"more")]).base_offset == len(VALUES)


@pytest.mark.parametrize("place", MADE_AGAIN)
def test_what_a_start_makes_again_needs_no_copy(place: str, root: Path) -> None:
    put_folder(root / place, is_empty=False)
    (root / place).rename(root.parent / "moved")
    with open_store("kafka", root) as store:
        assert values(store) == VALUES
        assert store.append(T0, [Record(None, b"more")]).base_offset == len(VALUES)


def test_a_folder_named_as_the_marker_is_an_unclean_stop(root: Path) -> None:
    put_folder(root / ".kafka_cleanshutdown", is_empty=True)
    with open_store("kafka", root, read_only=True) as store:
        assert not store.recovery.clean_shutdown


def test_records_of_a_folder_in_the_place_of_a_log_are_missing_and_named(root: Path) -> None:
    put_folder(root / f"{SEGMENT}.log", is_empty=True)
    with open_store("kafka", root, read_only=True) as store:
        assert values(store) == []
        errors = {f.path for f in store.recovery.findings if f.severity == "error"}
        assert errors == {str(root / "t-0"), str(root / f"{SEGMENT}.log")}
    with closing(open_inspector(root)) as tools:
        report = tools.salvage(root.parent / "new")
    assert report.kept_records == 0
    assert f"{SEGMENT}.log" in str(report.findings)


def test_another_folder_is_none_of_it(root: Path) -> None:
    (root / "t-0" / "remote_log_metadata").mkdir()
    with open_store("kafka", root) as store:
        assert values(store) == VALUES


def test_a_refusal_counts_the_others(root: Path) -> None:
    for place in (".lock", f"{SEGMENT}.index", "t-0/leader-epoch-checkpoint"):
        put_folder_only(root / place)
    with pytest.raises(DamagedStore, match="2 more such places: `logserver verify` lists them"):
        open_store("kafka", root)


def put_folder_only(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


# ---- aborted transactions ----


@pytest.fixture
def txn(tmp_path: Path) -> Path:
    """A copy of a real broker's store with aborted transactions, after a clean stop."""
    root = stores.copy_store(stores.KAFKA / "txn" / "data", tmp_path / "store")
    (root / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    return root


def committed(root: Path, *, read_only: bool) -> dict[TopicPartition, list[int]]:
    """The offsets that a reader of committed records gets."""
    with stores.open_golden(root, {}, read_only=read_only) as store:
        return {
            address: [r.offset for r in store.scan(address, isolation=Isolation.READ_COMMITTED)]
            for topic in store.topics().values()
            for number in topic.partitions
            if not (address := TopicPartition(topic.name, number)).topic.startswith("__")
        }


def test_a_folder_in_the_place_of_a_transaction_index_shows_no_aborted_record(txn: Path) -> None:
    """A read-only start rebuilds the segment's indexes in memory; a start does so if both files are moved away."""
    whole = committed(txn, read_only=True)
    lost = [path for path in txn.glob("*/*.txnindex") if path.stat().st_size]
    assert lost
    for path in lost:
        put_folder_only(path)
    assert committed(txn, read_only=True) == whole
    with pytest.raises(DamagedStore, match=r"together with the segment's `\.index`"):
        open_store("kafka", txn)
    for path in lost:
        path.rmdir()
        path.with_suffix(".index").unlink()
    assert committed(txn, read_only=False) == whole


# ---- topics whose deletion a crash interrupted ----


@pytest.fixture
def interrupted(root: Path) -> Path:
    """The folder of a partition that was renamed for deletion, next to one that was not, after a crash."""
    with open_store("kafka", root) as store:
        store.create_topic("u", 2)
        for number in range(2):
            store.append(TopicPartition("u", number), [Record(None, b"x")])
    (root / ".kafka_cleanshutdown").unlink()
    return (root / "u-1").rename(root / f"u-1.{'0' * 32}-delete")


@pytest.mark.parametrize("place", [*(Path(p).name for p in IN_PARTITION), f"{'0' * 20}.log"])
def test_a_folder_that_a_start_would_rename_is_checked_too(
    place: str, interrupted: Path, root: Path
) -> None:
    put_folder_only(interrupted / place)
    before = everything(root)
    with open_store("kafka", root, read_only=True) as store:
        found = {f.path for f in store.recovery.findings if f.code == "unknown-file"}
        assert str(interrupted / place) in found
    with pytest.raises(DamagedStore, match="a folder in the place of a file"):
        open_store("kafka", root)
    assert everything(root) == before


@pytest.mark.parametrize("data", [None, b"", b"garbage", b"version: 0\ntopic_id: x"])
def test_a_partition_whose_topic_id_is_lost_is_not_removed(
    data: bytes | None, interrupted: Path, root: Path
) -> None:
    (interrupted / "partition.metadata").unlink()
    if data is not None:
        (interrupted / "partition.metadata").write_bytes(data)
    with open_store("kafka", root) as store:
        assert [r.value for r in store.scan(TopicPartition("u", 1))] == [b"x"]
