"""The sparse offset index and time index of one segment, and its transaction index: index files, and their entries
in memory once these are needed.

Owns loading, lookup, appending, preallocation and trimming of `.index`, `.timeindex` and
`.txnindex`, and the one rule that selects the batches with an entry (IndexBuilder, used by appends and
by recovery alike); must not read `.log` files.

A sparse index is two arrays of numbers that ascend together, so a lookup is one bisect. The file is preallocated (as a
sparse file, as AbstractIndex does) while its segment takes appends. It is cut to its entries when the segment is rolled
or closed. So a read leaves out the hole after the entries.

New entries wait in the arrays, and lookups find them there: an append writes only the log. The file gets them at a
checkpoint (only entries of durable batches, so after a power loss no entry points beyond the log), at a roll and at a
close. A crash loses the waiting entries; recovery rebuilds them from the log. Waiting takes no memory of its own,
because the arrays hold all entries of a segment in use anyway: 12 bytes of an offset entry and 16 of a time entry for
more than `index.interval.bytes` (4096) of log, at most 7.3 MB for a segment of 1 GiB. An index file is open only
during such a write, so a partition at rest has one descriptor, that of its log.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from storage.coding.varint import INT32_MAX
from storage.errors import Corrupt, DataError, DiskFull, IoFailure
from storage.files import File, FileSystem, HandleCache, atomic_write, is_missing
from storage.kafka.format import txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.record import NO_TIMESTAMP
from storage.kafka.format.sparse_index import SparseFormat
from storage.kafka.format.txn_index import AbortedTransaction

MAX_RELATIVE_OFFSET: Final = INT32_MAX
"""An entry names an offset by its distance from the segment's base offset. A batch farther away has no entry. A segment
with such batches is split at a start (storage.kafka.log.offset_overflow). Until then a read scans it from its last
entry.
"""
_SECTOR_BYTES: Final = 512
"""A disk writes a sector whole or not at all, so a power loss leaves the old entries or the new ones."""
_PAGE_BYTES: Final = 4096
"""A file system reports data in whole pages: a file with fewer entries ends in zeros that it counts as data."""
_SLACK_BYTES: Final = 64
"""More than the size of an entry: the last entry may end in zeros, and these may be in a hole of the file."""


Entries: TypeAlias = Sequence[tuple[int, int]]


class SparseIndex:
    """An index file of ascending (key, value) entries.

    Offset index: (relative last offset, position); time index: (timestamp, relative last offset).
    Thread-safe for one writer (under the partition's append lock) and many readers: an entry's value is appended
    before its key, and readers bisect the keys.
    """

    def __init__(
        self,
        files: HandleCache,
        path: Path,
        entry_format: SparseFormat,
        *,
        max_bytes: int,
        remake: Callable[[], Entries],
        holds: Callable[[Entries], bool] | None = None,
    ) -> None:
        """Create the index without reading its file. `remake` rebuilds the entries from the log if the file is damaged.
        `holds` returns whether entries that were read can belong to the log.
        """
        self.path = path
        self._remake = remake
        self._holds = holds
        self.max_entries = max_bytes // entry_format.entry_size
        self._files = files
        self._format = entry_format
        self._keys: array[int] | None = None
        self._values: array[int] = array("q")
        self._written = 0  # number of entries in the file
        self._preallocated = False
        self._remade = False  # True: the file is damaged, and the entries come from the log
        self._loading = threading.Lock()

    def _loaded(self) -> array[int]:
        """Return the keys. The first call reads the file."""
        keys = self._keys
        if keys is None:
            with self._loading:
                if self._keys is None:
                    self.hold(self._read())
                keys = self._keys
                assert keys is not None
        return keys

    def _read(self) -> Entries:
        """Return the file's entries, or entries rebuilt from the log if the file is damaged. The broker does not check
        entries when it loads a file; a damaged file would lead reads to wrong positions.
        """
        with closing(self._files.fs.open(self.path)) as file:
            data = index_bytes(file)
        with suppress(DataError):
            entries = self._format.decode_entries(data)
            if self._holds is None or self._holds(entries):
                return entries
        self._remade = True
        return self._remake()

    def hold(self, entries: Sequence[tuple[int, int]]) -> None:
        """Use these as the file's entries; the file is then not read. A new index has none."""
        self._values = array("q", [value for _, value in entries])
        self._written = len(entries)
        self._keys = array(self._format.key_type, [key for key, _ in entries])

    def release(self) -> None:
        """Drop the entries from memory. The next use reads the file again."""
        self._keys = None
        self._remade = False

    @property
    def held(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """The keys and values in memory, not to be changed; None while they are not loaded."""
        keys = self._keys
        return None if keys is None else (keys, self._values)

    def __len__(self) -> int:
        keys = self._keys
        return len(self._loaded() if keys is None else keys)

    def entries(self) -> Sequence[tuple[int, int]]:
        """Return all entries, ascending."""
        keys = self._loaded()
        return list(zip(keys, self._values, strict=False))

    def last(self) -> tuple[int, int] | None:
        """Return the newest entry; None in an empty index."""
        keys = self._loaded()
        count = len(keys)
        return (keys[count - 1], self._values[count - 1]) if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """Return the entry with the greatest key <= `key`; None without such an entry."""
        keys = self._loaded()
        at = bisect_right(keys, key) - 1
        return (keys[at], self._values[at]) if at >= 0 else None

    def append(self, key: int, value: int) -> None:
        """Add an entry in memory; `write` or `trim` writes it to the file."""
        keys = self._loaded()
        self._values.append(value)  # before the key: readers bisect the keys without a lock
        keys.append(key)

    def create(self) -> None:
        """Create the file, empty, or empty it."""
        with closing(self._files.fs.open(self.path, write=True, create=True)) as file:
            file.truncate(0)
        self.hold(())

    def prepare(self) -> None:
        """Make the index ready for appends: load it, rewrite a damaged file, and extend the file (sparsely) to its full
        size.
        """
        count = len(self._loaded())
        self.mend()
        if not self._preallocated:
            with self._writing() as file:
                file.truncate(max(self.max_entries, count) * self._format.entry_size)
            self._preallocated = True

    def write(self, count: int) -> None:
        """Write the waiting entries among the first `count`, without a sync. `trim` syncs them:
        fdatasync covers all writes of a file, also through other descriptors.
        """
        if count > self._written:
            with self._writing() as file:
                self._write_to(file, count)

    def _write_to(self, file: File, count: int) -> None:
        keys, start = self._loaded(), self._written
        data = self._format.encode_entries(keys[start:count], self._values[start:count])
        if data:
            file.pwrite(data, start * self._format.entry_size)
        self._written = count

    @contextmanager
    def _writing(self) -> Iterator[File]:
        """Open the file for writing. A file that was removed is created, and the next write is of all entries."""
        try:
            file = self._files.fs.open(self.path, write=True)
        except IoFailure as error:
            if not is_missing(error):
                raise
            self._written = 0
            file = self._files.fs.open(self.path, write=True, create=True)
        with closing(file):
            yield file

    def replace(self, entries: Sequence[tuple[int, int]], *, sync_dir: bool = True) -> None:
        """Write a file with exactly these entries, without preallocation; durable on return. For recovery's rebuild.

        `sync_dir` False: durable only after the caller's sync of the directory.
        """
        data = b"".join(self._format.encode_entry(key, value) for key, value in entries)
        if not self._complete(data):
            _replace_file(self._files, self.path, data, sync_dir=sync_dir)
        self.hold(entries)
        self._preallocated = self._remade = False

    def _complete(self, data: bytes) -> bool:
        """Write only what the file lacks of `data`, and cut it, if a disk does so in one step: after a kill, the
        indexes of most segments in use are whole or lack their last entries. Return False if the file has to be
        replaced. One sync takes the place of a new file, its sync and a rename.
        """
        if len(data) > _SECTOR_BYTES or not self._files.fs.exists(self.path):
            return False
        with closing(self._files.fs.open(self.path, write=True)) as file:
            if file.data_end(0) > _PAGE_BYTES:
                return False
            there = file.pread(min(_PAGE_BYTES, file.size()), 0).rstrip(b"\0")
            if not data.startswith(there):
                return False
            if there != data:
                file.pwrite(data[len(there) :], len(there))
            if file.size() != len(data):
                file.truncate(len(data))
            file.datasync()  # also of what a killed process has written
        return True

    def mend(self) -> None:
        """Rewrite the file if it was damaged and its entries were rebuilt from the log."""
        if self._remade:
            self.replace(self.entries())

    def trim(self) -> None:
        """Write the waiting entries, cut the file to its entries and sync it: at a roll and at a clean close. An index
        that is not loaded is left as it is.
        """
        if self._keys is None:
            return
        self.mend()
        count = len(self._loaded())
        size_bytes = count * self._format.entry_size
        with self._writing() as file:
            self._write_to(file, count)
            if file.size() != size_bytes:
                file.truncate(size_bytes)
            file.datasync()
        self._preallocated = False


class IndexBuilder:
    """The rule that selects the batches with an index entry, as in LogSegment.append and LogSegment.recover.

    Per batch, in order: if more than `interval_bytes` were added since the last entry, this batch gets an
    entry; then its size is added. So the first batch never has an entry. The time index may get an entry with
    each offset entry, and once more at the end. It gets an entry only if the maximum timestamp so
    far is above the timestamp of its last entry.
    """

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = -1  # last offset of the first batch with that timestamp
        self._bytes_since_entry = 0

    def add(self, header: BatchHeader) -> bool:
        """Add the next batch; return whether it gets an offset entry."""
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        indexed = self._bytes_since_entry > self.interval_bytes
        if indexed:
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        return indexed

    def wants_time_entry(self, last: tuple[int, int] | None) -> bool:
        """Return whether a time index with the newest entry `last` needs an entry for the maximum timestamp so far."""
        return self.max_timestamp_ms > (NO_TIMESTAMP if last is None else last[0])


class RebuiltIndexes(NamedTuple):
    """The entries of both sparse indexes of a segment (relative offsets), rebuilt by a scan of its log, with the
    closing time entry.
    """

    offsets: Sequence[tuple[int, int]]
    times: Sequence[tuple[int, int]]
    max_timestamp_ms: int
    max_timestamp_offset: int


class IndexRebuild:
    """The index entries of a segment, collected batch by batch in the order of its log, as LogSegment.recover builds
    them. Offsets too large for an entry get no entry.
    """

    def __init__(self, *, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._builder = IndexBuilder(interval_bytes)
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []

    def add(self, position: int, header: BatchHeader) -> None:
        """Add the next batch."""
        relative_offset = header.last_offset - self._base_offset
        if self._builder.add(header) and relative_offset <= MAX_RELATIVE_OFFSET:
            self._offsets.append((relative_offset, position))
            self._add_time()

    def _add_time(self) -> None:
        builder, times = self._builder, self._times
        relative_offset = builder.max_timestamp_offset - self._base_offset
        is_wanted = builder.wants_time_entry(times[-1] if times else None)
        if is_wanted and relative_offset <= MAX_RELATIVE_OFFSET:
            times.append((builder.max_timestamp_ms, relative_offset))

    def finish(self) -> RebuiltIndexes:
        """Add the closing time entry and return all entries."""
        self._add_time()
        builder = self._builder
        return RebuiltIndexes(
            self._offsets, self._times, builder.max_timestamp_ms, builder.max_timestamp_offset
        )


def rebuild_indexes(
    batches: Iterable[tuple[int, BatchHeader]], *, base_offset: int, interval_bytes: int
) -> RebuiltIndexes:
    """Return the index entries of a segment with these (position, header) pairs; see IndexRebuild."""
    rebuild = IndexRebuild(base_offset=base_offset, interval_bytes=interval_bytes)
    for position, header in batches:
        rebuild.add(position, header)
    return rebuild.finish()


class TransactionIndex:
    """The transaction index of one segment: the aborted transactions with their marker in this segment, in marker
    order. The file exists from the first entry on.
    """

    def __init__(self, files: HandleCache, path: Path, *, exists: bool) -> None:
        self.path = path
        self._files = files
        self._entries: list[AbortedTransaction] | None = None if exists else []

    @property
    def is_loaded(self) -> bool:
        """Whether `entries` reads no file."""
        return self._entries is not None

    def entries(self) -> Sequence[AbortedTransaction]:
        """Return all entries. The first call reads the file.

        Raises Corrupt, with the path of the file: the entries cannot be rebuilt from this segment's log
        alone, because a transaction may begin in an earlier segment.
        """
        if self._entries is None:
            with self._files.borrow(self.path) as file:
                data = file.pread(file.size(), 0)
            try:
                self._entries = list(txn_index.decode_entries(data))
            except DataError as error:
                facts = {**error.facts(), "path": str(self.path)}
                raise Corrupt(f"{self.path}: {error.message}", **facts) from error
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry, in memory and in the file; not durable until `sync`.

        A full disk is an IoFailure here, not DiskFull: the marker is in the log already, so the transaction that it
        ends has to be in the index.
        """
        entries = self.entries()
        try:
            with self._files.borrow(self.path, write=True, create=True) as file:
                file.pwrite(txn_index.encode_entry(entry), len(entries) * txn_index.ENTRY_SIZE)
        except DiskFull as error:
            raise IoFailure(error.message, **error.facts()) from error
        self.hold([*entries, entry])

    def hold(self, entries: Sequence[AbortedTransaction]) -> None:
        """Use these as the file's entries; the file is then not read."""
        self._entries = list(entries)

    def replace(self, entries: Sequence[AbortedTransaction]) -> None:
        """Write a file with exactly these entries; durable on return. Without entries no file is written."""
        if entries:
            data = b"".join(map(txn_index.encode_entry, entries))
            _replace_file(self._files, self.path, data)
        self.hold(entries)

    def sync(self) -> None:
        """Make the file durable, if there are entries."""
        if self._entries:
            with self._files.borrow(self.path, write=True) as file:
                file.datasync()


def _replace_file(files: HandleCache, path: Path, data: bytes, *, sync_dir: bool = True) -> None:
    """Replace a file atomically; durable on return. The next start would trust a half-written file."""
    atomic_write(files.fs, path, data, sync_dir=sync_dir)
    files.forget(path, sync=False)


class ReadsFiles(Protocol):
    """A reader of whole files: a file system, or an `IndexReader`."""

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a file; zeros at its end may be left out."""


def index_bytes(file: File) -> bytes:
    """Return the content of an index file up to its last data, with at most `_SLACK_BYTES` zeros after that."""
    return file.pread(min(file.data_end(0) + _SLACK_BYTES, file.size()), 0)


class IndexReader:
    """A reader of index files that do not change meanwhile: several checks of a start read the same file. It keeps the
    last file of each kind in memory.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._last: dict[str, tuple[Path, bytes]] = {}

    def read_bytes(self, path: Path) -> bytes:
        known = self._last.get(path.suffix)
        if known is not None and known[0] == path:
            return known[1]
        file = self._fs.open(path)
        try:
            data = index_bytes(file)
        finally:
            file.close()
        self._last[path.suffix] = path, data
        return data


def modification_time_ms(fs: FileSystem, path: Path) -> int:
    """Return a file's modification time, the time of a segment without time entries; 0 if it cannot be read."""
    try:
        return fs.mtime_ms(path)
    except IoFailure:
        return 0
