"""Recovery rebuilds, from the golden logs alone, the files that the real broker wrote, byte for byte.

Of each store only the `.log` files, the topic's id and the log start are kept, as if all other files had been lost.
Indexes, transaction indexes, producer snapshots and leader epochs are rebuilt from the batches. The clock is fixed at
0: the producers of the golden stores have times years before the broker's clock and must not expire.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Isolation
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.format.names import segment_name
from tests.golden import stores
from tests.golden.stores import GoldenPartition

ROOT = Path("/store")
LOG_STARTS = "log-start-offset-checkpoint"
LEFTOVER = ".deleted"
FILES_COMPARED, FILES_EXCEPTED = 591, 36


def _names(suffix: str, *offsets: int) -> set[str]:
    return {segment_name(offset, suffix) for offset in offsets}


# Real files with content that is no longer in the log: partition, reason, file names.
EXCEPTIONS: list[tuple[str, str, set[str]]] = [
    (
        "epochs:epoch-idem-0",
        "written across a restart: the byte counter began at 0, the close made a time entry",
        _names(".index", 89, 268, 597) | _names(".timeindex", 89, 268, 597),
    ),
    (
        "epochs:epoch-idem-0",
        "the broker forgot its producers at each restart, when its clock was years ahead of the data",
        _names(".snapshot", 175, 268, 346, 431, 509, 597, 681, 765, 846, 939, 1022, 1113, 1203),
    ),
    (
        "epochs:epoch-idem-0",
        "made by a clean stop in the middle of a segment",
        _names(".snapshot", 660),
    ),
    (
        "epochs:epoch-sparse-0",
        "written across a restart: the close made a time entry and a snapshot",
        _names(".timeindex", 0) | _names(".snapshot", 21),
    ),
    (
        "deleted:del-all-0",
        "at or below the log start: recovery makes none there",
        _names(".snapshot", 175, 225),
    ),
    (
        "deleted:del-leading-0",
        "at or below the log start: recovery makes none there",
        _names(".snapshot", 118),
    ),
    (
        "compacted:compact-idem-0",
        "the cleaner took the batches of these producers, or the segment of the snapshot",
        _names(".snapshot", 474, 942),
    ),
    (
        "compacted:compact-txn-0",
        "the cleaner took the batches of these producers, or the segment of the snapshot",
        _names(".snapshot", 252, 328, 398),
    ),
    (
        "compacted:compact-txn-0",
        "the cleaner emptied the transactions",
        _names(".txnindex", 398),
    ),
    *(
        (
            f"compacted:{topic}-0",
            "the cleaner took the first batch of the epoch",
            {"leader-epoch-checkpoint"},
        )
        for topic in ("compact-idem", "compact-lz4", "compact-txn")
    ),
    *(
        (f"edge:edge-empty-{n}", "no batch bears the epoch", {"leader-epoch-checkpoint"})
        for n in (0, 1)
    ),
]


def lay_out(fs: FileSystem, partition: GoldenPartition) -> Path:
    """Create the partition with only its `.log` files, its topic's id and its start."""
    directory = ROOT / partition.name
    fs.make_dir(directory)
    for path in [*partition.log_files, partition.data / "partition.metadata"]:
        stores.put(fs, directory / path.name, path.read_bytes())
    start = partition.root / LOG_STARTS
    if start.exists():
        stores.put(fs, ROOT / LOG_STARTS, start.read_bytes())
    return directory


@pytest.mark.parametrize("partition", stores.partitions(), ids=stores.by_id)
def test_recovery_makes_the_files_of_the_real_broker(partition: GoldenPartition) -> None:
    fs = OverlayFileSystem()
    directory = lay_out(fs, partition)
    with stores.open_golden(ROOT, partition.settings, fs=fs, clock=lambda: 0) as store:
        left_out = {(partition.address.topic, n) for n in range(partition.address.partition)}
        found = [f for f in store.recovery.findings if (f.topic, f.partition) not in left_out]
        assert (found, store.recovery.losses) == ([], [])
        assert {f.code for f in store.recovery.findings} <= {"partition-without-folder"}
        made = stores.differences(fs, directory, partition.data)
    different = {name for name in made if not name.endswith(LEFTOVER)}
    excepted = [names for where, _, names in EXCEPTIONS if where == str(partition)]
    assert different == set().union(*excepted)


@pytest.mark.parametrize("partition", stores.partitions(), ids=stores.by_id)
def test_what_was_recovered_is_read_as_before(partition: GoldenPartition) -> None:
    fs = OverlayFileSystem()
    lay_out(fs, partition)
    with stores.open_golden(ROOT, partition.settings, fs=fs, clock=lambda: 0) as store:
        read = [stores.as_row(partition.address, r) for r in store.scan(partition.address)]
        assert read == partition.lines("expected.jsonl")
        if (partition.expect / stores.COMMITTED).exists():
            scan = store.scan(partition.address, isolation=Isolation.READ_COMMITTED)
            rows = [stores.as_row(partition.address, r) for r in scan]
            assert rows == partition.lines(stores.COMMITTED)


def test_every_file_is_compared() -> None:
    files = [
        path.name
        for partition in stores.partitions()
        for path in partition.data.iterdir()
        if path.suffix != LEFTOVER
    ]
    excepted = sum(len(names) for _, _, names in EXCEPTIONS)
    assert (len(files) - excepted, excepted) == (FILES_COMPARED, FILES_EXCEPTED)
