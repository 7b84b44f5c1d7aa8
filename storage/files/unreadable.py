"""A file system for rescue: bytes that the operating system cannot read are replaced by filler, and remembered.

Owns which ranges of which files could not be read, and the filler in their place; must not know a format. No record,
entry or line of text consists of filler bytes only. So the tools report the range as damage and continue after it, as
with any other damage. Only failed reads are tolerated; writes fail as on the base.

The filler is not zero, because zeros are the content of an unused, preallocated range. A failed read is retried in
blocks of 4 KiB, the unit in which the kernel caches and fails, and then in sectors of 512 bytes.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import IoFailure
from storage.files.fs import Buffer, File, FileLock, FileSystem

FILLER: Final = b"\xee"
BLOCK_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
MAX_FILLER_BYTES: Final = (
    1 << 20
)  # for a whole file that cannot be opened: its reported size may be anything

# The errors of a bad disk, a damaged file system, missing rights and names of another kind. Not included: a missing
# file (the caller knows its meaning) and too many open files (which is not a fact about the store).
UNREADABLE: Final = frozenset(
    {
        errno.EIO,
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.EINVAL,
        errno.ENXIO,
        errno.ENODATA,
        errno.EBADMSG,
        errno.EUCLEAN,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)


class UnreadableRange(NamedTuple):
    """Bytes [start, stop) of a file that could not be read, and the reason.

    `is_whole`: the file or folder could not be opened at all.
    """

    path: Path
    start: int
    stop: int
    reason: str
    is_whole: bool = False
    is_folder: bool = False


class SkippingFile:
    """An open file of `SkippingFileSystem`. `file` None: it could not be opened, and all its bytes are filler."""

    def __init__(self, fs: SkippingFileSystem, path: Path, file: File | None, size: int) -> None:
        self.path = path
        self._fs = fs
        self._file = file
        self._size_bytes = size  # used for a file that could not be opened

    def size(self) -> int:
        return self._size_bytes if self._file is None else self._file.size()

    def data_end(self, start: int) -> int:
        if self._file is None:
            return max(start, self._size_bytes)
        try:
            return self._file.data_end(start)
        except IoFailure as error:
            self._fs.forgive(error, self.path)
            return max(start, self._file.size())

    def next_data(self, start: int) -> int:
        if self._file is None:
            return start
        try:
            return self._file.next_data(start)
        except IoFailure as error:
            self._fs.forgive(error, self.path)
            return start

    def pread(self, size_bytes: int, position: int) -> bytes:
        if self._file is None:
            return _filler(position, min(position + size_bytes, self._size_bytes))
        try:
            if not self._fs.is_bad(self.path):
                return self._file.pread(size_bytes, position)
        except IoFailure as error:
            self._fs.forgive(error, self.path)
        stop = min(position + size_bytes, self._file.size())
        return b"".join(self._blocks(self._file, position, stop))

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        return None

    def read_all(self) -> bytes:
        """Return all bytes; for a file that could not be opened at most MAX_FILLER_BYTES of filler."""
        if self._file is None:
            return _filler(0, min(self._size_bytes, MAX_FILLER_BYTES))
        return self.pread(self._file.size(), 0)

    def _blocks(self, file: File, position: int, stop: int) -> Iterator[bytes]:
        """Read a range in blocks, and a failed block in sectors; a failed sector is replaced by filler."""
        for start, end in _pieces(position, stop, BLOCK_BYTES):
            block = self._piece(file, start, end)
            if block is not None:
                yield block
                continue
            for first, last in _pieces(start, end, SECTOR_BYTES):
                sector = self._piece(file, first, last)
                if sector is None:
                    self._fs.remember_sector(self.path, first // SECTOR_BYTES)
                    sector = _filler(first, last)
                yield sector

    def _piece(self, file: File, start: int, stop: int) -> bytes | None:
        """Return the bytes, or None if a sector of them is known to be bad or fails now."""
        if self._fs.holds_bad_sector(self.path, start, stop):
            return None
        try:
            return file.pread(stop - start, start)
        except IoFailure as error:
            self._fs.forgive(error, self.path)
            return None

    def pwrite(self, data: bytes, position: int) -> None:
        self._writable("write").pwrite(data, position)

    def pwritev(self, pieces: Sequence[Buffer], position: int) -> None:
        self._writable("write").pwritev(pieces, position)

    def truncate(self, size_bytes: int) -> None:
        self._writable("truncate").truncate(size_bytes)

    def datasync(self) -> None:
        self._writable("datasync").datasync()

    def _writable(self, operation: str) -> File:
        if self._file is None:
            raise self._fs.failure(self.path, operation)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class SkippingFileSystem:
    """A file system that reads `base` and tolerates unreadable data. Thread-safe.

    A pickled copy starts without known bad ranges: another process finds the ranges that it reads by itself.
    """

    def __init__(self, base: FileSystem) -> None:
        self._base = base
        self._lock = threading.Lock()  # guards the fields below
        # Files and folders that cannot be opened.
        self._closed_files: dict[Path, UnreadableRange] = {}
        self._sectors: dict[Path, set[int]] = {}
        self._reasons: dict[Path, IoFailure] = {}

    def __reduce__(self) -> tuple[type[SkippingFileSystem], tuple[FileSystem]]:
        return type(self), (self._base,)

    # ---- unreadable data ----

    @property
    def base(self) -> FileSystem:
        """The file system that is read."""
        return self._base

    def unreadable(self) -> Sequence[UnreadableRange]:
        """Return the bad ranges found so far, by path and position; adjacent sectors are one range."""
        with self._lock:
            found = list(self._closed_files.values())
            for path, sectors in self._sectors.items():
                reason = _reason(self._reasons[path])
                found += [UnreadableRange(path, *run, reason) for run in _runs(sectors)]
        return sorted(found)

    def forgive(self, error: IoFailure, path: Path) -> None:
        """Remember the reason of a failed read; raise the error again if it is not a fact about the store.

        `path` is the caller's path: the error may name the target of a followed link.
        """
        if error.facts().get("errno") not in UNREADABLE:
            raise error
        with self._lock:
            self._reasons[path] = error

    def is_bad(self, path: Path) -> bool:
        """Return whether the file has a known bad sector; then it is read in blocks."""
        return path in self._sectors

    def holds_bad_sector(self, path: Path, start: int, stop: int) -> bool:
        """Return whether a known bad sector overlaps [start, stop)."""
        known = self._sectors.get(path)
        if known is None:
            return False
        first, last = start // SECTOR_BYTES, (stop - 1) // SECTOR_BYTES
        return any(number in known for number in range(first, last + 1))

    def remember_sector(self, path: Path, number: int) -> None:
        """Remember a bad sector."""
        with self._lock:
            self._sectors.setdefault(path, set()).add(number)

    def failure(self, path: Path, operation: str) -> IoFailure:
        """Return the error for a write to a file that could not be opened."""
        known = self._reasons[path]
        return IoFailure(
            f"{operation} {path}: {_reason(known)}",
            path=str(path),
            operation=operation,
            errno=known.facts()["errno"],
        )

    def _close(self, path: Path, error: IoFailure, size_bytes: int, *, is_folder: bool) -> None:
        self.forgive(error, path)
        with self._lock:
            self._closed_files[path] = UnreadableRange(
                path, 0, size_bytes, _reason(error), is_whole=True, is_folder=is_folder
            )

    # ---- reading ----

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if write or create:
            return self._base.open(path, write=write, create=create)
        return self._opened(path)

    def _opened(self, path: Path) -> SkippingFile:
        try:
            return SkippingFile(self, path, self._base.open(path), 0)
        except IoFailure as error:
            size_bytes = self._size(path)
            self._close(path, error, size_bytes, is_folder=False)
            return SkippingFile(self, path, None, size_bytes)

    def _size(self, path: Path) -> int:
        """Return the length of a file that cannot be opened; 0 if that fails too."""
        try:
            return self._base.size(path)
        except IoFailure as error:
            self.forgive(error, path)
            return 0

    def exists(self, path: Path) -> bool:
        try:
            return self._base.exists(path)
        except IoFailure as error:
            self._close(path, error, 0, is_folder=False)
            return False

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        try:
            return self._base.is_dir(path, follow=follow)
        except IoFailure as error:
            self._close(path, error, 0, is_folder=False)
            return False

    def list_dir(self, path: Path) -> Sequence[str]:
        try:
            return self._base.list_dir(path)
        except IoFailure as error:
            self._close(path, error, 0, is_folder=True)
            return ()

    def size(self, path: Path) -> int:
        try:
            return self._base.size(path)
        except IoFailure as error:
            self._close(path, error, 0, is_folder=False)
            return 0

    def mtime_ms(self, path: Path) -> int:
        try:
            return self._base.mtime_ms(path)
        except IoFailure as error:
            self._close(path, error, 0, is_folder=False)
            return 0

    def read_bytes(self, path: Path) -> bytes:
        file = self._opened(path)
        try:
            return file.read_all()
        finally:
            file.close()

    # ---- calls that are passed to the base ----

    def make_dir(self, path: Path) -> None:
        self._base.make_dir(path)

    def set_mtime_ms(self, path: Path, time_ms: int) -> None:
        self._base.set_mtime_ms(path, time_ms)

    def rename(self, source: Path, target: Path) -> None:
        self._base.rename(source, target)

    def remove(self, path: Path) -> None:
        self._base.remove(path)

    def remove_tree(self, path: Path) -> None:
        self._base.remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        self._base.sync_dir(path)

    def used_percent(self, path: Path) -> int:
        return self._base.used_percent(path)

    def lock(self, path: Path) -> FileLock:
        return self._base.lock(path)


def _filler(start: int, stop: int) -> bytes:
    return FILLER * max(stop - start, 0)


def _pieces(start: int, stop: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) cut at each multiple of `size_bytes`."""
    while start < stop:
        end = min(start - start % size_bytes + size_bytes, stop)
        yield start, end
        start = end


def _runs(sectors: set[int]) -> Iterator[tuple[int, int]]:
    """Yield adjacent sectors as one range of bytes."""
    first = last = -1
    for number in sorted(sectors):
        if number != last + 1 or first < 0:
            if first >= 0:
                yield first * SECTOR_BYTES, (last + 1) * SECTOR_BYTES
            first = number
        last = number
    if first >= 0:
        yield first * SECTOR_BYTES, (last + 1) * SECTOR_BYTES


def _reason(error: IoFailure) -> str:
    """Return the message of the system, without the path."""
    return error.message.rpartition(": ")[2]
