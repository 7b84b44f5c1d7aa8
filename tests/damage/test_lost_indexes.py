"""Index files deleted from golden stores with aborted transactions: read_committed still answers as the real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage import Isolation, OffsetRange, StoreOptions
from storage.columns import COMMON_COLUMNS
from storage.files import FileSystem, OverlayFileSystem, RealFileSystem
from storage.kafka.columns.read import read_split
from storage.kafka.columns.splits import open_splitter
from storage.kafka.tools import open_inspector
from tests.chunks import rows_of
from tests.golden import stores
from tests.golden.stores import GoldenPartition

PARTITIONS = [
    GoldenPartition("txn", name) for name in ("txn-mixed-0", "txn-two-0", "txn-two-1")
] + [p for p in stores.partitions() if p.store == "txnopen"]

ALL = (".index", ".timeindex", ".txnindex")
Lost = Callable[[Path], bool]
LOST: dict[str, Lost] = {
    "all indexes": lambda path: path.suffix in ALL,
    "all indexes and snapshots": lambda path: path.suffix in (*ALL, ".snapshot"),
    "offset and transaction indexes": lambda path: path.suffix in (".index", ".txnindex"),
    "offset indexes alone": lambda path: path.suffix == ".index",
    "time indexes alone": lambda path: path.suffix == ".timeindex",
    "every second segment's": lambda path: path.suffix in ALL and int(path.stem) % 2 == 0,
    "files of the active segment": lambda path: path.suffix in ALL and int(path.stem) == 504,
    "snapshots alone": lambda path: path.suffix == ".snapshot",
}


def without(partition: GoldenPartition, lost: Lost) -> FileSystem:
    """Return the store without these files of the partition."""
    fs = OverlayFileSystem(RealFileSystem())
    for path in partition.data.iterdir():
        if path.name != "partition.metadata" and lost(path):
            fs.remove(path)
    return fs


def wanted(partition: GoldenPartition) -> list[dict[str, object]]:
    return partition.lines(stores.COMMITTED)


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("partition", PARTITIONS, ids=stores.by_id)
def test_every_way_of_reading(partition: GoldenPartition, lost: Lost) -> None:
    fs = without(partition, lost)
    with stores.open_golden(
        partition.root, partition.settings, fs=fs, read_only=True, clock=lambda: 0
    ) as store:
        scan = store.scan(partition.address, isolation=Isolation.READ_COMMITTED)
        found = [stores.as_row(partition.address, record) for record in scan]
    assert found == wanted(partition)
    assert dumped_offsets(fs, partition) == [row["offset"] for row in wanted(partition)]
    assert spark_offsets(fs, partition) == [row["offset"] for row in wanted(partition)]


def dumped_offsets(fs: FileSystem, partition: GoldenPartition) -> list[object]:
    inspector = open_inspector(partition.root, StoreOptions(), fs=fs, clock=lambda: 0)
    assert inspector is not None
    runs = inspector.dump(
        "records",
        topic=partition.address.topic,
        partition=partition.address.partition,
        isolation=Isolation.READ_COMMITTED,
    )
    with closing(inspector):
        return [row["offset"] for run in runs for row in run]


def spark_offsets(fs: FileSystem, partition: GoldenPartition) -> list[int]:
    splitter = open_splitter(partition.root, StoreOptions(), fs=fs, clock=lambda: 0)
    bounds = splitter.bounds(partition.address)
    splits = splitter.plan(
        [OffsetRange(partition.address, bounds.start, bounds.stable)],
        min_splits=3,
        isolation=Isolation.READ_COMMITTED,
    )
    found = [
        row.offset
        for split in splits
        for row in rows_of(
            read_split(split.plan, COMMON_COLUMNS, check_crcs=True, on_damage=None, fs=fs)
        )
    ]
    splitter.close()
    return found


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("partition", PARTITIONS, ids=stores.by_id)
def test_a_writable_start_leaves_the_brokers_own_transaction_indexes(
    partition: GoldenPartition, lost: Lost
) -> None:
    fs = without(partition, lost)
    with stores.open_golden(partition.root, partition.settings, fs=fs, clock=lambda: 0):
        pass
    found = {name for name in fs.list_dir(partition.data) if name.endswith(".txnindex")}
    assert found == {path.name for path in partition.data.glob("*.txnindex")}
    for name in found:
        path = partition.data / name
        assert fs.read_bytes(path) == path.read_bytes()


@pytest.mark.parametrize("partition", PARTITIONS, ids=stores.by_id)
def test_a_lost_transaction_index_alone_is_seen_offline(partition: GoldenPartition) -> None:
    """A start does not notice it, as the broker does not: only the log shows that the index ever existed."""
    fs = without(partition, lambda path: path.suffix == ".txnindex")
    assert dumped_offsets(fs, partition) == [row["offset"] for row in wanted(partition)]
    inspector = open_inspector(partition.root, StoreOptions(), fs=fs, clock=lambda: 0)
    assert inspector is not None
    with closing(inspector):
        wrong = [found.path for found in inspector.verify() if found.code == "wrong-txn-index"]
    reported = {path.name for path in map(Path, wrong) if path.parent == partition.data}
    assert reported == {path.name for path in partition.data.glob("*.txnindex")}
