"""A file system with bad moments: at a chosen change of the disk it fails, fills up or stops dead."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.files.failures import io_failure
from storage.files.fs import File, FileLock, FileSystem

TAKES_SPACE = frozenset({"write", "truncate", "create", "mkdir", "rename"})
Fault = Callable[[str, Path], None]


class Killed(BaseException):
    """The process ends here: nothing that comes later has happened."""


def no_fault(operation: str, path: Path) -> None:
    """All is well."""


class FaultyFileSystem:
    """Hands everything on to `fs`; before each change of the disk `fault` is called, and may raise.

    Operations: create, write, truncate, sync, mkdir, rename, remove, sync-dir. Of a write that is to fail the first
    half is written. `changes` counts the operations so far.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.fault: Fault = no_fault
        self.changes = 0

    def step(self, operation: str, path: Path) -> None:
        """One more change is about to be made."""
        self.changes += 1
        self.fault(operation, path)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create and not self._fs.exists(path):
            self.step("create", path)
        return FaultyFile(self, self._fs.open(path, write=write, create=create))

    def exists(self, path: Path) -> bool:
        return self._fs.exists(path)

    def is_dir(self, path: Path) -> bool:
        return self._fs.is_dir(path)

    def list_dir(self, path: Path) -> Sequence[str]:
        return self._fs.list_dir(path)

    def size(self, path: Path) -> int:
        return self._fs.size(path)

    def mtime_ms(self, path: Path) -> int:
        return self._fs.mtime_ms(path)

    def read_bytes(self, path: Path) -> bytes:
        return self._fs.read_bytes(path)

    def make_dir(self, path: Path) -> None:
        if not self._fs.exists(path):
            self.step("mkdir", path)
        self._fs.make_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target)
        self._fs.rename(source, target)

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        self._fs.remove(path)

    def remove_tree(self, path: Path) -> None:
        self.step("remove", path)
        self._fs.remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        self.step("sync-dir", path)
        self._fs.sync_dir(path)

    def lock(self, path: Path) -> FileLock:
        return self._fs.lock(path)


class FaultyFile:
    """A file of `FaultyFileSystem`."""

    def __init__(self, fs: FaultyFileSystem, file: File) -> None:
        self.path = file.path
        self._fs = fs
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._file.pread(size_bytes, position)

    def pwrite(self, data: bytes, position: int) -> None:
        try:
            self._fs.step("write", self.path)
        except BaseException:
            self._file.pwrite(data[: len(data) // 2], position)
            raise
        self._file.pwrite(data, position)

    def truncate(self, size_bytes: int) -> None:
        self._fs.step("truncate", self.path)
        self._file.truncate(size_bytes)

    def datasync(self) -> None:
        self._fs.step("sync", self.path)
        self._file.datasync()

    def close(self) -> None:
        self._file.close()


def fails(number: int, operation: str, *, name: str = "") -> Fault:
    """Every such operation on a path that ends with `name` fails with this errno."""

    def fault(done: str, path: Path) -> None:
        if done == operation and str(path).endswith(name):
            raise io_failure(number, path, _SYNC.get(done, done))

    return fault


_SYNC = {
    "sync": "datasync",
    "sync-dir": "sync_dir",
}  # as the file layer calls them: there a full disk is no DiskFull


def at_change(fs: FaultyFileSystem, count: int, fault: Fault) -> Fault:
    """`fault`, at the `count`-th change from now only; a kill is for good."""
    last = fs.changes + count

    def once(operation: str, path: Path) -> None:
        if fs.changes == last or (fs.changes > last and fault is killed):
            fault(operation, path)

    return once


def disk_full(operation: str, path: Path) -> None:
    """No space, where the operation takes some."""
    if operation in TAKES_SPACE:
        raise io_failure(errno.ENOSPC, path, operation)


def broken(operation: str, path: Path) -> None:
    """The disk has an error."""
    raise io_failure(errno.EIO, path, _SYNC.get(operation, operation))


def killed(operation: str, path: Path) -> None:
    """The process is killed."""
    raise Killed
