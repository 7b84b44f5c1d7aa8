"""What the stores on disk have in common: a directory with one owner, the fence, the open files, and how both ends go.

Owns whether a call may go on, and the order in which a store is taken and let go; must not know a format: what lies in
the directory, how it is locked and what a clean stop writes are its backend's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storage.errors import IoFailure, StoreClosed, StoreReadOnly
from storage.files import Fence, FileLock, FileSystem, HandleCache, OverlayFileSystem, make_root
from storage.interface import Clock, LogStore, StoreOptions

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
    """What `opened` makes of the store at `path`, which is made and locked before. `read_only`: it must exist, is not
    locked, and what is written to it stays in memory. Raises IoFailure, StoreLocked, and what `opened` raises: then the
    lock is free again.
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
    """An opened directory. `lock` None: it is only looked at. `_closed` is set under the lock of the backend."""

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
        """Raise StoreClosed."""
        if self._closed:
            raise StoreClosed(f"{self.path} is closed", path=str(self.path))

    def _check_writable(self) -> None:
        """Raise StoreClosed, StoreReadOnly, StoreFenced."""
        self._check_open()
        if self.read_only:
            raise StoreReadOnly(f"{self.path} is open read-only", path=str(self.path))
        self._fence.check()

    def _end(self) -> None:
        """Stop cleanly where that can be promised, then let go in any case. Once: whoever sets `_closed`."""
        try:
            if not self.read_only and self._fence.cause is None:
                self._stop_cleanly()
        finally:
            self._files.close(sync=False)
            if self._file_lock is not None:
                self._file_lock.release()

    @abstractmethod
    def _stop_cleanly(self) -> None:
        """Make everything durable, and say so on disk last."""
