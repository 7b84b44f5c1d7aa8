"""A file system that keeps all changes in memory over a read-only base: for recovery of a store that must not change.

Owns open files, locks and the thread safety of the overlay; must not write to the base, not even a time. Names are in
tree.py, bytes in pages.py. Without a base it starts empty and is a file system in memory.

The base may be live. A file keeps the length that it had when it was first opened or its size was first read. Names
that appear in the base later become visible. A file that the base replaces or removes is read in its new state. Links
between directories of the base are followed but not resolved: use one path for one file.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.files.changes import changed_paths
from storage.files.failures import io_failure, store_locked
from storage.files.fs import Buffer, File, FileLock, FileSystem
from storage.files.pages import Content
from storage.files.tree import Directory, Node, Special, Tree, parts

_POSITIONS = 1 << 63  # the limit of a file position; the system calls reject the same values


class OverlayFile:
    """An open file of the overlay. Owns its handle of the base file, which is open for reading only."""

    __slots__ = ("_base", "_clock", "_content", "_open", "_write", "path")

    def __init__(
        self,
        path: Path,
        content: Content,
        base: File | None,
        *,
        write: bool,
        clock: Callable[[], int],
    ) -> None:
        self.path = path
        self._content = content
        self._base = base
        self._write = write
        self._clock = clock
        self._open = True

    def size(self) -> int:
        self._check("stat")
        return self._content.size_bytes

    def data_end(self, start: int) -> int:
        self._check("lseek", start)
        return self._content.data_end(self._base, start)

    def next_data(self, start: int) -> int:
        self._check("lseek", start)
        return self._content.next_data(self._base, start)

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check("read", size_bytes, position)
        return self._content.read(self._base, size_bytes, position)

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        return None

    def pwrite(self, data: bytes, position: int) -> None:
        self._check("write", position, write=True)
        self._content.write(self._base, data, position)
        if data:
            self._content.mtime_ms = self._clock()

    def pwritev(self, pieces: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(pieces), position)

    def truncate(self, size_bytes: int) -> None:
        self._check("truncate", size_bytes, write=True)
        self._content.truncate(size_bytes)
        self._content.mtime_ms = self._clock()

    def datasync(self) -> None:
        self._check("datasync")

    def close(self) -> None:
        self._open = False
        if self._base is not None:
            self._base.close()

    def _check(self, operation: str, *numbers: int, write: bool = False) -> None:
        if not self._open or (write and not self._write):
            raise io_failure(errno.EBADF, self.path, operation)
        for number in numbers:
            if not 0 <= number < _POSITIONS:
                raise io_failure(errno.EINVAL, self.path, operation)


class OverlayLock:
    """A lock within one OverlayFileSystem."""

    def __init__(self, held: set[Content], content: Content) -> None:
        self._held = held
        self._content: Content | None = content

    def release(self) -> None:
        content, self._content = self._content, None
        if content is not None:
            self._held.discard(content)


class OverlayFileSystem:
    """Writes in memory over `base`, which is only read. Thread-safe.

    `clock` returns the mtime of changed files (milliseconds); without it the mtime is 0. Nothing survives the object:
    `datasync` and `sync_dir` only check their arguments. Memory is used for written pages of 4 KiB, not for the length.
    """

    def __init__(
        self, base: FileSystem | None = None, *, clock: Callable[[], int] = lambda: 0
    ) -> None:
        self._base = base
        self._clock = clock
        self._tree = Tree(base, clock)
        # Entries are added under `_lock`; `OverlayLock.release` removes them without it (discard is atomic).
        self._locked: set[Content] = set()
        self._lock = threading.RLock()  # guards the tree; the bytes of a file have their own lock

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OverlayFile:
        with self._lock:
            content = self._tree.create(path, "open") if create else self._tree.file(path, "open")
        base = None
        if self._base is not None and content.base_path is not None and content.visible_bytes:
            base = self._base.open(content.base_path)
        return OverlayFile(path, content, base, write=write or create, clock=self._clock)

    def exists(self, path: Path) -> bool:
        with self._lock:
            return self._tree.find(path, "stat", strict=False) is not None

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        with self._lock:
            node = self._tree.find(path, "stat", strict=False)
        if not isinstance(node, Directory):
            return False
        if follow or self._base is None or node.base_path is None:
            return True
        return self._base.is_dir(node.base_path)

    def list_dir(self, path: Path) -> Sequence[str]:
        with self._lock:
            return self._tree.names(self._tree.directory(path, "list"))

    def size(self, path: Path) -> int:
        with self._lock:
            return self._tree.file(path, "stat").size_bytes

    def mtime_ms(self, path: Path) -> int:
        with self._lock:
            node = self._tree.node(path, "stat")
            if isinstance(node, Special):
                raise io_failure(node.errno, path, "stat", reason=node.reason)
            if node.mtime_ms is None and self._base is not None and node.base_path is not None:
                return self._base.mtime_ms(node.base_path)
            return node.mtime_ms or 0

    def set_mtime_ms(self, path: Path, time_ms: int) -> None:
        with self._lock:
            self._tree.file(path, "utime").mtime_ms = time_ms

    def used_percent(self, path: Path) -> int:
        return 0 if self._base is None else self._base.used_percent(path)

    def read_bytes(self, path: Path) -> bytes:
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def make_dir(self, path: Path) -> None:
        with self._lock:
            directory = self._tree.root
            names = parts(path, "mkdir")
            for depth, name in enumerate(names, 1):
                child = self._tree.child(directory, name)
                if child is None:
                    child = self._tree.put_directory(directory, name)
                if not isinstance(child, Directory):
                    number = errno.EEXIST if depth == len(names) else errno.ENOTDIR
                    raise io_failure(number, path, "mkdir")
                directory = child

    def rename(self, source: Path, target: Path) -> None:
        operation = f"rename to {target.name} of"
        with self._lock:
            parent, name = self._tree.place(source, operation)
            target_parent, target_name = self._tree.place(target, operation)
            node = self._tree.child(parent, name)
            if node is None:
                raise io_failure(errno.ENOENT, source, operation)
            replaced = self._tree.child(target_parent, target_name)
            if replaced is node:
                return
            own = parts(source, operation)
            into_itself = parts(target, operation)[: len(own)] == own
            refusal = errno.EINVAL if into_itself else self._refusal(node, replaced)
            if refusal:
                raise io_failure(refusal, source, operation)
            self._tree.put(target_parent, target_name, node)
            self._tree.drop(parent, name)

    def remove(self, path: Path) -> None:
        with self._lock:
            if isinstance(self._tree.node(path, "remove"), Directory):
                raise io_failure(errno.EISDIR, path, "remove")
            self._tree.drop(*self._tree.place(path, "remove"))

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            self._tree.directory(path, "remove_tree")
            self._tree.drop(*self._tree.place(path, "remove_tree"))

    def sync_dir(self, path: Path) -> None:
        with self._lock:
            self._tree.directory(path, "sync_dir")

    def lock(self, path: Path) -> FileLock:
        """Take the lock as FileSystem.lock, but only among the users of this object: the base file is not locked."""
        with self._lock:
            content = self._tree.create(path, "lock")
            if content in self._locked:
                raise store_locked(path, os.getpid())
            self._locked.add(content)
            return OverlayLock(self._locked, content)

    def base_path(self, path: Path) -> Path | None:
        """Return the base's path of the file at `path`, which differs after a rename; None for a file created here."""
        with self._lock:
            return self._tree.file(path, "stat").base_path

    def forget(self, path: Path) -> None:
        """Let the next use of an unchanged file see its present length: the base may have replaced it."""
        with self._lock:
            parent, name = self._tree.place(path, "forget")
            node = parent.children.get(name)
            if isinstance(node, Content) and node.base_path is not None and not node.touched:
                del parent.children[name]

    def changed(self) -> Sequence[Path]:
        """Return the files and directories that were created, removed or have other bytes than in the base, sorted.

        Bytes are compared: a write of identical bytes is not a change, nor is a different mtime.
        """
        with self._lock:
            return sorted(changed_paths(self._tree))

    def _refusal(self, node: Node, replaced: Node | None) -> int:
        """Return the errno of rename(2) if `node` may not replace `replaced`; 0 if it may."""
        if replaced is None:
            return 0
        if not isinstance(replaced, Directory):
            return errno.ENOTDIR if isinstance(node, Directory) else 0
        if not isinstance(node, Directory):
            return errno.EISDIR
        return errno.ENOTEMPTY if self._tree.names(replaced) else 0
