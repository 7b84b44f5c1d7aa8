"""A workshop to create, kill, damage and open a store of the engine's tests: in memory, with a manual clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from storage import AppendResult, LogStore, ProducerSequence, Record, StoredRecord, StoreOptions
from storage.errors import Corrupt
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.format.checkpoints import decode_epochs, decode_offsets
from storage.kafka.format.names import parse_segment_name, segment_name
from storage.kafka.partition import Partition
from storage.kafka.store import KafkaStore, open_kafka
from storage.model import TopicPartition
from tests.contract.harness import ManualClock

ROOT = Path("/w/store")
T0 = TopicPartition("t", 0)


class Workshop:
    """A directory in a file system, and the store in this directory."""

    def __init__(self, fs: FileSystem | None = None) -> None:
        self.fs: FileSystem = fs or OverlayFileSystem()
        self.clock = ManualClock()
        self.fs.make_dir(ROOT.parent)

    # ---- stores --------------------------------------------------------------------------------------------------

    def open(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        read_only: bool = False,
        accept_loss: bool = False,
        open_files: int = 64,
    ) -> KafkaStore:
        """Open the store; create it if it is missing."""
        options = StoreOptions(
            settings=settings or {}, accept_loss=accept_loss, open_files=open_files
        )
        return open_kafka(ROOT, options, fs=self.fs, clock=self.clock, read_only=read_only)

    def open_with_topic(
        self, settings: Mapping[str, str] | None = None, *, partitions: int = 1
    ) -> KafkaStore:
        """Create a store with the topic t."""
        store = self.open(settings)
        store.create_topic("t", partitions)
        return store

    def after_kill(self) -> Workshop:
        """Return the state that the next process finds after a kill at this moment; this workshop stays usable."""
        found = Workshop(OverlayFileSystem(self.fs))
        found.clock.now_ms = self.clock.now_ms
        return found

    # ---- files ---------------------------------------------------------------------------------------------------

    def path(self, base_offset: int, suffix: str = ".log", *, of: TopicPartition = T0) -> Path:
        """Return the path of a segment file."""
        return ROOT / str(of) / segment_name(base_offset, suffix)

    def names(self, of: TopicPartition = T0) -> list[str]:
        """Return the names in a partition's folder."""
        return list(self.fs.list_dir(ROOT / str(of)))

    def bases(self, suffix: str = ".log", *, of: TopicPartition = T0) -> list[int]:
        """Return the base offsets of a partition's files with this suffix."""
        parsed = map(parse_segment_name, self.names(of))
        return [found[0] for found in parsed if found is not None and found[1] == suffix]

    def bytes_of(self, base_offset: int, suffix: str = ".log") -> bytes:
        """Return all bytes of a segment file."""
        return self.fs.read_bytes(self.path(base_offset, suffix))

    def put(self, path: Path, data: bytes) -> None:
        """Write a file of these bytes; replace an existing file."""
        file = self.fs.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()

    def overwrite(self, position: int, data: bytes, *, base_offset: int = 0) -> None:
        """Damage a log: write these bytes at this position."""
        file = self.fs.open(self.path(base_offset), write=True)
        file.pwrite(data, position)
        file.close()

    def truncate(self, size_bytes: int, *, base_offset: int = 0) -> None:
        """Cut a log, or extend it with zeros."""
        file = self.fs.open(self.path(base_offset), write=True)
        file.truncate(size_bytes)
        file.close()

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets in a checkpoint of the root folder."""
        return dict(decode_offsets(self.fs.read_bytes(ROOT / name)))

    def epochs(self, of: TopicPartition = T0) -> list[tuple[int, int]]:
        """Return a partition's leader epochs."""
        path = ROOT / str(of) / "leader-epoch-checkpoint"
        return list(decode_epochs(self.fs.read_bytes(path)))

    def cut_dirs(self) -> list[str]:
        """Return the names of the folders with copies of cut bytes."""
        return [name for name in self.fs.list_dir(ROOT.parent) if ".cut-" in name]


def put_value(store: LogStore, value: bytes, address: TopicPartition = T0) -> AppendResult:
    """Append one record."""
    return store.append(address, [Record(None, value)])


def put_sequenced(
    store: LogStore, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1
) -> AppendResult:
    """Append `count` records of an idempotent producer in one batch."""
    records = [Record(None, f"{producer_id}/{sequence + n}".encode()) for n in range(count)]
    return store.append(T0, records, producer=ProducerSequence(producer_id, epoch, sequence))


def read_around(
    store: LogStore, address: TopicPartition = T0
) -> tuple[list[StoredRecord], list[Corrupt]]:
    """Return all readable records, and the errors of the damaged ranges."""
    bounds = store.bounds(address)
    records: list[StoredRecord] = []
    errors: list[Corrupt] = []
    at: int | None = bounds.start
    while at is not None and at < bounds.end:
        try:
            page = store.read(address, at)
        except Corrupt as error:
            errors.append(error)
            following = cast("int | None", error.facts()["next_good_offset"])
            assert following is None or following > at
            at = following
            continue
        assert page.next_offset > at
        records += page.records
        at = page.next_offset
    return records, errors


def values(store: LogStore, address: TopicPartition = T0) -> list[bytes | None]:
    """Return the values of all readable records."""
    return [record.value for record in read_around(store, address)[0]]


def only_partition(store: KafkaStore) -> Partition:
    """Return the engine's partition object of t-0."""
    return store.partition(T0)
