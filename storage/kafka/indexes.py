"""The sparse offset index and time index of one segment: entries in memory once needed, and the
file behind them.

Owns loading, lookup, appending, preallocation and trimming of `.index`, `.timeindex` and
`.txnindex`, and the one rule that says which batch gets an entry (IndexBuilder, used by appends and
by recovery alike). Must not read `.log` files.

A sparse index is two arrays of numbers that rise together, so a lookup is one bisect; at 10 MiB a
full index holds 1.3 M entries in 10 MiB of memory. It is preallocated (sparsely, as AbstractIndex
does) while its segment takes appends and cut to its entries when the segment is rolled or closed.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from storage.errors import Corrupt, DataError, DiskFull, IoFailure
from storage.files import FileSystem, HandleCache, atomic_write
from storage.kafka.format import offset_index, time_index, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index_reading import index_bytes

NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1
"""An entry names an offset by its distance from the segment's base. A batch farther away has none: a segment with such
batches is split at a start (storage.kafka.overflow), and read by a scan from its last entry until then."""


class EntryFormat(Protocol):
    """What a module of storage.kafka.format gives for one kind of index."""

    ENTRY_SIZE: int

    def encode_entry(self, first: int, second: int, /) -> bytes: ...

    def decode_entries(self, data: bytes, /) -> Sequence[tuple[int, int]]: ...


Entries: TypeAlias = Sequence[tuple[int, int]]


class SparseIndex:
    """Rising (key, value) entries of one index file.

    Offset index: (relative last offset, position); time index: (timestamp, relative last offset).
    One writer (under the partition's append lock) and many readers: an entry's value is appended
    before its key, and readers bisect the keys.
    """

    def __init__(
        self,
        files: HandleCache,
        path: Path,
        entry_format: EntryFormat,
        *,
        max_bytes: int,
        key_type: str,
        remake: Callable[[], Entries],
        holds: Callable[[Entries], bool] | None = None,
    ) -> None:
        """`remake` gives the entries from the log, should the file be damaged; `holds`: whether what was read can be
        the log's.
        """
        self.path = path
        self._remake = remake
        self._holds = holds
        self.max_entries = max_bytes // entry_format.ENTRY_SIZE
        self._files = files
        self._format = entry_format
        self._key_type = key_type
        self._keys: array[int] | None = None
        self._values: array[int] = array("q")
        self._written = 0  # entries that are in the file
        self._preallocated = False
        self._remade = False  # the file is still the damaged one
        self._loading = threading.Lock()

    def _loaded(self) -> array[int]:
        """The keys; reads the file the first time."""
        keys = self._keys
        if keys is None:
            with self._loading:
                if self._keys is None:
                    self.hold(self._read())
                keys = self._keys
                assert keys is not None
        return keys

    def _read(self) -> Entries:
        """The file's entries. The broker does not look at them when it loads; a damaged file would
        send reads astray.
        """
        with self._files.borrow(self.path) as file:
            data = index_bytes(file)
        with suppress(DataError):
            entries = self._format.decode_entries(data)
            if self._holds is None or self._holds(entries):
                return entries
        self._remade = True
        return self._remake()

    def hold(self, entries: Sequence[tuple[int, int]]) -> None:
        """Take these for the file's entries, which need not be read then."""
        self._values = array("q", [value for _, value in entries])
        self._written = len(entries)
        self._keys = array(self._key_type, [key for key, _ in entries])

    def start_empty(self) -> None:
        """A new index: nothing to load."""
        self.hold(())

    def release(self) -> None:
        """Forget the entries; the file is read when they are needed again."""
        self._keys = None
        self._remade = False

    @property
    def held(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """Keys and values, not to be changed; None as long as nobody needed them."""
        keys = self._keys
        return None if keys is None else (keys, self._values)

    def __len__(self) -> int:
        return len(self._loaded())

    def entries(self) -> Sequence[tuple[int, int]]:
        """All entries, ascending."""
        keys = self._loaded()
        return list(zip(keys, self._values, strict=False))

    def last(self) -> tuple[int, int] | None:
        """The newest entry."""
        keys = self._loaded()
        count = len(keys)
        return (keys[count - 1], self._values[count - 1]) if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The entry with the greatest key <= `key`."""
        keys = self._loaded()
        at = bisect_right(keys, key) - 1
        return (keys[at], self._values[at]) if at >= 0 else None

    def append(self, key: int, value: int) -> None:
        """Add an entry in memory; `write` puts it into the file."""
        keys = self._loaded()
        self._values.append(value)
        keys.append(key)

    def write(self) -> None:
        """Put new entries into the file, which is first extended (sparsely) to its full size."""
        keys = self._loaded()
        self.mend()
        count = len(keys)
        if count == self._written and self._preallocated:
            return
        size = self._format.ENTRY_SIZE
        encode = self._format.encode_entry
        data = b"".join(encode(keys[i], self._values[i]) for i in range(self._written, count))
        with self._files.borrow(self.path, write=True) as file:
            if not self._preallocated:
                file.truncate(max(self.max_entries, count) * size)
                self._preallocated = True
            if data:
                file.pwrite(data, self._written * size)
        self._written = count

    def truncate(self, count: int) -> None:
        """Forget the entries behind the first `count`, in memory and in the file."""
        keys = self._loaded()
        del keys[count:], self._values[count:]
        if self._written > count:
            with self._files.borrow(self.path, write=True) as file:
                file.truncate(count * self._format.ENTRY_SIZE)
            self._written = count
            self._preallocated = False

    def replace(self, entries: Sequence[tuple[int, int]]) -> None:
        """Make the file hold exactly these entries, trimmed and synced (recovery's rebuild)."""
        data = b"".join(self._format.encode_entry(key, value) for key, value in entries)
        _replace_file(self._files, self.path, data)
        self.hold(entries)
        self._preallocated = self._remade = False

    def mend(self) -> None:
        """Where the file was damaged, so that its entries were made anew: put them into it."""
        if self._remade:
            self.replace(self.entries())

    def trim(self) -> None:
        """Cut the file to its entries and sync it: at roll and at a clean close. Untouched files
        stay as they are.
        """
        if self._keys is None:
            return
        size_bytes = len(self._loaded()) * self._format.ENTRY_SIZE
        with self._files.borrow(self.path, write=True) as file:
            if file.size() != size_bytes:
                file.truncate(size_bytes)
            file.datasync()
        self._preallocated = False


class IndexBuilder:
    """Which batches get an entry: the rule of LogSegment.append and LogSegment.recover, in one
    place.

    Per batch, in order: if more than `interval_bytes` went by since the last entry, this batch gets
    one; then its size is added. So the first batch never has an entry. The time index is tried with
    each offset entry and once more at the end, and takes an entry only if the maximum timestamp so
    far is above its last one.
    """

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = -1  # last offset of the batch that first reached it
        self._bytes_since_entry = 0

    def add(self, header: BatchHeader) -> bool:
        """Take one more batch into account; True when it gets an offset entry."""
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        indexed = self._bytes_since_entry > self.interval_bytes
        if indexed:
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        return indexed

    def wants_time_entry(self, last: tuple[int, int] | None) -> bool:
        """Whether the maximum so far belongs into a time index whose newest entry is `last`."""
        return self.max_timestamp_ms > (NO_TIMESTAMP if last is None else last[0])


class RebuiltIndexes(NamedTuple):
    """Both indexes of a segment as a scan of its log makes them (relative offsets), with the
    closing time entry.
    """

    offsets: Sequence[tuple[int, int]]
    times: Sequence[tuple[int, int]]
    max_timestamp_ms: int
    max_timestamp_offset: int


def rebuild_indexes(
    batches: Iterable[tuple[int, BatchHeader]], *, base_offset: int, interval_bytes: int
) -> RebuiltIndexes:
    """The index entries of a segment made of these (position, header) pairs, as LogSegment.recover
    makes them; none for offsets that an entry cannot hold.
    """
    builder = IndexBuilder(interval_bytes)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []

    def add_time() -> None:
        relative_offset = builder.max_timestamp_offset - base_offset
        is_wanted = builder.wants_time_entry(times[-1] if times else None)
        if is_wanted and relative_offset <= MAX_RELATIVE_OFFSET:
            times.append((builder.max_timestamp_ms, relative_offset))

    for position, header in batches:
        if builder.add(header) and header.last_offset - base_offset <= MAX_RELATIVE_OFFSET:
            offsets.append((header.last_offset - base_offset, position))
            add_time()
    add_time()
    return RebuiltIndexes(offsets, times, builder.max_timestamp_ms, builder.max_timestamp_offset)


class TransactionIndex:
    """The aborted transactions whose marker lies in one segment, in marker order; the file exists
    from the first on.
    """

    def __init__(self, files: HandleCache, path: Path, *, exists: bool) -> None:
        self.path = path
        self._files = files
        self._entries: list[AbortedTransaction] | None = None if exists else []

    def entries(self) -> Sequence[AbortedTransaction]:
        """All entries; reads the file the first time.

        Raises Corrupt, with the file: what was aborted cannot be told from this segment's log
        alone, so there is nothing to fall back on.
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
        """Add one entry, in memory and in the file.

        A full disk is an IoFailure here: the marker is in the log, so that what it ends has to be
        in the index.
        """
        entries = self.entries()
        try:
            with self._files.borrow(self.path, write=True, create=True) as file:
                file.pwrite(txn_index.encode_entry(entry), len(entries) * txn_index.ENTRY_SIZE)
        except DiskFull as error:
            raise IoFailure(error.message, **error.facts()) from error
        self.hold([*entries, entry])

    def hold(self, entries: Sequence[AbortedTransaction]) -> None:
        """Take these for the file's entries, which need not be read then."""
        self._entries = list(entries)

    def replace(self, entries: Sequence[AbortedTransaction]) -> None:
        """Make the file hold exactly these; none: no file."""
        if entries:
            data = b"".join(map(txn_index.encode_entry, entries))
            _replace_file(self._files, self.path, data)
        self.hold(entries)

    def sync(self) -> None:
        """Make the file durable, if there is one."""
        if self._entries:
            with self._files.borrow(self.path, write=True) as file:
                file.datasync()


def _replace_file(files: HandleCache, path: Path, data: bytes) -> None:
    """Durably, and whole at every moment: a half file would be believed at the next start."""
    atomic_write(files.fs, path, data)
    files.forget(path, sync=False)


def open_offset_index(
    files: HandleCache, path: Path, *, max_bytes: int, remake: Callable[[], Entries]
) -> SparseIndex:
    """The `.index` of one segment."""
    return SparseIndex(files, path, offset_index, max_bytes=max_bytes, key_type="i", remake=remake)


def open_time_index(
    files: HandleCache,
    path: Path,
    *,
    max_bytes: int,
    remake: Callable[[], Entries],
    holds: Callable[[Entries], bool] | None = None,
) -> SparseIndex:
    """The `.timeindex` of one segment."""
    return SparseIndex(
        files, path, time_index, max_bytes=max_bytes, key_type="q", remake=remake, holds=holds
    )


def modification_time_ms(fs: FileSystem, path: Path) -> int:
    """A file's time, which stands in for the time of a segment without time entries; 0 when it is
    gone.
    """
    try:
        return fs.mtime_ms(path)
    except IoFailure:
        return 0
