"""The key index of a store: a run of index files that lead from strings to records of the log.

Owns which file takes an entry, how a file follows another, and queries over all files (IndexService
of RocketMQ); must not read the log, so query results are physical offsets at which a record with the
wanted string may be stored. Entries are durable only when their file is full or after `sync`: after a
crash the files that are newer than the checkpoint are rebuilt from the log.

One writer at a time (`_lock`); readers at any time: they see all entries that were put, on disk or not.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from storage.coding.varint import INT64_MAX
from storage.contract import Clock
from storage.errors import Corrupt, IoFailure, StorageError
from storage.files import HandleCache, remove_if_present
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format.index_file import IndexHeader, file_size, index_string, key_hash
from storage.rocketmq.format.names import index_name, parse_index_name
from storage.rocketmq.index.key_index_file import ALWAYS, DoubtedIndex, KeyIndexFile, TimeRange
from storage.rocketmq.index.key_index_table import KeyIndexTable
from storage.rocketmq.index.record_pass import STRING, STRING_SIZE

TAIL_BYTES: Final = 4 << 20  # of entries in memory; at this size they are written


class SettledFile(NamedTuple):
    """A file at one moment. `slots`: a copy of the slots in memory; None: as they are in the file."""

    file: KeyIndexFile
    header: IndexHeader
    slots: array[int] | None


class KeyIndex:
    """The index files of one folder, created with the first record. Call `load` before any other method."""

    def __init__(
        self, files: HandleCache, directory: Path, *, slots: int, entries: int, clock: Clock
    ) -> None:
        """`clock` names new files (by local time)."""
        self.directory = directory
        self.slots = slots
        self.entries = entries
        self.findings: Sequence[Finding] = ()
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()  # held for every change of a file or of the run
        self._run: tuple[
            KeyIndexFile, ...
        ] = ()  # oldest first; replaced as a whole, under the lock
        self._table: KeyIndexTable | None = None  # of the last file, after the first put
        self._misfits: Sequence[Path] = ()
        self._folders: Sequence[Path] = ()  # folders that have names of index files
        # Where a put was interrupted: records before this offset are in the index already, and this
        # many strings of the record at it.
        self._resume: tuple[int, int] | None = None

    # ---- the run ----

    def load(self) -> None:
        """Read the headers of the existing files. Entries that were put and not synced are discarded.

        Files with unknown names are left alone, and files of another length are neither read nor written;
        `findings` reports both.
        """
        fs = self._files.fs
        names = fs.list_dir(self.directory) if fs.is_dir(self.directory) else ()
        run: list[KeyIndexFile] = []
        findings: list[Finding] = []
        misfits: list[Path] = []
        folders: list[Path] = []
        for name in names:
            path = self.directory / name
            try:
                if parse_index_name(name) is None or fs.is_dir(path):
                    what = "no name of an index file"
                    findings.append(finding("unknown-file", path, message=what))
                    folders += [path] if parse_index_name(name) is not None else []
                    continue
                run.append(KeyIndexFile(self._files, path, slots=self.slots, entries=self.entries))
            except (Corrupt, IoFailure) as error:
                misfits.append(path)
                findings.append(_misfit(path, error))
        with self._lock:
            self._run, self._misfits, self.findings = tuple(run), misfits, findings
            self._folders = folders
            self._table = self._resume = None

    def look_at(self, paths: Sequence[Path]) -> None:
        """Set the files as given, without reading the folder. For reading only."""
        self._run = tuple(
            KeyIndexFile(self._files, path, slots=self.slots, entries=self.entries)
            for path in paths
        )

    @property
    def index_files(self) -> Sequence[KeyIndexFile]:
        """The files, oldest first."""
        return self._run

    @property
    def misfits(self) -> Sequence[Path]:
        """The paths of files that cannot be read, including other objects with the name of an index file."""
        return self._misfits

    @property
    def are_longer(self) -> bool:
        """Whether a file is longer than `slots` and `entries` require."""
        fs, expected = self._files.fs, file_size(self.slots, self.entries)
        for path in self._misfits:
            with suppress(IoFailure):
                if not fs.is_dir(path) and fs.size(path) > expected:
                    return True
        return False

    def set_aside(self, file: KeyIndexFile, error: StorageError) -> None:
        """Remove an unreadable file from the run: it is neither read nor written any more."""
        with self._lock:
            self._run = tuple(other for other in self._run if other is not file)
            self._misfits = [*self._misfits, file.path]
            self.findings = [*self.findings, _misfit(file.path, error)]
            file.doubt()

    def remove_misfits(self) -> None:
        """Remove the unreadable files, if regular files; the caller must put their entries again."""
        fs = self._files.fs
        for path in self._misfits:
            with suppress(IoFailure):  # not a regular file
                fs.size(path)
                fs.remove(path)
                self._files.forget(path, sync=False)
        if self._misfits:
            fs.sync_dir(self.directory)

    def settled(self) -> Sequence[SettledFile]:
        """Return the files at one moment, after all their entries were written (not synced)."""
        with self._lock:
            if self._table is not None:
                self._run[-1].write_entries()
            return [SettledFile(file, file.header, self._slots_of_last(file)) for file in self._run]

    def _slots_of_last(self, file: KeyIndexFile) -> array[int] | None:
        table = self._table
        return None if table is None or file is not self._run[-1] else array("i", table.slots)

    def doubted_ranges(self) -> Sequence[tuple[int, int]]:
        """Return the first and last record of each file that lookups used before it became doubted."""
        lost = [file.header for file in self._run if file.is_doubted and file.is_asked]
        return [(header.begin_physical_offset, header.end_physical_offset) for header in lost]

    @property
    def max_physical_offset(self) -> int:
        """The physical offset of the record that was put last; -1 without files."""
        run = self._run
        return run[-1].header.end_physical_offset if run else -1

    @property
    def end_timestamp_ms(self) -> int:
        """The store time of the record that was put last; 0 without files."""
        run = self._run
        return run[-1].header.end_timestamp_ms if run else 0

    def headers(self) -> Sequence[tuple[str, IndexHeader]]:
        """Return (name, header) of every file, oldest first."""
        return [(file.path.name, file.header) for file in self._run]

    def remove_named(self, names: Collection[str]) -> int:
        """Remove the files with these names and return their number. The caller must put their entries
        again.
        """
        with self._lock:
            return self._drop([file for file in self._run if file.path.name in names])

    def delete_before(self, physical_offset: int) -> int:
        """Remove the oldest files while all their records are before this offset, and return their
        number. The last file stays.
        """
        with self._lock:
            doomed: list[KeyIndexFile] = []
            for file in self._run[:-1]:
                if file.header.end_physical_offset >= physical_offset:
                    break
                doomed.append(file)
            return self._drop(doomed)

    def _drop(self, doomed: Sequence[KeyIndexFile]) -> int:
        """Remove files from the run, then from the disk. Durable on return."""
        if not doomed:
            return 0
        if self._run[-1] in doomed:
            self._table = None
        self._run = tuple(file for file in self._run if file not in doomed)
        for file in doomed:
            file.is_removed = True
            remove_if_present(self._files.fs, file.path)
            self._files.forget(file.path, sync=False)
        self._files.fs.sync_dir(self.directory)
        return len(doomed)

    # ---- writing ----

    def put_strings(self, strings: bytes) -> None:
        """Index strings, as record_pass.py draws them, of records in the order of the log. Records before the last
        record that was put are skipped: they are in the index already. A record without strings (a rolled back
        record) may still create a file.

        Creates the next file when a file is full; the full file is then on disk. Raises DiskFull,
        IoFailure. After an error the caller may pass the same records again: no string is put twice.
        """
        with self._lock:
            position = self._resumed(strings)
            while position < len(strings):
                table = self._table
                if table is None or table.is_full:
                    with self._resuming_at(*_before(strings, position)):
                        table = self._open_table()
                position = table.put_strings(strings, position)
            table = self._table
            if table is not None and len(table.tail[1]) > TAIL_BYTES:
                with self._resuming_at(table.end_physical_offset + 1, 0):
                    self._run[-1].write_entries()

    def _resumed(self, strings: bytes) -> int:
        """Return the position of the first string to put, after the part that was put before an error."""
        if self._resume is None:
            return 0
        offset, done = self._resume
        for position in range(0, len(strings), STRING_SIZE):
            _, physical_offset, _ = STRING.unpack_from(strings, position)
            if physical_offset > offset or (physical_offset == offset and not done):
                self._resume = None
                return position
            if physical_offset == offset:
                done -= 1
        return len(strings)

    @contextmanager
    def _resuming_at(self, physical_offset: int, strings: int) -> Iterator[None]:
        """Record, if the block fails, that records up to here must not be put again."""
        try:
            yield
        except StorageError:
            self._resume = (physical_offset, strings)
            raise

    def _open_table(self) -> KeyIndexTable:
        """Return the table of a file with room: the last file, or a new file after it."""
        self._table = None
        run = self._run
        if not run or run[-1].is_full:
            if run:
                self._finish(run[-1])
            run = (*run, self._create(run))
            self._run = run
        elif len(run) > 1 and not run[-1].has_entries:
            run[-1].begin_behind(run[-2].header)  # its header may never have reached the disk
        try:
            self._table = run[-1].open_table()
        except IoFailure:
            if not run[-1].has_entries:
                raise
            run[-1].doubt()  # it cannot be read: continue in a new file
            self._run = (*run, self._create(run))
            self._table = self._run[-1].open_table()
        return self._table

    def _finish(self, file: KeyIndexFile) -> None:
        """Write a full file to the disk, synced, and release its memory."""
        file.write_back()
        file.sync()
        file.close_table()

    def _create(self, run: Sequence[KeyIndexFile]) -> KeyIndexFile:
        """Create the file after the files of the run; its name is durable on return."""
        fs = self._files.fs
        if not fs.exists(self.directory):
            fs.make_dir(self.directory)
            fs.sync_dir(self.directory.parent)
        taken = (*self._misfits, *self._folders, *(file.path for file in run))
        names = [path.name for path in taken]
        name = index_name(self._clock(), after=max(names, default=None))
        inherited = run[-1].header if run else IndexHeader()
        path = self.directory / name
        file = KeyIndexFile.create(
            self._files, path, inherited, slots=self.slots, entries=self.entries
        )
        fs.sync_dir(self.directory)
        return file

    def write_back(self) -> None:
        """Write all entries that were put to the files; not synced. Raises DiskFull, IoFailure."""
        with self._lock:
            if self._table is not None:
                self._run[-1].write_back()

    def sync(self) -> None:
        """Write and sync all entries that were put."""
        with self._lock:
            if self._run:
                last = self._run[-1]
                last.write_back()
                last.sync()

    # ---- queries ----

    def query_raw(
        self,
        topic: str,
        key: str,
        *,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> list[int]:
        """Return physical offsets as RocketMQ's index does: newest files first, at most `max_count`. Times
        count in whole seconds. Other keys with the same hash and offsets of deleted records are included.
        `index_type` "T": `key` is a tag.
        """
        hashed = key_hash(index_string(topic, key, index_type))
        while True:
            try:
                return self._select(hashed, TimeRange(begin_ms, end_ms), max_count)
            except DoubtedIndex:  # RocketMQ uses a damaged file too
                continue

    def _select(self, hashed: int, times: TimeRange, max_count: int) -> list[int]:
        found: list[int] = []
        for file in reversed(self._run):
            header = file.header
            if _takes_part(header, times):
                found += file.select(hashed, times, max_count - len(found))
            if header.begin_timestamp_ms < times.begin_ms or len(found) >= max_count:
                break
        return found

    def candidates(
        self,
        text: str,
        *,
        low: int = 0,
        high: int = INT64_MAX,
        times: TimeRange = ALWAYS,
        backward: bool = False,
    ) -> Iterator[int]:
        """Yield physical offsets in [low, high) at which a record with this indexed string, stored in the
        time range, may be: ascending (descending if `backward`), each once.

        Only files that are trusted, or that this process wrote, are searched. In ranges that the index covers no record
        is missed (see storage.rocketmq.index.index_coverage), despite whole seconds in entries and store times that go
        backwards. The caller must compare the record's real string. Raises DoubtedIndex.
        """
        hashed = key_hash(text)
        last = -1
        for file in reversed(self._run) if backward else self._run:
            header = file.header
            if file.is_doubted or not file.is_asked:
                continue
            outside = header.end_physical_offset < low or header.begin_physical_offset >= high
            if outside and file.is_trusted:
                continue
            offsets: Iterable[int] = _or_doubted(file, file.candidates(hashed, times, low))
            if not backward:  # a chain can only be walked from its newest end
                offsets = reversed(array("q", offsets))
            for offset in offsets:
                if offset < high and offset != last:
                    last = offset
                    yield offset


def _or_doubted(file: KeyIndexFile, offsets: Iterator[int]) -> Iterator[int]:
    """Yield the offsets from a file. Raises DoubtedIndex if the file cannot be read."""
    try:
        yield from offsets
    except IoFailure as error:
        file.doubt()
        raise DoubtedIndex(f"{file.path}: {error.message}") from error


def _before(strings: bytes, position: int) -> tuple[int, int]:
    """Return (physical offset of the record whose string is at `position`, number of its strings before it)."""
    _, physical_offset, _ = STRING.unpack_from(strings, position)
    count = 0
    while position:
        position -= STRING_SIZE
        if STRING.unpack_from(strings, position)[1] != physical_offset:
            break
        count += 1
    return physical_offset, count


def _takes_part(header: IndexHeader, times: TimeRange) -> bool:
    """Return the result of IndexFile.isTimeMatched: the file is inside the range, or an end of it is in the file."""
    begin_ms, end_ms = header.begin_timestamp_ms, header.end_timestamp_ms
    return (
        (times.begin_ms < begin_ms and times.end_ms > end_ms)
        or begin_ms <= times.begin_ms <= end_ms
        or begin_ms <= times.end_ms <= end_ms
    )


def _misfit(path: Path, error: StorageError) -> Finding:
    facts = error.facts()
    expected, found = facts.get("expected"), facts.get("found")
    return finding(
        "index-file-size",
        path,
        expected=None if expected is None else str(expected),
        found=None if found is None else str(found),
        message=error.message,
    )
