"""Two small stores, one of each backend, with every kind of content in a few kilobytes.

Owns the creation of the stores, and every way of reading a changed copy; must not know the changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from storage import (
    Finding,
    LogStore,
    ProducerSequence,
    Record,
    StoreOptions,
    TopicPartition,
    open_inspector,
)
from storage.errors import Corrupt, StorageError
from storage.files import FileSystem
from storage.rocketmq.log import encoding
from tests.contract.harness import START_MS, ManualClock
from tests.golden.rocketmq_stores import files_below
from tests.robustness.crash.ram import Ram
from tests.unit.kafka import workshop as kafka
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.rocketmq import workshop as rocketmq

ROOT = kafka.ROOT
assert ROOT == rocketmq.ROOT
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
KAFKA_SETTINGS = {
    "internal.segment.bytes": "330",
    "index.interval.bytes": "80",
    "segment.index.bytes": "60",
}
BACKENDS = ("kafka", "rocketmq")
QUESTIONS: Sequence[dict[str, Any]] = (
    {"key": b"k1"},
    {"key": b"k1", "scan": True},
    {"tag": "a"},
    {"from_ms": 1},
    {"backward": True},
)

Row: TypeAlias = tuple[TopicPartition, int, bytes | None, bytes | None, tuple[object, ...]]
"""Partition, offset, key, value, headers: the fields that matter to a reader."""


class TinyStore(NamedTuple):
    """A store on its disk, after a clean stop or a kill, and its records."""

    backend: str
    clean: bool
    disk: Ram
    rows: Sequence[Row]

    def files(self) -> Mapping[str, bytes]:
        """Return every file by its path below the root, except the lock."""
        found = files_below(self.disk, ROOT, *self.disk.list_dir(ROOT))
        return {name: data for name, data in sorted(found.items()) if name not in {"lock", ".lock"}}

    def copy(self) -> Ram:
        """Return a disk that may be changed."""
        return self.disk.copy()

    def open(
        self, fs: FileSystem, *, read_only: bool = False, accept_loss: bool = False
    ) -> LogStore:
        """Open the store on this disk."""
        if self.backend == "kafka":
            return kafka.Workshop(fs).open(
                KAFKA_SETTINGS, read_only=read_only, accept_loss=accept_loss
            )
        return rocketmq.Workshop(fs).open(read_only=read_only, accept_loss=accept_loss)

    def verified(self, fs: FileSystem) -> Sequence[Finding]:
        """Return all findings of `logserver verify` for this disk."""
        inspector = open_inspector(ROOT, self._options(), fs=fs, clock=ManualClock())
        try:
            return list(inspector.verify())
        finally:
            inspector.close()

    def dump_all(self, fs: FileSystem) -> None:
        """Run everything that the offline tools show of this disk; they skip damaged parts."""
        inspector = open_inspector(ROOT, self._options(), fs=fs, clock=ManualClock())
        try:
            inspector.summary()
            for kind in inspector.dump_kinds():
                for _ in inspector.dump(kind):
                    pass
            inspector.findings()
        finally:
            inspector.close()

    def _options(self) -> StoreOptions:
        return StoreOptions(settings=KAFKA_SETTINGS if self.backend == "kafka" else rocketmq.SMALL)


@cache
def tiny(backend: str, *, clean: bool) -> TinyStore:
    """Return the store of this backend."""
    disk = Ram()
    store = _kafka(disk) if backend == "kafka" else _rocketmq(disk)
    store.flush()
    rows = list(read_all(store))
    if clean:
        store.close()
    return TinyStore(backend, clean, disk.copy(), rows)


def _kafka(fs: FileSystem) -> LogStore:
    """Create segments, every codec, a producer, an aborted and a committed transaction."""
    shop = kafka.Workshop(fs)
    store = shop.open(KAFKA_SETTINGS)
    store.create_topic("t", 1, {"retention.ms": "60000"})
    store.create_topic("u", 1)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        shop.clock.now_ms += 1
        record = Record(b"k%d" % number, b"value %d" % number, [("h", None), ("n", b"x")])
        store.append(T0, [record, Record(None, b"second")], compression=codec)
    store.append(U0, [Record(None, b"counted")], producer=ProducerSequence(7, 0, 0))
    store.checkpoint()
    store.append(T0, [Record(None, b"of a producer")], producer=ProducerSequence(7, 1, 0))
    at = store.bounds(U0).end
    for commit in (False, True):
        data = data_batch(at, value=b"in doubt", producer=(8, 0, at), transactional=True)
        data += marker(at + 1, 8, commit=commit)
        store.append_batches(U0, data, keep_offsets=True)
        at += 2
    return store


def _rocketmq(fs: FileSystem) -> LogStore:
    """Create some log files, queues and index files, a producer, and a deleted topic.

    The unique ids are the same in every run, and so is everything that depends on their hashes.
    """
    shop = rocketmq.Workshop(fs)
    with patch.object(encoding, "process_id", lambda: 1), patch("secrets.randbits", lambda bits: 1):
        store = shop.open()
    store.create_topic("t", 2)
    store.create_topic("u", 1)
    store.append(U0, [Record(None, b"gone")])
    store.delete_topic("u")
    for number in range(9):
        shop.clock.now_ms += 1
        value = b"value-%d" % number
        record = Record(b"k%d" % (number % 3), value, [("h", b"x")], tag="a")
        store.append((T0, T1)[number % 2], [record])
        if number == 4:
            store.checkpoint()
    store.append(T0, [Record(None, b"counted")], producer=ProducerSequence(7, 0, 0))
    store.find("t", key="k1")
    return store


# ---- reading a store
# --------------------------------------------------------------------------------------------------


def read_all(store: LogStore) -> Iterator[Row]:
    """Yield all readable records of every partition, skipping unreadable ones."""
    for info in store.topics().values():
        for number in info.partitions:
            yield from read_around(store, TopicPartition(info.name, number))


def read_around(store: LogStore, address: TopicPartition) -> Iterator[Row]:
    """Yield the readable records of one partition."""
    bounds = store.bounds(address)
    at: object = bounds.start
    while isinstance(at, int) and at < bounds.end:
        try:
            page = store.read(address, at)
        except Corrupt as error:
            following = error.facts()["next_good_offset"]
            assert following is None or (isinstance(following, int) and following > at)
            at = following
            continue
        for one in page.records:
            yield address, one.offset, one.key, one.value, tuple(one.headers)
        assert page.next_offset > at
        at = page.next_offset


def look_up(store: LogStore) -> None:
    """Run every other kind of lookup; damaged data may be refused."""
    store.stats()
    for info in store.topics().values():
        for asked in QUESTIONS:
            with suppress(StorageError):
                store.find(info.name, **asked)
        for number in info.partitions:
            with suppress(StorageError):
                store.offset_for_time(TopicPartition(info.name, number), START_MS + 3)


def overwrite(fs: FileSystem, path: Path, position: int, data: bytes) -> None:
    """Write these bytes at this position."""
    file = fs.open(path, write=True)
    file.pwrite(data, position)
    file.close()
