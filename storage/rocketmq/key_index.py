"""The key index of a store: a run of index files that lead from strings to records of the log.

Owns which file takes an entry, how one follows another, and queries over all of them (IndexService
of RocketMQ); must not read the log, so what it answers are places where a record with the wanted
string may be. Nothing here is durable before its file is full or `sync` has been called: after a
crash the files that are newer than the checkpoint are made anew from the log.

One writer at a time (`_lock`); readers at any time: they see what was put, written back or not.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import Corrupt, IoFailure, StorageError
from storage.files import HandleCache, remove_if_present
from storage.findings import finding
from storage.interface import Clock
from storage.model import Finding
from storage.rocketmq.dispatch import Dispatch
from storage.rocketmq.format.index_file import (
    IndexHeader,
    file_size,
    index_string,
    key_hash,
)
from storage.rocketmq.format.names import index_name, parse_index_name
from storage.rocketmq.key_index_file import (
    ALWAYS,
    MAX_INT64,
    DoubtedIndex,
    KeyIndexFile,
    TimeRange,
)
from storage.rocketmq.key_index_table import KeyHasher, KeyIndexTable

TAIL_BYTES: Final = 4 << 20  # of entries in memory; then they are written


class SettledFile(NamedTuple):
    """A file as of one moment. `slots`: as they are in memory; None: as they are in the file."""

    file: KeyIndexFile
    header: IndexHeader
    slots: array[int] | None


class KeyIndex:
    """The files of one folder, made when the first record comes. `load` before anything else."""

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
        self._hasher = KeyHasher()
        self._lock = threading.Lock()  # held by all that changes a file or the run
        self._run: tuple[
            KeyIndexFile, ...
        ] = ()  # oldest first; replaced as a whole, under the lock
        self._table: KeyIndexTable | None = None  # of the last file, once something is put
        self._misfits: Sequence[Path] = ()
        self._folders: Sequence[Path] = ()  # with names of index files
        # Where a put was interrupted: records before this offset, and this many strings of the one
        # there, are in the index already.
        self._resume: tuple[int, int] | None = None

    # ---- the run ----

    def load(self) -> None:
        """Take in the files that are there; reads their headers only. What was put and not synced
        is forgotten.

        Unknown names are left alone, and files of another length are neither read nor written; both
        are told in `findings`.
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
                    findings.append(_unknown(path))
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

    @property
    def index_files(self) -> Sequence[KeyIndexFile]:
        """The files, oldest first."""
        return self._run

    @property
    def misfits(self) -> Sequence[Path]:
        """The files that cannot be read, and what else has the name of an index file."""
        return self._misfits

    @property
    def are_longer(self) -> bool:
        """Whether a file is longer than `slots` and `entries` give."""
        fs, expected = self._files.fs, file_size(self.slots, self.entries)
        for path in self._misfits:
            with suppress(IoFailure):
                if not fs.is_dir(path) and fs.size(path) > expected:
                    return True
        return False

    def set_aside(self, file: KeyIndexFile, error: StorageError) -> None:
        """Neither read nor write a file that cannot be read."""
        with self._lock:
            self._run = tuple(other for other in self._run if other is not file)
            self._misfits = [*self._misfits, file.path]
            self.findings = [*self.findings, _misfit(file.path, error)]
            file.doubt()

    def remove_misfits(self) -> None:
        """Remove the files that cannot be read; what they held has to be put again. Only regular files."""
        fs = self._files.fs
        for path in self._misfits:
            with suppress(IoFailure):  # no regular file
                fs.size(path)
                fs.remove(path)
                self._files.forget(path, sync=False)
        if self._misfits:
            fs.sync_dir(self.directory)

    def settled(self) -> Sequence[SettledFile]:
        """Return the files as of one moment, all their entries on the way to the disk."""
        with self._lock:
            if self._table is not None:
                self._run[-1].write_entries()
            return [SettledFile(file, file.header, self._slots_of_last(file)) for file in self._run]

    def _slots_of_last(self, file: KeyIndexFile) -> array[int] | None:
        table = self._table
        return None if table is None or file is not self._run[-1] else array("i", table.slots)

    def doubted_ranges(self) -> Sequence[tuple[int, int]]:
        """Return the first and last record of each file whose answers counted and do not count any more."""
        lost = [file.header for file in self._run if file.is_doubted and file.is_asked]
        return [(header.begin_physical_offset, header.end_physical_offset) for header in lost]

    @property
    def max_physical_offset(self) -> int:
        """Of the record that was put last; -1 without files."""
        run = self._run
        return run[-1].header.end_physical_offset if run else -1

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the record that was put last; 0 without files."""
        run = self._run
        return run[-1].header.end_timestamp_ms if run else 0

    def headers(self) -> Sequence[tuple[str, IndexHeader]]:
        """(name, header) of every file, oldest first."""
        return [(file.path.name, file.header) for file in self._run]

    def remove_named(self, names: Collection[str]) -> int:
        """Remove the files with these names; what they held has to be put again. Gives their
        number.
        """
        with self._lock:
            return self._drop([file for file in self._run if file.path.name in names])

    def delete_before(self, physical_offset: int) -> int:
        """Remove the oldest files while all their records lie before this offset; the last file
        stays. Gives their number.
        """
        with self._lock:
            doomed: list[KeyIndexFile] = []
            for file in self._run[:-1]:
                if file.header.end_physical_offset >= physical_offset:
                    break
                doomed.append(file)
            return self._drop(doomed)

    def _drop(self, doomed: Sequence[KeyIndexFile]) -> int:
        """Take files out of the run, then from the disk; durable on return."""
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

    def put(self, dispatch: Dispatch) -> None:
        """Index one record; see `put_all`."""
        self.put_all((dispatch,))

    def put_all(self, dispatches: Iterable[Dispatch]) -> None:
        """Index records in the order of the log; one that lies before the last that was put is
        there already and is passed over. One without strings (rolled back ones have none) counts too:
        it may make a file.

        Makes the next file when one is full, which then is on disk. Raises DiskFull, IoFailure;
        handed in again after an error, nothing is put twice.
        """
        dispatches = [*dispatches]
        with self._lock:
            done, strings = self._resumed(dispatches)
            while done < len(dispatches):
                table = self._table
                if table is None or table.is_full:
                    with self._resuming_at(dispatches[done].physical_offset, strings):
                        table = self._open_table()
                done, strings = table.put_run(dispatches, done, strings)
            table = self._table
            if table is not None and len(table.tail[1]) > TAIL_BYTES:
                with self._resuming_at(table.end_physical_offset + 1, 0):
                    self._run[-1].write_entries()

    def _resumed(self, dispatches: Sequence[Dispatch]) -> tuple[int, int]:
        """(number of the first record to be put, of its first string): behind what was put before
        an error.
        """
        if self._resume is None:
            return 0, 0
        offset, strings = self._resume
        for done, dispatch in enumerate(dispatches):
            if dispatch.physical_offset >= offset:
                self._resume = None
                return done, strings if dispatch.physical_offset == offset else 0
        return len(dispatches), 0

    @contextmanager
    def _resuming_at(self, physical_offset: int, strings: int) -> Iterator[None]:
        """Around what may fail: what was put until here is not put again."""
        try:
            yield
        except StorageError:
            self._resume = (physical_offset, strings)
            raise

    def _open_table(self) -> KeyIndexTable:
        """The table of a file that has room: of the last one, or of the one that follows it."""
        self._table = None
        run = self._run
        if not run or run[-1].is_full:
            if run:
                self._finish(run[-1])
            run = (*run, self._create(run))
            self._run = run
        elif len(run) > 1 and not run[-1].has_entries:
            run[-1].begin_behind(run[-2].header)  # its own header may never have come to the disk
        try:
            self._table = run[-1].open_table(self._hasher)
        except IoFailure:
            if not run[-1].has_entries:
                raise
            run[-1].doubt()  # it cannot be read: go on in a new one
            self._run = (*run, self._create(run))
            self._table = self._run[-1].open_table(self._hasher)
        return self._table

    def _finish(self, file: KeyIndexFile) -> None:
        """A full file goes to the disk, and its memory is let go."""
        file.write_back()
        file.sync()
        file.close_table()

    def _create(self, run: Sequence[KeyIndexFile]) -> KeyIndexFile:
        """The file behind those of the run; its name is durable on return."""
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
        """Bring the files up to what was put; not synced. Raises DiskFull, IoFailure."""
        with self._lock:
            if self._table is not None:
                self._run[-1].write_back()

    def sync(self) -> None:
        """On return all that was put is on disk."""
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
        """Physical offsets as the real store's index gives them: newest files first, at most
        `max_count`; times in whole seconds, other keys with the same hash among them, offsets of
        records that are gone too. `index_type` "T": `key` is a tag.
        """
        hashed = key_hash(index_string(topic, key, index_type))
        while True:
            try:
                return self._select(hashed, TimeRange(begin_ms, end_ms), max_count)
            except DoubtedIndex:  # the real store answers by a damaged file too
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
        high: int = MAX_INT64,
        times: TimeRange = ALWAYS,
        backward: bool = False,
    ) -> Iterator[int]:
        """Physical offsets in [low, high) where a record with this indexed string, stored in the
        time range, may be: rising (falling if `backward`), each once.

        Only files that are trusted are asked: of the ranges that the index covers nothing is missed (see
        storage.rocketmq.index_coverage), neither by the seconds that entries keep nor where store times go backwards.
        That the record's real string is another has to be looked at. Raises DoubtedIndex.
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
    """Yield what a file answers. Raises DoubtedIndex where it cannot be read."""
    try:
        yield from offsets
    except IoFailure as error:
        file.doubt()
        raise DoubtedIndex(f"{file.path}: {error.message}") from error


def _takes_part(header: IndexHeader, times: TimeRange) -> bool:
    """IndexFile.isTimeMatched: the file lies inside the range, or an end of the range in the file."""
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


def _unknown(path: Path) -> Finding:
    return finding("unknown-file", path, message="no name of an index file")
