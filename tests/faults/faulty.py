"""A file system with bad moments: at a chosen change of the disk it fails, fills up or stops dead."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from storage.files.failures import io_failure
from storage.files.fs import File, FileSystem
from tests.faults.relay import Relay, RelayFile

TAKES_SPACE = frozenset({"write", "truncate", "create", "make_dir", "rename"})
SYNCS = frozenset({"datasync", "sync_dir"})
CHANGES_NOTHING = frozenset({"open", "close", "lock"})
Fault = Callable[[str, Path], None]


class Killed(BaseException):
    """The process ends here: nothing that comes later has happened."""


def no_fault(operation: str, path: Path) -> None:
    """All is well."""


class FaultyFileSystem(Relay):
    """Hands everything on to `fs`; before each change of the disk `fault` is called, and may raise.

    The operations are those of `Relay` but for open, close and lock. Of a write that is to fail the first half is
    written, unless `halves` is off. `changes` counts the operations so far, `failed` tells the last one that failed,
    `open_files` has those that nobody closed yet.
    """

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.fault: Fault = no_fault
        self.halves = True
        self.changes = 0
        self.failed: tuple[str, Path] | None = None
        self.open_files: set[File] = set()

    def step(self, operation: str, path: Path) -> None:
        """One more change is about to be made."""
        if operation not in CHANGES_NOTHING:
            self.changes += 1
            try:
                self.fault(operation, path)
            except BaseException:
                self.failed = operation, path
                raise

    def wrap(self, file: File) -> File:
        wrapped = FaultyFile(self, file)
        self.open_files.add(wrapped)
        return wrapped


class FaultyFile(RelayFile):
    """A file of `FaultyFileSystem`."""

    def __init__(self, faulty: FaultyFileSystem, file: File) -> None:
        super().__init__(faulty, file)
        self._faulty = faulty

    def pwrite(self, data: bytes, position: int) -> None:
        try:
            self._relay.step("write", self.path)
        except BaseException:
            if self._faulty.halves:
                self._file.pwrite(data[: len(data) // 2], position)
            raise
        self._file.pwrite(data, position)

    def close(self) -> None:
        super().close()
        self._faulty.open_files.discard(self)


def fails(number: int, operation: str, *, name: str = "") -> Fault:
    """Every such operation on a path that ends with `name` fails with this errno."""

    def fault(done: str, path: Path) -> None:
        if done == operation and str(path).endswith(name):
            raise io_failure(number, path, done)

    return fault


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


def no_space(operation: str, path: Path) -> None:
    """No space, found where the operation takes some, or when it is synced."""
    if operation in TAKES_SPACE or operation in SYNCS:
        raise io_failure(errno.ENOSPC, path, operation)


def short_write(operation: str, path: Path) -> None:
    """A write does half of what it should, and the rest finds no space."""
    if operation == "write":
        raise io_failure(errno.ENOSPC, path, operation)


def broken(operation: str, path: Path) -> None:
    """The disk has an error."""
    raise io_failure(errno.EIO, path, operation)


def killed(operation: str, path: Path) -> None:
    """The process is killed."""
    raise Killed
