"""Shared parts of the contract suites: opening stores of a backend in one place, and small helpers.

Owns how a test gets a store (always by the package's `storage.open_store`) and a clock that it can set; must not know a
backend's inside. Differences by design are in the store's capabilities and in tests.contract.flavours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import storage
from storage.contract import LogStore, StoreOptions
from storage.errors import IoFailure
from storage.files import FileSystem
from storage.model import AppendResult, Page, Record, StoredRecord, TopicPartition
from tests.contract.flavours import FLAVOURS, Flavour

START_MS = 1_700_000_000_000


class ManualClock:
    """A clock that a test sets."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class StoreFactory:
    """A factory of stores of a flavour, by default at the same path each time."""

    def __init__(self, flavour: Flavour, path: Path, fs: FileSystem) -> None:
        self.flavour = flavour
        self.path = path
        self.fs = fs
        self.clock = ManualClock()
        self._opened: list[LogStore] = []

    def open(
        self,
        *,
        path: Path | None = None,
        settings: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> LogStore:
        """Open or create a store; it is closed after the test at the latest."""
        store = storage.open_store(
            self.flavour.backend,
            self.path if path is None else path,
            StoreOptions(settings={**self.flavour.settings, **(settings or {})}),
            fs=self.fs,
            clock=self.clock,
            read_only=read_only,
        )
        self._opened.append(store)
        return store

    def reopen(self, store: LogStore, *, read_only: bool = False) -> LogStore:
        """Stop cleanly and start again."""
        store.close()
        return self.open(read_only=read_only)

    def after_kill(self) -> LogStore:
        """Open a copy of the files, as a new process would find them after a kill at this moment."""
        copy = self.path.with_name("after-kill")
        copy_tree(self.fs, self.path, self.fs, copy)
        return self.open(path=copy)

    def put(
        self,
        store: LogStore,
        partition: TopicPartition,
        records: Sequence[Record],
        *,
        per_append: int = 1 << 30,
    ) -> list[AppendResult]:
        """Append records, `per_append` at once, with each record's time on the store's time axis.

        Where the axis is the time of the append, the clock is set for each append, and only records of equal time share
        an append.
        """
        runs = [records[at : at + per_append] for at in range(0, len(records), per_append)]
        if store.capabilities.time_axis == "timestamp":
            return [store.append(partition, run) for run in runs]
        before_ms = self.clock.now_ms
        results = list[AppendResult]()
        for time_ms, run in ((t, list(r)) for part in runs for t, r in groupby(part, time_of)):
            self.clock.now_ms = time_ms
            results.append(store.append(partition, run))
        self.clock.now_ms = before_ms
        return results

    def open_limited(self, limit_bytes: int) -> tuple[LogStore, TopicPartition]:
        """Return a store and a partition with a limit on the size of a record."""
        limit = {self.flavour.limit: str(limit_bytes)}
        topics = self.flavour.limit_is_topics
        store = self.open(settings={} if topics else limit)
        store.create_topic("limited", 1, limit if topics else {})
        return store, TopicPartition("limited", 0)

    def close_all(self) -> None:
        for store in self._opened:
            store.close()


def copy_tree(source: FileSystem, path: Path, target: FileSystem, copy: Path) -> None:
    """Copy a directory, from one file system to another or within one.

    Files keep their holes. A lock held by this process is left out: reading its file would release it.
    """
    target.make_dir(copy)
    for name in source.list_dir(path):
        if source.is_dir(path / name):
            copy_tree(source, path / name, target, copy / name)
            continue
        try:
            data = source.read_bytes(path / name)
        except IoFailure as error:
            if error.facts()["errno"] != errno.EBUSY:
                raise
            continue
        file = target.open(copy / name, write=True, create=True)
        file.pwrite(data.rstrip(b"\0"), 0)
        file.truncate(len(data))
        file.close()


def flavour_of(store: LogStore) -> Flavour:
    """Return the flavour of the store's backend."""
    return FLAVOURS[store.capabilities.backend]


def time_of(record: Record) -> int:
    """Return the time of a record that has a time."""
    assert record.timestamp_ms is not None
    return record.timestamp_ms


def texts(*values: str) -> list[Record]:
    """Return a record for each value, without a key."""
    return [Record(None, value.encode()) for value in values]


def at_times(*times_ms: int) -> list[Record]:
    """Return a record for each time; its value is the record's index."""
    return [Record(None, str(i).encode(), (), time_ms) for i, time_ms in enumerate(times_ms)]


def append_each(
    store: LogStore, partition: TopicPartition, records: Iterable[Record]
) -> list[AppendResult]:
    """Append each record by itself."""
    return [store.append(partition, [record]) for record in records]


def read_all(
    store: LogStore, partition: TopicPartition, *, max_records: int = 500
) -> list[StoredRecord]:
    """Read all visible records, page by page."""
    bounds = store.bounds(partition)
    offset, records = bounds.start, list[StoredRecord]()
    while offset < bounds.end:
        page = store.read(partition, offset, max_records=max_records)
        assert page.next_offset > offset, "a page before the end must get on"
        records += page.records
        offset = page.next_offset
    return records


def values(records: Page | Sequence[StoredRecord]) -> list[bytes | None]:
    """Return the values of a page or of a sequence of records."""
    return [r.value for r in (records.records if isinstance(records, Page) else records)]
