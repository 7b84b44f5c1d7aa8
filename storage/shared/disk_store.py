"""The common part of the stores on disk: a directory with one owner, the fence, the open files, opening and closing.

Owns whether a call is allowed, and the order of steps in which a store is locked and released; must not know a format.
The files in the directory, the kind of lock and the writes of a clean stop belong to the backend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storage.contract import Clock, LogStore, StoreOptions
from storage.errors import IoFailure, StoreClosed, StoreReadOnly
from storage.files import Fence, FileLock, FileSystem, HandleCache, OverlayFileSystem, make_root

_T = TypeVar("_T")


def open_directory(
    path: Path,
    *,
    fs: FileSystem,
    clock: Clock,
    read_only: bool,
    take_lock: Callable[[FileSystem, Path], FileLock],
    opened: Callable[[FileSystem, FileLock | None], _T],
) -> _T:
    """Create and lock the store at `path`, and return the result of `opened`.

    `read_only`: the store must exist and is not locked, and writes stay in memory. Raises IoFailure, StoreLocked, and
    any error of `opened`; the lock is released on an error.
    """
    if read_only:
        if not fs.exists(path):
            raise IoFailure(f"{path} does not exist", path=str(path), operation="open", errno=2)
        return opened(OverlayFileSystem(fs, clock=clock), None)
    make_root(fs, path)
    lock = take_lock(fs, path)
    try:
        return opened(fs, lock)
    except BaseException:
        lock.release()
        raise


class DiskStore(LogStore):
    """An opened directory. `lock` None: it is read-only. `_closed` is set under the lock of the backend."""

    def __init__(
        self, fs: FileSystem, path: Path, options: StoreOptions, *, lock: FileLock | None
    ) -> None:
        self.fs = fs
        self.path = path
        self.read_only = lock is None
        self._file_lock = lock
        self._closed = False
        self._fence = Fence(path)
        self._files = HandleCache(fs, options.open_files)

    def _check_open(self) -> None:
        """Raise StoreClosed if the store is closed."""
        if self._closed:
            raise StoreClosed(f"{self.path} is closed", path=str(self.path))

    def _check_writable(self) -> None:
        """Raise StoreClosed, StoreReadOnly or StoreFenced if the store cannot be written."""
        if not self._closed and not self.read_only and self._fence.cause is None:
            return  # each append comes here twice
        self._check_open()
        if self.read_only:
            raise StoreReadOnly(f"{self.path} is open read-only", path=str(self.path))
        self._fence.check()

    def _end(self) -> None:
        """Stop cleanly unless the store is fenced or read-only, then release files and lock in any case. Called once,
        by the thread that sets `_closed`.
        """
        try:
            if not self.read_only and self._fence.cause is None:
                self._stop_cleanly()
        finally:
            self._files.close(sync=False)
            if self._file_lock is not None:
                self._file_lock.release()

    @abstractmethod
    def _stop_cleanly(self) -> None:
        """Make everything durable, and write the marker of a clean stop last."""
