"""File systems for tests: one that may only be read, and one that watches what is done to it."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.errors import IoFailure
from storage.files.fs import File, FileLock, FileSystem


class ReadOnly:
    """Hands reads on to `fs`; a write of any kind is a failed test."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        assert not write, f"{path} was opened for writing"
        assert not create, f"{path} would have been made"
        return self._fs.open(path)

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
        raise AssertionError(f"mkdir {path}")

    def rename(self, source: Path, target: Path) -> None:
        raise AssertionError(f"rename {source} to {target}")

    def remove(self, path: Path) -> None:
        raise AssertionError(f"remove {path}")

    def remove_tree(self, path: Path) -> None:
        raise AssertionError(f"remove {path}")

    def sync_dir(self, path: Path) -> None:
        raise AssertionError(f"sync {path}")

    def lock(self, path: Path) -> FileLock:
        raise AssertionError(f"lock {path}")


class Watched:
    """Hands all on to `fs` and writes down opens, syncs and closes as (operation, name of the file).

    `before` maps such a pair to a call made just before it is done (once; it may block or raise). `open_now` counts
    open files. `unsynced` holds the names of files with writes that no sync, begun later, has finished.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self.log: list[tuple[str, str]] = []
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        self.open_now = 0
        self.most_open = 0
        self.written: Counter[str] = Counter()
        self.synced: Counter[str] = Counter()

    def unsynced(self) -> set[str]:
        """Names of files with writes that were not synced."""
        return {name for name, count in self.written.items() if self.synced[name] < count}

    def note(self, operation: str, path: Path) -> None:
        """Write down an operation, after doing what a test has put before it."""
        action = self.before.pop((operation, path.name), None)
        if action is not None:
            action()
        with self._lock:
            self.log.append((operation, path.name))

    def count_open(self, step: int) -> None:
        """One file more or less is open."""
        with self._lock:
            self.open_now += step
            self.most_open = max(self.most_open, self.open_now)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = self._fs.open(path, write=write, create=create)
        self.note("open", path)
        self.count_open(1)
        return WatchedFile(self, file)

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
        self.note("make_dir", path)
        self._fs.make_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.note("rename", target)
        self._fs.rename(source, target)

    def remove(self, path: Path) -> None:
        self.note("remove", path)
        self._fs.remove(path)

    def remove_tree(self, path: Path) -> None:
        self.note("remove_tree", path)
        self._fs.remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        self.note("sync_dir", path)
        self._fs.sync_dir(path)

    def lock(self, path: Path) -> FileLock:
        return self._fs.lock(path)


class WatchedFile:
    """A file of `Watched`."""

    def __init__(self, watched: Watched, file: File) -> None:
        self.path = file.path
        self._watched = watched
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._file.pread(size_bytes, position)

    def pwrite(self, data: bytes, position: int) -> None:
        self._watched.note("write", self.path)
        self._file.pwrite(data, position)
        with self._watched._lock:
            self._watched.written[self.path.name] += 1

    def truncate(self, size_bytes: int) -> None:
        self._watched.note("truncate", self.path)
        self._file.truncate(size_bytes)

    def datasync(self) -> None:
        name = self.path.name
        written = self._watched.written[name]
        self._watched.note("datasync", self.path)
        self._file.datasync()
        with self._watched._lock:
            self._watched.synced[name] = max(self._watched.synced[name], written)

    def close(self) -> None:
        self._watched.note("close", self.path)
        self._file.close()
        self._watched.count_open(-1)


def failing(number: int) -> Callable[[], None]:
    """Something for `Watched.before` that fails with this errno."""

    def fail() -> None:
        raise IoFailure("as the test says", path="/f", operation="datasync", errno=number)

    return fail


def descriptors_below(directory: Path) -> list[int]:
    """This process's descriptors of what lies in a directory, it included."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor that lists /proc/self/fd
            target = link.readlink()
            if target == directory or directory in target.parents:
                found.append(int(link.name))
    return found
