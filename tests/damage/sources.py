"""Undamaged stores in memory, and the records that each way of reading them returns.

Owns the golden stores of both formats and two small stores of our own; must not know the damage done to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from storage import (
    Finding,
    LogStore,
    StoredRecord,
    StoreOptions,
    TopicPartition,
    open_inspector,
    open_store,
)
from storage.contract import SupportsInspect
from storage.errors import Corrupt, StorageError
from storage.files import FileSystem
from storage.rocketmq.format.message import decode_message
from tests.contract.harness import START_MS
from tests.golden import rocketmq_stores, stores
from tests.robustness.crash.ram import Ram
from tests.robustness.fuzz import tiny
from tests.unit.rocketmq import workshop as rocketmq

ROOT = tiny.ROOT
BACKENDS = tiny.BACKENDS
PAGE = 10_000
SALVAGED = ROOT.parent / "salvaged"
LOCKS = (".lock", "lock")
LOG_STARTS = "log-start-offset-checkpoint"

# Weight of each store in the random choice. The small stores are fast, so they have larger weights.
WEIGHTS: Mapping[str, Mapping[str, int]] = {
    "kafka": dict.fromkeys(stores.HEALTHY, 1) | {"tiny": 12, "txnopen": 4, "deleted": 2},
    "rocketmq": dict.fromkeys((*rocketmq_stores.CLEAN, *rocketmq_stores.UNCLEAN), 1)
    | {"tiny": 12, "small": 3, "batch": 3},
}

Payload: TypeAlias = tuple[object, ...]
Rows: TypeAlias = "dict[tuple[TopicPartition, int], Payload]"
"""The content of each record, by partition and offset."""


class Source(NamedTuple):
    """An undamaged store below ROOT."""

    name: str
    backend: str
    settings: Mapping[str, str]
    now_ms: int
    disk: Ram

    def inspector(self, fs: FileSystem, root: Path = ROOT) -> SupportsInspect:
        """Open the store for the offline tools."""
        options = StoreOptions(settings=self.settings)
        return open_inspector(root, options, fs=fs, clock=self.clock)

    def open(
        self,
        fs: FileSystem,
        root: Path = ROOT,
        *,
        read_only: bool = False,
        accept_loss: bool = False,
    ) -> LogStore:
        """Open the store as a server does."""
        options = StoreOptions(settings=self.settings, accept_loss=accept_loss)
        return open_store(self.backend, root, options, fs=fs, clock=self.clock, read_only=read_only)

    def clock(self) -> int:
        """Return a time after all records."""
        return self.now_ms

    def dumped(self, fs: FileSystem, root: Path = ROOT) -> tuple[Rows, Sequence[Finding]]:
        """Return the records that `dump` prints, and its findings."""
        inspector = self.inspector(fs, root)
        try:
            rows = dict(_dumped(row) for run in inspector.dump("records") for row in run)
            return rows, inspector.findings()
        finally:
            inspector.close()


def _dumped(row: Mapping[str, object]) -> tuple[tuple[TopicPartition, int], Payload]:
    names = ("queueId", "queueOffset") if "queueId" in row else ("partition", "offset")
    number, offset = (row[name] for name in names)
    assert isinstance(number, int)
    assert isinstance(offset, int)
    payload = (row["body"],) if "queueId" in row else (row["key"], row["value"], _headers(row))
    return (TopicPartition(str(row["topic"]), number), offset), payload


def _headers(row: Mapping[str, object]) -> object:
    headers = row["headers"]
    assert isinstance(headers, Sequence)
    return tuple(tuple(pair) for pair in headers)


class Served(NamedTuple):
    """The records that clients of a store receive, and the refusals that name the records they do not receive."""

    rows: Rows
    refusals: Sequence[tuple[TopicPartition, StorageError]]


def served(store: LogStore) -> Served:
    """Read every partition, skipping damaged records."""
    rows: Rows = {}
    refusals: list[tuple[TopicPartition, StorageError]] = []
    for info in store.topics().values():
        for number in info.partitions:
            address = TopicPartition(info.name, number)
            for record in _readable(store, address, refusals):
                rows[address, record.offset] = _payload(store, record)
    return Served(rows, refusals)


def _payload(store: LogStore, record: StoredRecord) -> Payload:
    if store.capabilities.messages:
        return (record.value,)
    return record.key, record.value, tuple(map(tuple, record.headers))


def _readable(
    store: LogStore,
    address: TopicPartition,
    refusals: list[tuple[TopicPartition, StorageError]],
) -> Iterator[StoredRecord]:
    try:
        bounds = store.bounds(address)
    except StorageError as error:
        refusals.append((address, error))
        return
    at: object = bounds.start
    while isinstance(at, int) and at < bounds.end:
        try:
            page = store.read(address, at, max_records=PAGE)
        except Corrupt as error:
            refusals.append((address, error))
            following = error.facts()["next_good_offset"]
            assert following is None or (isinstance(following, int) and following > at)
            at = following
            continue
        except StorageError as error:
            refusals.append((address, error))
            return
        yield from page.records
        if page.next_offset == at:
            return
        at = page.next_offset


@cache
def source(backend: str, name: str, *, clean: bool) -> Source:
    """Return a store by name, after a clean stop or after a kill if both states are available."""
    if name == "tiny":
        made = tiny.tiny(backend, clean=clean)
        settings = tiny.KAFKA_SETTINGS if backend == "kafka" else rocketmq.SMALL
        disk, now_ms = made.copy(), START_MS + 60_000
    elif backend == "kafka":
        disk, settings, now_ms = loaded(stores.KAFKA / name / "data"), {}, stores.MADE_AT_MS
        if not clean:
            disk.remove(ROOT / ".kafka_cleanshutdown")
    else:
        golden = rocketmq_stores.golden(name)
        disk, settings, now_ms = loaded(golden.root), golden.settings, rocketmq_stores.MADE_AT_MS
    for lock in LOCKS:
        if disk.exists(ROOT / lock):
            disk.remove(ROOT / lock)
    return Source(f"{name}{'' if clean else ', killed'}", backend, settings, now_ms, disk)


def loaded(folder: Path) -> Ram:
    """Return the files of a folder, in memory below ROOT."""
    disk = Ram()
    disk.make_dir(ROOT)
    for path in sorted(folder.rglob("*")):
        target = ROOT / path.relative_to(folder)
        if path.is_dir():
            disk.make_dir(target)
        else:
            disk.make_dir(target.parent)
            stores.put(disk, target, path.read_bytes())
    return disk


class Truth(NamedTuple):
    """The records of an undamaged store, and the file that each is stored in."""

    dumped: Rows
    served: Rows
    salvaged: Rows
    logged: Sequence[Payload]  # of all records in the log, including records of deleted topics
    files: Mapping[tuple[TopicPartition, int], Path]


@cache
def truth(backend: str, name: str, *, clean: bool) -> Truth:
    """Read an undamaged store in every way."""
    of = source(backend, name, clean=clean)
    dumped, _ = of.dumped(of.disk.copy())
    with of.open(of.disk.copy(), read_only=True) as store:
        rows = served(store).rows
    disk = of.disk.copy()
    inspector = of.inspector(disk)
    try:
        inspector.salvage(SALVAGED)
    finally:
        inspector.close()
    salvaged, _ = of.dumped(disk, SALVAGED)
    return Truth(dumped, rows, salvaged, list(_logged(of)), _files(of))


def _logged(of: Source) -> Iterator[Payload]:
    """Yield the content of all records in the log.

    Records of a deleted topic, or from before a partition's start, reappear if the file with that information is
    damaged.
    """
    if of.backend == "kafka":
        disk = of.disk.copy()
        if disk.exists(ROOT / LOG_STARTS):
            disk.remove(ROOT / LOG_STARTS)
        yield from of.dumped(disk)[0].values()
    else:
        inspector = of.inspector(of.disk.copy())
        try:
            rows = [row for run in inspector.dump("commitlog") for row in run if "bodyCRC" in row]
        finally:
            inspector.close()
        folder = ROOT / "commitlog"
        bases = sorted(map(int, of.disk.list_dir(folder)))
        for row in rows:
            at = row["physicalOffset"]
            assert isinstance(at, int)
            base = max(base for base in bases if base <= at)
            yield (decode_message(of.disk.read_bytes(folder / f"{base:020}"), at - base).body,)


def _files(of: Source) -> Mapping[tuple[TopicPartition, int], Path]:
    """Return the log file of each record."""
    if of.backend == "rocketmq":
        return dict(_physical_files(of))
    found: dict[tuple[TopicPartition, int], Path] = {}
    for address, offset in of.dumped(of.disk.copy())[0]:
        folder = ROOT / f"{address.topic}-{address.partition}"
        bases = sorted(int(n[:-4]) for n in of.disk.list_dir(folder) if n.endswith(".log"))
        base = max((base for base in bases if base <= offset), default=0)
        found[address, offset] = folder / f"{base:020}.log"
    return found


def _physical_files(of: Source) -> Iterator[tuple[tuple[TopicPartition, int], Path]]:
    folder = ROOT / "commitlog"
    bases = sorted(map(int, of.disk.list_dir(folder)))
    inspector = of.inspector(of.disk.copy())
    try:
        for run in inspector.dump("records"):
            for row in run:
                key, _ = _dumped(row)
                at = row["physicalOffset"]
                assert isinstance(at, int)
                yield key, folder / f"{max(base for base in bases if base <= at):020}"
    finally:
        inspector.close()
