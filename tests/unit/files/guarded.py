"""File systems for tests: a read-only file system, and a file system that records its steps."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from storage.errors import IoFailure
from storage.files.fs import File, FileSystem
from tests.robustness.crash.relay import Relay, RelayFile


class ReadOnly(Relay):
    """A file system that passes reads to `fs`; a write of any kind fails the test."""

    def step(self, operation: str, path: Path) -> None:
        assert operation in ("open", "close"), f"{operation} {path}"

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        assert not write, f"{path} was opened for writing"
        assert not create, f"{path} would have been made"
        return super().open(path)


class Watched(Relay):
    """A file system that passes all calls to `fs` and records its steps as (operation, name of the file).

    `before` maps such a pair to a call made just before the step (once; it may block or raise). `open_now` is the
    number of open files. `unsynced` returns the names of files with a write that no later sync has finished.
    """

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self._lock = threading.Lock()
        self.log: list[tuple[str, str]] = []
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        self.open_now = 0
        self.most_open = 0
        self.written: Counter[str] = Counter()
        self.synced: Counter[str] = Counter()

    def unsynced(self) -> set[str]:
        """Return the names of files with writes that were not synced."""
        return {name for name, count in self.written.items() if self.synced[name] < count}

    def step(self, operation: str, path: Path) -> None:
        """Record an operation, after the call that a test has registered before it."""
        action = self.before.pop((operation, path.name), None)
        if action is not None:
            action()
        with self._lock:
            self.log.append((operation, path.name))

    def count_open(self, step: int) -> None:
        """Count a file that is opened (1) or closed (-1)."""
        with self._lock:
            self.open_now += step
            self.most_open = max(self.most_open, self.open_now)

    def count_written(self, name: str) -> None:
        """Count one more finished write."""
        with self._lock:
            self.written[name] += 1

    def count_synced(self, name: str, written: int) -> None:
        """Record that the first `written` writes are synced."""
        with self._lock:
            self.synced[name] = max(self.synced[name], written)

    def wrap(self, file: File) -> File:
        self.count_open(1)
        return WatchedFile(self, file)


class WatchedFile(RelayFile):
    """A file of `Watched`."""

    def __init__(self, watched: Watched, file: File) -> None:
        super().__init__(watched, file)
        self._watched = watched

    def pwrite(self, data: bytes, position: int) -> None:
        super().pwrite(data, position)
        self._watched.count_written(self.path.name)

    def datasync(self) -> None:
        name = self.path.name
        written = self._watched.written[name]
        super().datasync()
        self._watched.count_synced(name, written)

    def close(self) -> None:
        super().close()
        self._watched.count_open(-1)


def failing(number: int) -> Callable[[], None]:
    """Return a call for `Watched.before` that fails with this errno."""

    def fail() -> None:
        raise IoFailure("as the test says", path="/f", operation="datasync", errno=number)

    return fail


def descriptors_below(directory: Path) -> list[int]:
    """Return this process's descriptors of a directory and of all files below it."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor that lists /proc/self/fd
            target = link.readlink()
            if target == directory or directory in target.parents:
                found.append(int(link.name))
    return found
