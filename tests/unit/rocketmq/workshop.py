"""A workshop in which tests create, kill, damage and open a store: in memory, with a clock that the test sets.

The dispatcher's thread is not started unless a test asks for it. A read, a checkpoint or a close does its work, so
that every run takes the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from storage import AppendResult, LogStore, ProducerSequence, Record, StoredRecord, StoreOptions
from storage.files import FileSystem, OverlayFileSystem
from storage.model import TopicPartition
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.names import file_name
from storage.rocketmq.index.dispatcher import Dispatcher
from storage.rocketmq.store import RocketMQStore, open_rocketmq
from tests.contract.harness import ManualClock

ROOT = Path("/w/store")
T0 = TopicPartition("t", 0)
LOG_BYTES = 1024
SMALL = {
    "mappedFileSizeCommitLog": str(LOG_BYTES),
    "mappedFileSizeConsumeQueue": "100",
    "maxHashSlotNum": "7",
    "maxIndexNum": "12",
}
UNIT = 20


@contextmanager
def by_hand() -> Iterator[None]:
    """Run a block in which opened stores start no dispatcher thread."""
    with patch.object(Dispatcher, "start"):
        yield


class Workshop:
    """One directory in one file system, and the store in it."""

    def __init__(self, fs: FileSystem | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.fs: FileSystem = fs or OverlayFileSystem(clock=self.clock)
        self.fs.make_dir(ROOT.parent)

    # ---- stores ----

    def open(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        read_only: bool = False,
        accept_loss: bool = False,
        open_files: int = 64,
        thread: bool = False,
    ) -> RocketMQStore:
        """Open the store of small files; create it if missing."""
        options = StoreOptions(
            settings={**SMALL, **(settings or {})}, accept_loss=accept_loss, open_files=open_files
        )
        if thread:
            return open_rocketmq(ROOT, options, fs=self.fs, clock=self.clock, read_only=read_only)
        with by_hand():
            return open_rocketmq(ROOT, options, fs=self.fs, clock=self.clock, read_only=read_only)

    def open_with_topic(
        self, settings: Mapping[str, str] | None = None, *, partitions: int = 1
    ) -> RocketMQStore:
        """Open a new store and create the topic t in it."""
        store = self.open(settings)
        store.create_topic("t", partitions)
        return store

    def after_kill(self) -> Workshop:
        """Return a workshop on the files that a kill now would leave; the present store goes on unaffected."""
        return on(OverlayFileSystem(self.fs), self)

    # ---- files ----

    def log_path(self, base: int = 0) -> Path:
        """Return the path of the log file with this base offset."""
        return ROOT / "commitlog" / file_name(base)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the store; an empty list if the folder is missing."""
        path = ROOT / folder
        return list(self.fs.list_dir(path)) if self.fs.exists(path) else []

    def log_bases(self) -> list[int]:
        """Return the base offsets of the log's files."""
        return [int(name) for name in self.names("commitlog")]

    def queue_bases(self, of: TopicPartition = T0) -> list[int]:
        """Return the base positions (in bytes) of a queue's files."""
        return [int(name) for name in self.names(f"consumequeue/{of.topic}/{of.partition}")]

    def log_bytes(self) -> bytes:
        """Return the bytes of the log from its first file on."""
        return b"".join(self.fs.read_bytes(self.log_path(base)) for base in self.log_bases())

    def files(self) -> dict[str, bytes]:
        """Return every file of the store by its path below the root, except the lock: it cannot be read while held."""
        found = {}
        folders = [ROOT]
        while folders:
            folder = folders.pop()
            for name in self.fs.list_dir(folder):
                path = folder / name
                if self.fs.is_dir(path):
                    folders.append(path)
                elif name != "lock":
                    found[str(path.relative_to(ROOT))] = self.fs.read_bytes(path)
        return found

    def overwrite(self, path: Path, position: int, data: bytes) -> None:
        """Overwrite a file's bytes at `position` with `data`."""
        file = self.fs.open(path, write=True)
        file.pwrite(data, position)
        file.close()

    def set_attribute(self, topic: str, attribute: str) -> None:
        """Set an attribute of a topic, NAME=VALUE, as the broker does. The store must be closed."""
        path = ROOT / "config" / "topics.json"
        content = decode_config(self.fs.read_bytes(path))
        name, _, value = attribute.partition("=")
        content["topicConfigTable"][topic]["attributes"] = {name: value}
        put_file(self.fs, path, json.dumps(content).encode())

    def cut_dirs(self) -> list[str]:
        """Return the names of the folders that keep the bytes cut by recovery."""
        return [name for name in self.fs.list_dir(ROOT.parent) if ".cut-" in name]


def on(fs: FileSystem, shop: Workshop) -> Workshop:
    """Return a workshop on another disk, with a clock at the same time."""
    return Workshop(fs, ManualClock(shop.clock.now_ms))


def keyed(value: bytes) -> Record:
    """Return a record with `value` as its value, key and unique id."""
    return Record(value, value, properties={"UNIQ_KEY": value.decode()})


def put_value(store: LogStore, value: bytes, address: TopicPartition = T0) -> AppendResult:
    """Append one record with `value` as its value, key and unique id."""
    return store.append(address, [keyed(value)])


def put_sequenced(
    store: LogStore, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1
) -> AppendResult:
    """Append `count` records of an idempotent producer in one call."""
    records = [Record(None, f"{producer_id}/{sequence + n}".encode()) for n in range(count)]
    return store.append(T0, records, producer=ProducerSequence(producer_id, epoch, sequence))


def place_of(result: AppendResult) -> int:
    """Return the physical offset of an append's first record."""
    return result.locators[0] % (1 << 64)


def put_file(fs: FileSystem, path: Path, data: bytes) -> None:
    """Create a file with these bytes, or replace the content of an existing file."""
    file = fs.open(path, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def records_of(store: LogStore, address: TopicPartition = T0) -> Sequence[StoredRecord]:
    """Return all readable records of a queue."""
    return list(store.scan(address))


def values(store: LogStore, address: TopicPartition = T0) -> list[bytes | None]:
    """Return the values of all readable records of a queue."""
    return [record.value for record in records_of(store, address)]


def check_lookups(store: LogStore, address: TopicPartition = T0, *, indexed: bool = True) -> None:
    """Check that offsets are dense and that id, time and unique id find each record.

    For each key the index and a scan must find the same records. `indexed`: whether the index covers the whole log.
    """
    records = records_of(store, address)
    bounds = store.bounds(address)
    assert [record.offset for record in records] == list(range(bounds.start, bounds.end))
    for record in records:
        assert store.find_by_id(store.record_id(address, record.locator)) == (address, record)
        assert record.store_timestamp_ms is not None
        timely = store.offset_for_time(address, record.store_timestamp_ms)
        assert timely is not None
        assert records[timely.offset - bounds.start].store_timestamp_ms == record.store_timestamp_ms
        unique_id = (record.properties or {}).get("UNIQ_KEY")
        if unique_id is not None:
            found = store.find(address.topic, unique_id=unique_id)
            assert list(found.records) == [(address.partition, record)]
            assert found.indexed is indexed
    for key in {record.key for record in records if record.key}:
        asked, scanned = (
            store.find(address.topic, key=key, limit=999, scan=s) for s in (False, True)
        )
        assert asked.records == scanned.records
