"""A file system that can lose its power: what was not synced is gone then.

The worst case that POSIX allows a disk on which every sync is obeyed:

- a file has the bytes and the length of its last `datasync`; one that never had any is empty;
- a directory has the names of its last `sync_dir`: whatever was made, renamed or removed in it since has not happened,
  and a new file whose directory was not synced is gone, synced or not;
- of a tree that was removed everything is gone at once but its name, which stays until the sync of its directory;
- a rename from one directory to another needs both to be synced: with the target's sync only, both names are there.

A real disk may keep any part of what was not synced. `Power.cut` gives the one extreme, the present files (as after a
kill) the other; a test that looks at both, at every step, sees where the order of writes and syncs matters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from storage.files import OverlayFileSystem
from storage.files.fs import File, FileLock, FileSystem
from tests.faults.relay import Relay, RelayFile


class _Kept:
    """A file: what the disk has of it."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data


class _Folder:
    """A directory: its names now, and those that the disk has."""

    def __init__(self) -> None:
        self.names: dict[str, _Kept | _Folder] = {}
        self.kept: dict[str, _Kept | _Folder] = {}

    def folder(self, parts: tuple[str, ...]) -> _Folder:
        """The directory with this path below."""
        found: _Folder = self
        for part in parts:
            child = found.names[part]
            assert isinstance(child, _Folder)
            found = child
        return found


def nothing(operation: str, path: Path) -> None:
    """No call before a step."""


class Power(Relay):
    """Hands everything on to `fs`, and knows what of it would survive. Safe from several threads.

    All that `fs` holds at the start counts as synced. `before` is called with each step (see `Relay`) just before it
    is done, and may raise, `cut`, or use the store. Syncs must come through this object; other users of `fs` only read.
    """

    def __init__(self, fs: FileSystem | None = None) -> None:
        super().__init__(fs or OverlayFileSystem())
        self.before: Callable[[str, Path], None] = nothing
        self._lock = (
            threading.RLock()
        )  # held from an operation to the note of it, never over `before`
        self._locks: list[FileLock] = []
        self._root = self._load(Path("/"))

    def _load(self, path: Path) -> _Folder:
        folder = _Folder()
        for name in self._fs.list_dir(path):
            at = path / name
            folder.names[name] = (
                self._load(at) if self._fs.is_dir(at) else _Kept(self._fs.read_bytes(at))
            )
        folder.kept = dict(folder.names)
        return folder

    def cut(self) -> OverlayFileSystem:
        """What the disk holds when the power fails now: a file system of its own. This one goes on beside it."""
        found = OverlayFileSystem()
        with self._lock:
            _write(found, Path("/"), self._root)
        return found

    def kill(self) -> None:
        """The process that used this ends: its locks are free, and the next one finds everything as it is."""
        while self._locks:
            self._locks.pop().release()

    def step(self, operation: str, path: Path) -> None:
        self.before(operation, path)

    def _parent(self, path: Path) -> _Folder:
        return self._root.folder(path.parts[1:-1])

    # ---- names ----

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create and not self._fs.exists(path):
            self.step("create", path)
        with self._lock:
            file = self._fs.open(path, write=write, create=create)
            kept = self._parent(path).names.setdefault(path.name, _Kept())
        assert isinstance(kept, _Kept)
        self.step("open", path)
        return PoweredFile(self, file, kept)

    def lock(self, path: Path) -> FileLock:
        self.step("lock", path)
        with self._lock:
            lock = self._fs.lock(path)
            self._parent(path).names.setdefault(path.name, _Kept())
            self._locks.append(lock)
        return lock

    def make_dir(self, path: Path) -> None:
        if not self._fs.exists(path):
            self.step("make_dir", path)
        with self._lock:
            self._fs.make_dir(path)
            folder = self._root
            for part in path.parts[1:]:
                folder.names.setdefault(part, _Folder())
                folder = folder.folder((part,))

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target)
        with self._lock:
            self._fs.rename(source, target)
            node = self._parent(source).names.pop(source.name)
            self._parent(target).names[target.name] = node

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        with self._lock:
            self._fs.remove(path)
            del self._parent(path).names[path.name]

    def remove_tree(self, path: Path) -> None:
        self.step("remove_tree", path)
        with self._lock:
            self._fs.remove_tree(path)
            node = self._parent(path).names.pop(path.name)
            assert isinstance(node, _Folder)
            node.kept = {}

    def sync_dir(self, path: Path) -> None:
        self.step("sync_dir", path)
        with self._lock:
            self._fs.sync_dir(path)
            folder = self._root.folder(path.parts[1:])
            folder.kept = dict(folder.names)

    # ---- bytes ----

    def sync_file(self, file: File, kept: _Kept) -> None:
        """The disk has the bytes of now."""
        with self._lock:
            file.datasync()
            kept.data = file.pread(file.size(), 0)


class PoweredFile(RelayFile):
    """A file of `Power`."""

    def __init__(self, power: Power, file: File, kept: _Kept) -> None:
        super().__init__(power, file)
        self._power = power
        self._kept = kept

    def datasync(self) -> None:
        self._power.step("datasync", self.path)
        self._power.sync_file(self._file, self._kept)


def moments(power: Power, act: Callable[[], object]) -> list[OverlayFileSystem]:
    """What a power loss would leave just before each step of `act`, and at its end."""
    cuts: list[OverlayFileSystem] = []
    power.before = lambda operation, path: cuts.append(power.cut())
    act()
    power.before = nothing
    return [*cuts, power.cut()]


def _write(fs: OverlayFileSystem, path: Path, folder: _Folder) -> None:
    """Make in `fs` what the disk has of a directory."""
    for name, node in folder.kept.items():
        at = path / name
        if isinstance(node, _Folder):
            fs.make_dir(at)
            _write(fs, at, node)
            continue
        file = fs.open(at, create=True)
        file.pwrite(node.data, 0)
        file.close()
