"""Segments, indexes, snapshots and epochs that we write from the real broker's batches equal its own, byte for byte.

The batches are appended unchanged (`keep_offsets`), one append each, with the clock at the data's time. The store is
stopped and started where the broker was. Compacted logs are left out: the cleaner made their segments, not appends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import LogStore, SupportsBatchBytes
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.format.checkpoints import encode_epochs
from tests.contract.harness import ManualClock
from tests.golden import stores
from tests.golden.stores import GoldenPartition

ROOT = Path("/store")
APPENDED = [p for p in stores.partitions() if p.store != stores.COMPACTED]
LARGE = {"max.message.bytes": "10000000"}
FILES_COMPARED = 542

_ROLL = "made at the roll to the present first segment: the batches before that are gone"
_START = "the log start was raised since, and the first entry with it"
EXCEPTIONS = {
    ("deleted:del-all-0", "00000000000000000175.snapshot"): _ROLL,
    ("deleted:del-leading-0", "00000000000000000118.snapshot"): _ROLL,
    ("deleted:del-all-0", "leader-epoch-checkpoint"): _START,
    ("deleted:del-leading-0", "leader-epoch-checkpoint"): _START,
    ("deleted:del-mid-0", "leader-epoch-checkpoint"): _START,
}


def begin(fs: FileSystem, partition: GoldenPartition) -> Path:
    """Create the partition's folder before its first batch: an empty log, the topic's id, the first epoch."""
    directory = ROOT / partition.name
    fs.make_dir(directory)
    base_offset = int(partition.log_files[0].stem)
    stores.put(fs, directory / partition.log_files[0].name, b"")
    metadata = (partition.data / "partition.metadata").read_bytes()
    stores.put(fs, directory / "partition.metadata", metadata)
    stores.put(fs, directory / "leader-epoch-checkpoint", encode_epochs([(0, base_offset)]))
    return directory


def rewrite(fs: FileSystem, partition: GoldenPartition) -> Path:
    """Append the golden batches one by one, with the broker's restarts; return the partition's folder."""
    directory = begin(fs, partition)
    clock = ManualClock(0)

    def start() -> LogStore:
        return stores.open_golden(ROOT, LARGE | partition.settings, fs=fs, clock=clock)

    store = start()
    for data, header in partition.batches():
        if header.base_offset in partition.restarts:
            clock.now_ms = stores.MADE_AT_MS
            store.close()
            store = start()
        clock.now_ms = max(header.max_timestamp, 0)
        assert isinstance(store, SupportsBatchBytes)
        store.append_batches(partition.address, data, keep_offsets=True)
    store.close()
    return directory


@pytest.mark.parametrize("partition", APPENDED, ids=stores.by_id)
def test_the_same_batches_make_the_same_files(partition: GoldenPartition) -> None:
    fs = OverlayFileSystem()
    different = stores.differences(fs, rewrite(fs, partition), partition.data)
    assert set(different) == {name for where, name in EXCEPTIONS if where == str(partition)}


def test_every_file_is_compared() -> None:
    files = sum(len(list(p.data.iterdir())) for p in APPENDED)
    assert files - len(EXCEPTIONS) == FILES_COMPARED
