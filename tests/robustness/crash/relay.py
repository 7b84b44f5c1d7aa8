"""A file system that passes every call to another file system, and the one place where tests insert behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.files.fs import Buffer, File, FileLock, FileSystem


class Relay:
    """A file layer that passes every call to `fs`.

    `step` is called before each operation on names or bytes; it may raise.

    The steps have the names of the file layer's calls: open, write, truncate, datasync, close, make_dir, rename (with
    the new name), remove, remove_tree, sync_dir, lock; and create, for an open that creates the file. Only the open
    step comes after its operation: between the system call and the return to the caller. Reads are no steps, and
    neither is make_dir of an existing directory.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def step(self, operation: str, path: Path) -> None:
        """Run the test's action before an operation."""

    def wrap(self, file: File) -> File:
        """Return the file that the caller receives."""
        return RelayFile(self, file)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create and not self._fs.exists(path):
            self.step("create", path)
        file = self._fs.open(path, write=write, create=create)
        self.step("open", path)
        return self.wrap(file)

    def exists(self, path: Path) -> bool:
        return self._fs.exists(path)

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        return self._fs.is_dir(path, follow=follow)

    def list_dir(self, path: Path) -> Sequence[str]:
        return self._fs.list_dir(path)

    def size(self, path: Path) -> int:
        return self._fs.size(path)

    def mtime_ms(self, path: Path) -> int:
        return self._fs.mtime_ms(path)

    def set_mtime_ms(self, path: Path, time_ms: int) -> None:
        self._fs.set_mtime_ms(path, time_ms)

    def used_percent(self, path: Path) -> int:
        return self._fs.used_percent(path)

    def read_bytes(self, path: Path) -> bytes:
        return self._fs.read_bytes(path)

    def make_dir(self, path: Path) -> None:
        if not self._fs.exists(path):
            self.step("make_dir", path)
        self._fs.make_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target)
        self._fs.rename(source, target)

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        self._fs.remove(path)

    def remove_tree(self, path: Path) -> None:
        self.step("remove_tree", path)
        self._fs.remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        self.step("sync_dir", path)
        self._fs.sync_dir(path)

    def lock(self, path: Path) -> FileLock:
        self.step("lock", path)
        return self._fs.lock(path)


class RelayFile:
    """A file of a `Relay`."""

    def __init__(self, relay: Relay, file: File) -> None:
        self.path = file.path
        self._relay = relay
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def data_end(self, start: int) -> int:
        return self._file.data_end(start)

    def next_data(self, start: int) -> int:
        return self._file.next_data(start)

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._file.pread(size_bytes, position)

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        return None

    def pwrite(self, data: bytes, position: int) -> None:
        self._relay.step("write", self.path)
        self._file.pwrite(data, position)

    def pwritev(self, pieces: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(pieces), position)

    def truncate(self, size_bytes: int) -> None:
        self._relay.step("truncate", self.path)
        self._file.truncate(size_bytes)

    def datasync(self) -> None:
        self._relay.step("datasync", self.path)
        self._file.datasync()

    def close(self) -> None:
        self._relay.step("close", self.path)
        self._file.close()
