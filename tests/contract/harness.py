"""What the contract suites share: opening stores of one backend in one place, and small makers.

Owns how a test gets a store (always by the package door `storage.open_store`) and a clock it can
turn; must not know a backend's inside. What a backend is let off is told by its capabilities, or
by `durable` here: the model forgets everything at close.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import storage
from storage.errors import IoFailure
from storage.files import FileSystem
from storage.interface import LogStore, StoreOptions
from storage.model import AppendResult, Page, Record, StoredRecord, TopicPartition

NOT_DURABLE = frozenset({"memory"})
START_MS = 1_700_000_000_000


class ManualClock:
    """A clock that a test turns by hand."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class StoreFactory:
    """Opens stores of one backend, by default again and again in the same place."""

    def __init__(self, backend: str, path: Path, fs: FileSystem) -> None:
        self.backend = backend
        self.path = path
        self.fs = fs
        self.clock = ManualClock()
        self._opened: list[LogStore] = []

    @property
    def durable(self) -> bool:
        return self.backend not in NOT_DURABLE

    def open(
        self,
        *,
        path: Path | None = None,
        settings: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> LogStore:
        """Open (or make) the store; it is closed after the test at the latest."""
        store = storage.open_store(
            self.backend,
            self.path if path is None else path,
            StoreOptions(settings=settings or {}),
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
        """What a new process finds if the running one is killed now: a copy of the files, opened."""
        copy = self.path.with_name("after-kill")
        copy_tree(self.fs, self.path, self.fs, copy)
        return self.open(path=copy)

    def close_all(self) -> None:
        for store in self._opened:
            store.close()


def copy_tree(source: FileSystem, path: Path, target: FileSystem, copy: Path) -> None:
    """Copy a directory, from one file system to another or within one.

    Files keep their holes. A lock held by this process is left out: reading it would drop it.
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


def texts(*values: str) -> list[Record]:
    """One record per value, without a key."""
    return [Record(None, value.encode()) for value in values]


def at_times(*times_ms: int) -> list[Record]:
    """One record per time; the value is the record's place."""
    return [Record(None, str(i).encode(), (), time_ms) for i, time_ms in enumerate(times_ms)]


def append_each(
    store: LogStore, partition: TopicPartition, records: Iterable[Record]
) -> list[AppendResult]:
    """Append record by record."""
    return [store.append(partition, [record]) for record in records]


def read_all(
    store: LogStore, partition: TopicPartition, *, max_records: int = 500
) -> list[StoredRecord]:
    """Everything readers may see, page by page."""
    bounds = store.bounds(partition)
    offset, records = bounds.start, list[StoredRecord]()
    while offset < bounds.end:
        page = store.read(partition, offset, max_records=max_records)
        assert page.next_offset > offset, "a page before the end must get on"
        records += page.records
        offset = page.next_offset
    return records


def values(records: Page | Sequence[StoredRecord]) -> list[bytes | None]:
    """The values of a page or of a run of records."""
    return [r.value for r in (records.records if isinstance(records, Page) else records)]
