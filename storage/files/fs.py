"""The one file layer: every open, read, write, sync, rename, removal and truncation goes through here.

Owns the protocols; must not know any format. `RealFileSystem` (real.py) is the disk. Tests replace it by an overlay
(writes kept in memory), by one that forgets what was not synced, or by one that fails the n-th call. Writes are
pwrite, never through a map (a mapped write is invisible to the crash simulator and hides a full disk).

Every method raises IoFailure (DiskFull when there is no space) and never OSError; its `errno` fact tells the cause
(`is_missing` asks for ENOENT). Names are taken as they are: no symbolic link is followed as the last part of the path
of a file (ELOOP). What lies below a store's root is asked for by `is_dir` before it is looked into, which refuses a
link to a directory too; the root may be one, and so may any of its parents, since people move data that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class File(Protocol):
    """One open regular file. Every method but `close` may run at the same time in several threads.

    It keeps meaning the same file when that is renamed or removed. After `close` every call raises IoFailure (EBADF).
    """

    path: Path

    def size(self) -> int:
        """Length in bytes now."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file, none behind it.

        `size_bytes` is allocated as asked: check lengths that were read from a disk against `size()` first.
        """

    def data_end(self, start: int) -> int:
        """A position, `start` at least, from which on the file reads as zeros: the nearest that is known without
        reading. Where holes cannot be told from zeros it is the length.
        """

    def next_data(self, start: int) -> int:
        """Return a position, `start` at least, up to which the file reads as zeros from `start` on: the next data that
        is known without reading, or the length where none follows. Where holes cannot be told from zeros it is
        `start`.
        """

    def pwrite(self, data: bytes, position: int) -> None:
        """All of `data` at `position`, or DiskFull / IoFailure (then any part of it may be there).

        On return it is with the operating system, not on disk. Behind the end: the gap reads as zeros.
        """

    def truncate(self, size_bytes: int) -> None:
        """Cut, or extend sparsely with zeros."""

    def datasync(self) -> None:
        """On return what was written (and the length) is on disk.

        Raises IoFailure, never DiskFull: a failed sync fences the store whatever its cause, and is not tried again.
        """

    def close(self) -> None:
        """Let go of the descriptor; a second call does nothing. Does not sync. No other call may be running."""


class FileSystem(Protocol):
    """Files by path; safe from several threads. Changes of names are on disk after `sync_dir` of their directory."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open for reading, or for both; `create` (which means `write`) makes a missing file, mode 0644.

        An existing file stays as it is. Raises IoFailure: ENOENT, EISDIR, ELOOP, EINVAL for what is no regular file,
        EBUSY for a lock file that this process holds (closing it again would drop the lock).
        """

    def exists(self, path: Path) -> bool:
        """Whether anything has this name, a dangling link also."""

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        """Whether this is a directory. Raises IoFailure (ELOOP) for a link to one, unless `follow`: for a path that a
        user named.
        """

    def list_dir(self, path: Path) -> Sequence[str]:
        """The names in a directory, sorted."""

    def size(self, path: Path) -> int:
        """Length in bytes of a regular file."""

    def mtime_ms(self, path: Path) -> int:
        """When the bytes of a file, or the names in a directory, last changed: milliseconds since the epoch."""

    def read_bytes(self, path: Path) -> bytes:
        """All of a file, as long as it was when it was opened."""

    def make_dir(self, path: Path) -> None:
        """Make the directory and missing parents with mode 0700; no error when it is there."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name, in one step; a file (or an empty directory) there is replaced."""

    def remove(self, path: Path) -> None:
        """Remove one file."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all in it, or a link; what links point to stays. May fail half done."""

    def sync_dir(self, path: Path) -> None:
        """On return creations, renames and removals in this directory are on disk. Raises as `File.datasync`."""

    def used_percent(self, path: Path) -> int:
        """How full the disk is that this lies on, 0 to 100; 0 in memory."""

    def lock(self, path: Path) -> FileLock:
        """Take the exclusive lock on this file (made if missing) or raise StoreLocked with the holder's pid."""


class FileLock(Protocol):
    """A held lock; released by `release` or the end of the process."""

    def release(self) -> None:
        """Let go of it; a second call does nothing. The file stays."""
