"""The names of the overlay: directories in memory over the directories of a read-only base.

Owns the mapping of names to nodes; must not know open files or bytes (pages.py). A directory or file is loaded from the
base at its first access. A removed name is kept as None, so that the base's entry is no longer visible. A moved node
keeps its path in the base. Nothing here is thread-safe: the overlay holds its lock.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from storage.errors import IoFailure
from storage.files.failures import io_failure, is_missing
from storage.files.fs import FileSystem
from storage.files.pages import Content

ROOT = Path("/")


class Directory:
    """Names in memory over the names of the base's directory `base_path` (None: there is no base directory).

    `mtime_ms` is None until a name changes.
    """

    __slots__ = ("base_path", "children", "mtime_ms")

    def __init__(self, base_path: Path | None, mtime_ms: int | None) -> None:
        self.base_path = base_path
        self.children: dict[str, Node | None] = {}
        self.mtime_ms = mtime_ms


class Special:
    """A link, a pipe or a similar entry of the base: a name, and the `errno` with its reason for a caller that reads
    its bytes or times.
    """

    __slots__ = ("base_path", "errno", "reason")

    def __init__(self, base_path: Path, errno: int, reason: str) -> None:
        self.base_path = base_path
        self.errno = errno
        self.reason = reason


Node = Directory | Content | Special


class Tree:
    """All names from the root down. Errors are the errors of the system calls named by `operation`."""

    def __init__(self, base: FileSystem | None, clock: Callable[[], int]) -> None:
        self.base = base
        self.root = Directory(ROOT if base else None, None if base else clock())
        self._clock = clock

    def find(self, path: Path, operation: str, *, strict: bool = True) -> Node | None:
        """Return the node at `path`; None if it does not exist. `strict`: a file in the middle of the path is
        ENOTDIR.
        """
        return self._walk(parts(path, operation), path, operation, strict=strict)

    def _walk(
        self, names: tuple[str, ...], path: Path, operation: str, *, strict: bool = True
    ) -> Node | None:
        """Return the node at these names, which are the parts of `path` or of its parent."""
        node: Node | None = self.root
        for name in names:
            if node is None:
                return None
            if not isinstance(node, Directory):
                if strict:
                    raise io_failure(errno.ENOTDIR, path, operation)
                return None
            node = self.child(node, name)
        return node

    def node(self, path: Path, operation: str) -> Node:
        """Return the node at `path`. Raises ENOENT."""
        node = self.find(path, operation)
        if node is None:
            raise io_failure(errno.ENOENT, path, operation)
        return node

    def file(self, path: Path, operation: str) -> Content:
        """Return the file at `path`. Raises ENOENT, EISDIR, and for a link ELOOP."""
        node = self.node(path, operation)
        if isinstance(node, Directory):
            return self._as_file(node, path, operation)
        if isinstance(node, Special):
            raise io_failure(node.errno, path, operation, reason=node.reason)
        return node

    def _as_file(self, directory: Directory, path: Path, operation: str) -> Content:
        """Return a folder as a file, by the base's rule: EISDIR, or an empty file if the base is a SkippingFileSystem.

        In the second case the name stands for an empty file from now on, which recovery in memory may replace.
        """
        if self.base is None or directory.base_path is None:
            raise io_failure(errno.EISDIR, path, operation)
        content = Content(None, self.base.size(directory.base_path), self._clock())
        self.put(*self.place(path, operation), content)
        return content

    def directory(self, path: Path, operation: str) -> Directory:
        """Return the directory at `path`. Raises ENOENT, ENOTDIR."""
        return _as_directory(self.find(path, operation), path, operation)

    def place(self, path: Path, operation: str) -> tuple[Directory, str]:
        """Return the directory that contains the last name of `path`, and that name. Raises EBUSY for the root."""
        names = parts(path, operation)
        if not names:
            raise io_failure(errno.EBUSY, path, operation)
        parent = self._walk(names[:-1], path, operation)
        return _as_directory(parent, path, operation), names[-1]

    def create(self, path: Path, operation: str) -> Content:
        """Return the file at `path`; create it if it does not exist."""
        parent, name = self.place(path, operation)
        if self.child(parent, name) is not None:
            return self.file(path, operation)
        content = Content(None, 0, self._clock())
        self.put(parent, name, content)
        return content

    def child(self, directory: Directory, name: str) -> Node | None:
        """Return the node with this name; load it from the base at the first access."""
        if name in directory.children:
            return directory.children[name]
        if self.base is None or directory.base_path is None:
            return None
        node = _bring_in(self.base, directory.base_path / name)
        if node is not None:
            directory.children[name] = node
        return node

    def names(self, directory: Directory) -> list[str]:
        """Return the names in a directory, sorted."""
        names = {name for name, node in directory.children.items() if node is not None}
        if self.base is not None and directory.base_path is not None:
            below = self.base.list_dir(directory.base_path)
            names.update(name for name in below if name not in directory.children)
        return sorted(names)

    def put(self, directory: Directory, name: str, node: Node) -> None:
        """Set the node of a name."""
        directory.children[name] = node
        directory.mtime_ms = self._clock()

    def put_directory(self, directory: Directory, name: str) -> Directory:
        """Create an empty directory."""
        child = Directory(None, self._clock())
        self.put(directory, name, child)
        return child

    def drop(self, directory: Directory, name: str) -> None:
        """Remove a name."""
        if directory.base_path is None:
            del directory.children[name]
        else:
            directory.children[name] = None
        directory.mtime_ms = self._clock()


def parts(path: Path, operation: str) -> tuple[str, ...]:
    """Return the names from the root down, with `..` resolved as text."""
    text = str(path)
    if "\0" in text:
        raise io_failure(errno.EINVAL, path, operation)
    return _names(text if text.startswith("/") else str(path.absolute()))


@lru_cache(maxsize=128)
def _names(absolute: str) -> tuple[str, ...]:
    """Return the names of an absolute path. Cached: a store asks for the same few paths again and again.

    Interned as by pathlib, which takes three times as long: the names are keys of directories.
    """
    text = os.path.normpath(absolute) if ".." in absolute else absolute
    return tuple([sys.intern(name) for name in text.split("/") if name not in ("", ".")])


def _as_directory(node: Node | None, path: Path, operation: str) -> Directory:
    if node is None:
        raise io_failure(errno.ENOENT, path, operation)
    if not isinstance(node, Directory):
        raise io_failure(errno.ENOTDIR, path, operation)
    return node


def _bring_in(base: FileSystem, path: Path) -> Node | None:
    if not base.exists(path):  # first, because a live base may create a directory in between
        return None
    if base.is_dir(path, follow=True):
        return Directory(path, None)
    try:
        return Content(path, base.size(path), None)
    except IoFailure as failure:
        if is_missing(failure):  # a live base has removed it since
            return None
        number = failure.facts().get("errno")
        reason = failure.message.rpartition(": ")[2]
        return Special(path, number if isinstance(number, int) else errno.EINVAL, reason)
