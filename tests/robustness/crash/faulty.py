"""A file system with injected faults: at a chosen change of the disk it fails, has no space or ends the process."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from storage.files.failures import io_failure
from storage.files.fs import File, FileSystem
from tests.robustness.crash.relay import Relay, RelayFile

TAKES_SPACE = frozenset({"write", "truncate", "create", "make_dir", "rename"})
SYNCS = frozenset({"datasync", "sync_dir"})
CHANGES_NOTHING = frozenset({"open", "close", "lock"})
Fault = Callable[[str, Path], None]


class Killed(BaseException):
    """The end of the process: later operations do not happen."""


def no_fault(operation: str, path: Path) -> None:
    """Let the operation succeed."""


class FaultyFileSystem(Relay):
    """A file layer that passes every call to `fs`; before each change of the disk it calls `fault`, which may raise.

    It counts the operations of `Relay` except open, close and lock. When a write fails, its first half is written,
    unless `halves` is off. `changes` counts the operations so far, `failed` is the last operation that failed and
    `error` the type of its error, `open_files` holds the files that are not closed yet.
    """

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.fault: Fault = no_fault
        self.halves = True
        self.changes = 0
        self.failed: tuple[str, Path] | None = None
        self.error: type[BaseException] | None = (
            None  # the error itself would keep its frames, and their files
        )
        self.open_files: set[File] = set()

    def step(self, operation: str, path: Path) -> None:
        """Count one more change, then call `fault`."""
        if operation not in CHANGES_NOTHING:
            self.changes += 1
            try:
                self.fault(operation, path)
            except BaseException as error:
                self.failed, self.error = (operation, path), type(error)
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
    """Return a fault: every `operation` on a path that ends with `name` fails with errno `number`."""

    def fault(done: str, path: Path) -> None:
        if done == operation and str(path).endswith(name):
            raise io_failure(number, path, done)

    return fault


def at_change(fs: FaultyFileSystem, count: int, fault: Fault) -> Fault:
    """Return `fault`, limited to the `count`-th change from now; `killed` also applies to every later change."""
    last = fs.changes + count

    def once(operation: str, path: Path) -> None:
        if fs.changes == last or (fs.changes > last and fault is killed):
            fault(operation, path)

    return once


def disk_full(operation: str, path: Path) -> None:
    """Fail with ENOSPC if the operation needs space."""
    if operation in TAKES_SPACE:
        raise io_failure(errno.ENOSPC, path, operation)


def no_space(operation: str, path: Path) -> None:
    """Fail with ENOSPC if the operation needs space or is a sync."""
    if operation in TAKES_SPACE or operation in SYNCS:
        raise io_failure(errno.ENOSPC, path, operation)


def short_write(operation: str, path: Path) -> None:
    """Fail with ENOSPC on a write, half of which is written."""
    if operation == "write":
        raise io_failure(errno.ENOSPC, path, operation)


def broken(operation: str, path: Path) -> None:
    """Fail with EIO."""
    raise io_failure(errno.EIO, path, operation)


def killed(operation: str, path: Path) -> None:
    """End the process."""
    raise Killed
