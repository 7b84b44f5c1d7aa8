"""A file system that keeps all changes in memory over a read-only base: recovery of a store nobody may touch.

Owns the tree of names; bytes are in pages.py. Never writes to the base, not even a time. Without a base it starts empty
and is the file system in memory. Directories and files are brought in from the base when they are first asked for; a
name that was removed is kept as None, so that the base's no longer shows. What moves keeps pointing to where its bytes
lie in the base.

The base may be live: a file keeps the length it had when it was first opened or asked for its size, while names that
appear in the base later do show, and a file the base replaces or removes is read as it is then. Links between
directories of the base are followed but not understood: use one path for one file.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from storage.errors import IoFailure, StoreLocked
from storage.files.failures import io_failure
from storage.files.fs import File, FileLock, FileSystem
from storage.files.pages import Content

_COMPARED_BYTES = 1 << 20


class _Directory:
    """Names in memory over those of `base` (None: nothing below). Written under the file system's lock only."""

    __slots__ = ("base", "children", "mtime_ms")

    def __init__(self, base: Path | None, mtime_ms: int | None) -> None:
        self.base = base
        self.children: dict[str, _Node | None] = {}
        self.mtime_ms = mtime_ms


class _Special:
    """A link, a pipe or the like in the base: it has a name, and `errno` for whoever wants its bytes."""

    __slots__ = ("errno", "path")

    def __init__(self, path: Path, errno: int) -> None:
        self.path = path
        self.errno = errno


_Node = _Directory | Content | _Special


class OverlayFile:
    """An open file of the overlay. Owns its handle of the base, which is open for reading only."""

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

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check("read", size_bytes, position)
        return self._content.read(self._base, size_bytes, position)

    def pwrite(self, data: bytes, position: int) -> None:
        self._check("write", position, write=True)
        self._content.write(self._base, data, position)
        if data:
            self._content.mtime_ms = self._clock()

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
        if any(number < 0 for number in numbers):
            raise io_failure(errno.EINVAL, self.path, operation)


class OverlayLock:
    """A lock within one OverlayFileSystem."""

    def __init__(self, held: set[Content], content: Content) -> None:
        self._held = held
        self._content = content

    def release(self) -> None:
        self._held.discard(self._content)


class OverlayFileSystem:
    """Writes in memory over `base`, which is only ever read. Safe from several threads.

    `clock` gives the mtime of what is changed here (milliseconds); without it that is 0. Nothing survives the object,
    so `datasync` and `sync_dir` only check their arguments.
    """

    def __init__(
        self, base: FileSystem | None = None, *, clock: Callable[[], int] = lambda: 0
    ) -> None:
        self._base = base
        self._clock = clock
        root = Path("/")
        self._root = _Directory(root if base else None, None if base else clock())
        # Added to under `_lock`; taken from by `OverlayLock.release` without it (discard is one step).
        self._locked: set[Content] = set()
        self._lock = threading.RLock()  # over the tree; the bytes of a file have their own

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OverlayFile:
        with self._lock:
            content = self._create(path) if create else self._file(path, "open")
        base = None
        if self._base is not None and content.base_path is not None and content.visible_bytes:
            base = self._base.open(content.base_path)
        return OverlayFile(path, content, base, write=write or create, clock=self._clock)

    def exists(self, path: Path) -> bool:
        with self._lock:
            return self._find(path, "stat", strict=False) is not None

    def is_dir(self, path: Path) -> bool:
        with self._lock:
            return isinstance(self._find(path, "stat", strict=False), _Directory)

    def list_dir(self, path: Path) -> Sequence[str]:
        with self._lock:
            return self._names(self._directory(path, "list"))

    def size(self, path: Path) -> int:
        with self._lock:
            return self._file(path, "stat").size_bytes

    def mtime_ms(self, path: Path) -> int:
        with self._lock:
            node = self._node(path, "stat")
            if isinstance(node, _Special):
                raise io_failure(node.errno, path, "stat")
            base_path = node.base if isinstance(node, _Directory) else node.base_path
            if node.mtime_ms is None and self._base is not None and base_path is not None:
                return self._base.mtime_ms(base_path)
            return node.mtime_ms or 0

    def read_bytes(self, path: Path) -> bytes:
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def make_dir(self, path: Path) -> None:
        with self._lock:
            directory = self._root
            for name in _parts(path, "mkdir"):
                child = self._child(directory, name)
                if child is None:
                    child = _Directory(None, self._clock())
                    self._put(directory, name, child)
                if not isinstance(child, _Directory):
                    raise io_failure(errno.ENOTDIR, path, "mkdir")
                directory = child

    def rename(self, source: Path, target: Path) -> None:
        operation = f"rename to {target.name} of"
        with self._lock:
            parent, name = self._place(source, operation)
            target_parent, target_name = self._place(target, operation)
            node = self._child(parent, name)
            if node is None:
                raise io_failure(errno.ENOENT, source, operation)
            replaced = self._child(target_parent, target_name)
            if replaced is node:
                return
            target_parts = _parts(target, operation)
            if target_parts[: len(_parts(source, operation))] == _parts(source, operation):
                raise io_failure(errno.EINVAL, source, operation)
            refusal = self._refusal(node, replaced)
            if refusal:
                raise io_failure(refusal, source, operation)
            self._put(target_parent, target_name, node)
            self._drop(parent, name)

    def remove(self, path: Path) -> None:
        with self._lock:
            if isinstance(self._node(path, "remove"), _Directory):
                raise io_failure(errno.EISDIR, path, "remove")
            self._drop(*self._place(path, "remove"))

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            self._directory(path, "remove_tree")
            self._drop(*self._place(path, "remove_tree"))

    def sync_dir(self, path: Path) -> None:
        with self._lock:
            self._directory(path, "sync_dir")

    def lock(self, path: Path) -> FileLock:
        """As FileSystem.lock, but only among the users of this object: the base's lock is not taken."""
        with self._lock:
            content = self._create(path)
            if content in self._locked:
                pid = os.getpid()
                raise StoreLocked(
                    f"{path} is locked by this process ({pid})", path=str(path), pid=pid
                )
            self._locked.add(content)
            return OverlayLock(self._locked, content)

    def changed(self) -> Sequence[Path]:
        """The files and directories made, removed or with other bytes than in the base, sorted.

        Bytes are compared: what was written as it stood is not changed, nor is a mtime alone.
        """
        with self._lock:
            return sorted(self._changed_below(Path("/"), self._root))

    # Names. All below run under `_lock`.

    def _child(self, directory: _Directory, name: str) -> _Node | None:
        """What has this name, brought in from the base when it is asked for the first time."""
        if name in directory.children:
            return directory.children[name]
        if self._base is None or directory.base is None:
            return None
        node = self._base_node(self._base, directory.base / name)
        if node is not None:
            directory.children[name] = node
        return node

    @staticmethod
    def _base_node(base: FileSystem, path: Path) -> _Node | None:
        if base.is_dir(path):
            return _Directory(path, None)
        if not base.exists(path):
            return None
        try:
            return Content(path, base.size(path), None)
        except IoFailure as failure:
            number = failure.facts().get("errno")
            if number == errno.ENOENT:  # gone meanwhile
                return None
            return _Special(path, number if isinstance(number, int) else errno.EINVAL)

    def _names(self, directory: _Directory) -> list[str]:
        names = {name for name, node in directory.children.items() if node is not None}
        if self._base is not None and directory.base is not None:
            names.update(
                name
                for name in self._base.list_dir(directory.base)
                if name not in directory.children
            )
        return sorted(names)

    def _find(self, path: Path, operation: str, *, strict: bool = True) -> _Node | None:
        """What is at `path`; None when there is nothing. `strict`: a file on the way is ENOTDIR."""
        node: _Node | None = self._root
        for name in _parts(path, operation):
            if node is None:
                return None
            if not isinstance(node, _Directory):
                if strict:
                    raise io_failure(errno.ENOTDIR, path, operation)
                return None
            node = self._child(node, name)
        return node

    def _node(self, path: Path, operation: str) -> _Node:
        node = self._find(path, operation)
        if node is None:
            raise io_failure(errno.ENOENT, path, operation)
        return node

    def _file(self, path: Path, operation: str) -> Content:
        node = self._node(path, operation)
        if isinstance(node, _Directory):
            raise io_failure(errno.EISDIR, path, operation)
        if isinstance(node, _Special):
            raise io_failure(node.errno, path, operation)
        return node

    def _directory(self, path: Path, operation: str) -> _Directory:
        node = self._node(path, operation)
        if not isinstance(node, _Directory):
            raise io_failure(errno.ENOTDIR, path, operation)
        return node

    def _place(self, path: Path, operation: str) -> tuple[_Directory, str]:
        """The directory that holds the name `path`, and the name."""
        parts = _parts(path, operation)
        if not parts:
            raise io_failure(errno.EBUSY, path, operation)
        return self._directory(Path("/", *parts[:-1]), operation), parts[-1]

    def _create(self, path: Path) -> Content:
        parent, name = self._place(path, "open")
        if self._child(parent, name) is not None:
            return self._file(path, "open")
        content = Content(None, 0, self._clock())
        self._put(parent, name, content)
        return content

    def _put(self, directory: _Directory, name: str, node: _Node) -> None:
        directory.children[name] = node
        directory.mtime_ms = self._clock()

    def _drop(self, directory: _Directory, name: str) -> None:
        directory.children[name] = None
        directory.mtime_ms = self._clock()

    def _refusal(self, node: _Node, replaced: _Node | None) -> int:
        """The errno of rename(2) when `node` may not take the place of `replaced`; 0 when it may."""
        if replaced is None:
            return 0
        if not isinstance(replaced, _Directory):
            return errno.ENOTDIR if isinstance(node, _Directory) else 0
        if not isinstance(node, _Directory):
            return errno.EISDIR
        return errno.ENOTEMPTY if self._names(replaced) else 0

    # What differs from the base. `path` is where the nodes stand here.

    def _changed_below(self, path: Path, node: _Node | None) -> Iterator[Path]:
        """The changed names in the directory `path`, where `node` is what is there now."""
        names: set[str] = set()
        if isinstance(node, _Directory):
            names.update(node.children if node.base == path else self._names(node))
        if not (isinstance(node, _Directory) and node.base == path) and self._in_base(path):
            names.update(self._base_names(path))
        for name in names:
            child = self._child(node, name) if isinstance(node, _Directory) else None
            if self._differs(path / name, child):
                yield path / name
            yield from self._changed_below(path / name, child)

    def _differs(self, path: Path, node: _Node | None) -> bool:
        base = self._base
        if base is None or not base.exists(path):
            return node is not None
        if isinstance(node, _Special):
            return node.path != path
        if not isinstance(node, Content) or base.is_dir(path):
            return not (isinstance(node, _Directory) and base.is_dir(path))
        if node.base_path == path:
            return node.touched and not self._same_bytes(path, node, node.base_size_bytes)
        return not self._same_bytes(path, node, base.size(path))

    def _same_bytes(self, path: Path, content: Content, base_size_bytes: int) -> bool:
        assert self._base is not None
        if content.size_bytes != base_size_bytes:
            return False
        own = self._base.open(content.base_path) if content.base_path is not None else None
        other = self._base.open(path)
        try:
            return all(
                content.read(own, _COMPARED_BYTES, position)
                == other.pread(min(_COMPARED_BYTES, base_size_bytes - position), position)
                for position in range(0, base_size_bytes, _COMPARED_BYTES)
            )
        finally:
            other.close()
            if own is not None:
                own.close()

    def _in_base(self, path: Path) -> bool:
        return self._base is not None and self._base.is_dir(path)

    def _base_names(self, path: Path) -> Sequence[str]:
        return self._base.list_dir(path) if self._base is not None else ()


def _parts(path: Path, operation: str) -> tuple[str, ...]:
    """The names from the root down, `..` taken out as text."""
    if "\0" in str(path):
        raise io_failure(errno.EINVAL, path, operation)
    return Path(os.path.normpath(path.absolute())).parts[1:]
