"""The one file layer: every open, read, write, sync, rename, unlink, truncate and directory sync goes through here.

Owns the FileSystem protocol and its real implementation; must not know any format. Tests replace it by an overlay
(writes kept in memory), by one that forgets what was not synced, or by one that fails the n-th call. Writes are pwrite,
never through a map (a mapped write is invisible to the crash simulator and hides a full disk); short writes are looped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class File(Protocol):
    """One open file. Reads and writes at positions may run at the same time from several threads."""

    path: Path

    def size(self) -> int:
        """Length in bytes now."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file."""

    def pwrite(self, data: bytes, position: int) -> None:
        """All of `data` at `position`, or DiskFull / IoFailure (then any part of it may be there)."""

    def truncate(self, size_bytes: int) -> None:
        """Cut, or extend sparsely with zeros."""

    def datasync(self) -> None:
        """On return what was written (and the length) is on disk. Raises IoFailure; must not be tried again."""

    def close(self) -> None:
        """Let go of the descriptor. Does not sync."""


class FileSystem(Protocol):
    """Files by path. Names in a directory come sorted. Errors are IoFailure (DiskFull), never OSError."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open for reading, or for both; `create` makes a missing file (an existing one stays as it is)."""

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def list_dir(self, path: Path) -> Sequence[str]: ...

    def size(self, path: Path) -> int: ...

    def mtime_ms(self, path: Path) -> int: ...

    def read_bytes(self, path: Path) -> bytes: ...

    def make_dir(self, path: Path) -> None:
        """Make the directory and missing parents with mode 0700; no error when it is there."""

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove one file."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all in it."""

    def sync_dir(self, path: Path) -> None:
        """On return creations, renames and removals in this directory are on disk."""

    def lock(self, path: Path) -> FileLock:
        """Take the exclusive lock on this file (made if missing) or raise StoreLocked with the holder's pid."""


class FileLock(Protocol):
    """A held lock; released by `release` or the end of the process."""

    def release(self) -> None: ...
