"""The one file layer: every open, read, write, sync, rename, removal and truncation goes through it.

Owns the protocols; must not know any format. `RealFileSystem` (real.py) is the disk. Tests replace it by an overlay
(writes stay in memory), by a version that loses unsynced data, or by a version whose n-th call fails. Writes use
pwrite, never a memory map: the crash simulator does not see a mapped write, and a mapped write hides a full disk.

Every method raises IoFailure (DiskFull if there is no space) and never OSError; its `errno` fact is the cause
(`is_missing` tests for ENOENT). Names are used unchanged: a symbolic link as the last part of a file's path is not
followed (ELOOP). Below a store's root a caller checks a directory with `is_dir` before it reads it; `is_dir` rejects a
link to a directory too. The root and its parents may be links, because people move data that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_PIECES: Final = 1024  # of one `pwritev`: Linux's IOV_MAX


class Readable(Protocol):
    """The calls to a file that a reader of batches needs."""

    path: Path

    def pread(self, size_bytes: int, position: int) -> bytes | bytearray:
        """See `File.pread`."""

    def next_data(self, start: int) -> int:
        """See `File.next_data`."""


class File(Protocol):
    """An open regular file. All methods except `close` may run at the same time in several threads.

    It stays the same file after a rename or removal. After `close` every call raises IoFailure (EBADF).
    """

    path: Path

    def size(self) -> int:
        """Return the current length in bytes."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` from `position`; fewer only at the end of the file, none after it.

        `size_bytes` is allocated as given: check a length that was read from disk against `size()` first.
        """

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        """Return exactly `size_bytes` from `position`, if the kernel has them in its page cache; else None. Waits for
        no disk, and raises nothing.
        """

    def data_end(self, start: int) -> int:
        """Return a position, `start` at least, from which on the file reads as zeros: the nearest one known without
        reading. If holes cannot be detected, it is the length.
        """

    def next_data(self, start: int) -> int:
        """Return a position, `start` at least; from `start` up to it the file reads as zeros.

        It is the next data known without reading, or the length if no data follows. If holes cannot be detected, it is
        `start`.
        """

    def pwrite(self, data: bytes, position: int) -> None:
        """Write all of `data` at `position`. Raises DiskFull or IoFailure; then any part of it may be written.

        On return the data is in the operating system, not on disk. A gap before `position` reads as zeros.
        """

    def pwritev(self, pieces: Sequence[Buffer], position: int) -> None:
        """Write the pieces, at most MAX_PIECES, one directly after the other; else like `pwrite`."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or extend it sparsely with zeros."""

    def datasync(self) -> None:
        """Make the written data and the length durable.

        Raises IoFailure, never DiskFull: a failed sync fences the store whatever its cause, and is not retried.
        """

    def close(self) -> None:
        """Close the descriptor without a sync; a second call does nothing. No other call may be running."""


class FileSystem(Protocol):
    """Access to files by path; thread-safe. Changes of names are durable after `sync_dir` of their directory."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open for reading, or with `write` for both; `create` (which implies `write`) creates a missing file, mode
        0644.

        An existing file stays unchanged. Raises IoFailure:

        - ENOENT, EISDIR, ELOOP;
        - EINVAL for an entry that is not a regular file;
        - EBUSY for a lock file that this process holds (closing the new descriptor would drop the lock).
        """

    def exists(self, path: Path) -> bool:
        """Return whether an entry has this name, also a dangling link."""

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        """Return whether this is a directory. Raises IoFailure (ELOOP) for a link to a directory, unless `follow`: for
        a path that a user named.
        """

    def list_dir(self, path: Path) -> Sequence[str]:
        """Return the names in a directory, sorted."""

    def size(self, path: Path) -> int:
        """Return the length in bytes of a regular file."""

    def mtime_ms(self, path: Path) -> int:
        """Return the last change of a file's bytes, or of a directory's names: milliseconds since the epoch."""

    def set_mtime_ms(self, path: Path, time_ms: int) -> None:
        """Set the time that `mtime_ms` returns for a file. It is durable with the file's next sync, or later."""

    def read_bytes(self, path: Path) -> bytes:
        """Return the whole content of a file, at its length when it was opened."""

    def make_dir(self, path: Path) -> None:
        """Create the directory and missing parents with mode 0700; an existing directory is not an error."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory in one step; an existing file (or empty directory) at the target is replaced."""

    def remove(self, path: Path) -> None:
        """Remove one file."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with its content, or a link; targets of links stay. After an error a part may be
        removed.
        """

    def sync_dir(self, path: Path) -> None:
        """Make creations, renames and removals in this directory durable. Raises as `File.datasync`."""

    def used_percent(self, path: Path) -> int:
        """Return how full the disk of this path is, 0 to 100; 0 in memory."""

    def lock(self, path: Path) -> FileLock:
        """Take the exclusive lock on this file (created if missing), or raise StoreLocked with the holder's pid."""


class FileLock(Protocol):
    """A held lock; released by `release` or at the end of the process."""

    def release(self) -> None:
        """Release the lock; a second call does nothing. The file stays."""
