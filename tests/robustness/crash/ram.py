"""A small file system in memory with a very cheap copy: the state after a crash is opened many times.

Owns names and bytes, as the file layer promises them; must not keep times (all are 0) nor know which changes are
synced. Bytes are never changed in place, so copies share them all. A write costs as much as its file is long: some KB.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from storage.files.failures import io_failure, store_locked
from storage.files.fs import Buffer, FileLock
from storage.files.tree import parts

POSITIONS = 1 << 63  # the number of valid file positions


class Bytes:
    """The content of a file, without its name."""

    __slots__ = ("data", "locked")

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.locked = False


Folder: TypeAlias = "dict[str, Node]"
Node: TypeAlias = "Folder | Bytes"


class RamFile:
    """An open file."""

    __slots__ = ("_file", "_lock", "_open", "_write", "path")

    def __init__(self, path: Path, file: Bytes, lock: threading.Lock, *, write: bool) -> None:
        self.path = path
        self._file = file
        self._lock = lock
        self._write = write
        self._open = True

    def size(self) -> int:
        self._check("stat")
        return len(self._file.data)

    def data_end(self, start: int) -> int:
        self._check("lseek", start)
        return max(start, len(self._file.data))

    def next_data(self, start: int) -> int:
        self._check("lseek", start)
        return start

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check("read", size_bytes, position)
        return self._file.data[position : position + size_bytes]

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        return None

    def pwrite(self, data: bytes, position: int) -> None:
        self._check("write", position, write=True)
        if data:
            with self._lock:
                was = self._file.data
                head = was[:position].ljust(position, b"\0")
                self._file.data = b"".join((head, data, was[position + len(data) :]))

    def pwritev(self, pieces: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(pieces), position)

    def truncate(self, size_bytes: int) -> None:
        self._check("truncate", size_bytes, write=True)
        with self._lock:
            self._file.data = self._file.data[:size_bytes].ljust(size_bytes, b"\0")

    def datasync(self) -> None:
        self._check("datasync")

    def close(self) -> None:
        self._open = False

    def _check(self, operation: str, *numbers: int, write: bool = False) -> None:
        if not self._open or (write and not self._write):
            raise io_failure(errno.EBADF, self.path, operation)
        for number in numbers:
            if not 0 <= number < POSITIONS:
                raise io_failure(errno.EINVAL, self.path, operation)


class RamLock:
    """A lock within one `Ram`."""

    def __init__(self, file: Bytes) -> None:
        self._file: Bytes | None = file

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.locked = False


class Ram:
    """Files by path, starting with the files of `root`, which is not copied. Thread-safe."""

    def __init__(self, root: Folder | None = None) -> None:
        self._root: Folder = {} if root is None else root
        self._lock = threading.Lock()  # for every change of names or bytes

    def copy(self) -> Ram:
        """Return the same files as a separate file system, without held locks."""
        with self._lock:
            return Ram(_copy(self._root))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and bytes of every file, in name order; an empty folder as `path/` without bytes."""
        return _files("", self._root)

    def digest(self) -> bytes:
        """Return the digest of all names and bytes."""
        found = hashlib.blake2b(digest_size=16)
        for path, data in self.files():
            found.update(f"{path}\0{len(data)}\0".encode())
            found.update(data)
        return found.digest()

    # ---- reading ----

    def _find(self, path: Path, operation: str, *, strict: bool = True) -> Node | None:
        return self._walk(parts(path, operation), path, operation, strict=strict)

    def _walk(
        self, names: tuple[str, ...], path: Path, operation: str, *, strict: bool = True
    ) -> Node | None:
        node: Node | None = self._root
        for name in names:
            if isinstance(node, dict):
                node = node.get(name)
            elif node is not None and strict:
                raise io_failure(errno.ENOTDIR, path, operation)
            else:
                return None
        return node

    def _folder(self, path: Path, operation: str) -> Folder:
        return _as_folder(self._find(path, operation), path, operation)

    def _file(self, path: Path, operation: str) -> Bytes:
        node = self._find(path, operation)
        if isinstance(node, Bytes):
            return node
        raise io_failure(errno.ENOENT if node is None else errno.EISDIR, path, operation)

    def _place(self, path: Path, operation: str) -> tuple[Folder, str]:
        """Return the folder that contains the last name of a path, and that name."""
        names = parts(path, operation)
        if not names:
            raise io_failure(errno.EBUSY, path, operation)
        return _as_folder(self._walk(names[:-1], path, operation), path, operation), names[-1]

    def exists(self, path: Path) -> bool:
        return self._find(path, "stat", strict=False) is not None

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        return isinstance(self._find(path, "stat", strict=False), dict)

    def list_dir(self, path: Path) -> Sequence[str]:
        with self._lock:
            return sorted(self._folder(path, "list"))

    def size(self, path: Path) -> int:
        return len(self._file(path, "stat").data)

    def mtime_ms(self, path: Path) -> int:
        if self._find(path, "stat") is None:
            raise io_failure(errno.ENOENT, path, "stat")
        return 0

    def set_mtime_ms(self, path: Path, time_ms: int) -> None:
        self.mtime_ms(path)

    def used_percent(self, path: Path) -> int:
        return 0

    def read_bytes(self, path: Path) -> bytes:
        return self._file(path, "open").data

    # ---- changing ----

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> RamFile:
        file = self._made(path, "open") if create else self._file(path, "open")
        return RamFile(path, file, self._lock, write=write or create)

    def _made(self, path: Path, operation: str) -> Bytes:
        with self._lock:
            folder, name = self._place(path, operation)
            node = folder.setdefault(name, Bytes())
        if not isinstance(node, Bytes):
            raise io_failure(errno.EISDIR, path, operation)
        return node

    def make_dir(self, path: Path) -> None:
        with self._lock:
            node: Node = self._root
            names = parts(path, "mkdir")
            for depth, name in enumerate(names, 1):
                assert isinstance(node, dict)
                node = node.setdefault(name, {})
                if isinstance(node, Bytes):
                    number = errno.EEXIST if depth == len(names) else errno.ENOTDIR
                    raise io_failure(number, path, "mkdir")

    def rename(self, source: Path, target: Path) -> None:
        operation = f"rename to {target.name} of"
        with self._lock:
            folder, name = self._place(source, operation)
            target_folder, target_name = self._place(target, operation)
            node, replaced = folder.get(name), target_folder.get(target_name)
            if node is replaced is not None:
                return
            own = parts(source, operation)
            into_itself = parts(target, operation)[: len(own)] == own
            number = errno.EINVAL if node is not None and into_itself else _refusal(node, replaced)
            if number:
                raise io_failure(number, source, operation)
            target_folder[target_name] = folder.pop(name)

    def remove(self, path: Path) -> None:
        with self._lock:
            self._file(path, "remove")
            folder, name = self._place(path, "remove")
            del folder[name]

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            self._folder(path, "remove_tree")
            folder, name = self._place(path, "remove_tree")
            del folder[name]

    def sync_dir(self, path: Path) -> None:
        self._folder(path, "sync_dir")

    def lock(self, path: Path) -> FileLock:
        file = self._made(path, "lock")
        with self._lock:
            if file.locked:
                raise store_locked(path, os.getpid())
            file.locked = True
        return RamLock(file)


def _as_folder(node: Node | None, path: Path, operation: str) -> Folder:
    if isinstance(node, dict):
        return node
    raise io_failure(errno.ENOENT if node is None else errno.ENOTDIR, path, operation)


def _refusal(node: Node | None, replaced: Node | None) -> int:
    """Return the errno of rename(2) if `node` must not replace `replaced`; 0 if it may."""
    if node is None:
        return errno.ENOENT
    if replaced is None:
        return 0
    if isinstance(node, dict):
        if not isinstance(replaced, dict):
            return errno.ENOTDIR
        return errno.ENOTEMPTY if replaced else 0
    return errno.EISDIR if isinstance(replaced, dict) else 0


def _copy(folder: Folder) -> Folder:
    return {
        name: _copy(node) if isinstance(node, dict) else Bytes(node.data)
        for name, node in folder.items()
    }


def _files(path: str, folder: Folder) -> Iterator[tuple[str, bytes]]:
    for name in sorted(folder):
        node = folder[name]
        at = f"{path}/{name}"
        if isinstance(node, Bytes):
            yield at, node.data
        elif node:
            yield from _files(at, node)
        else:
            yield f"{at}/", b""
