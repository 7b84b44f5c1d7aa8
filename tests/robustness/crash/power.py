"""A file system that can lose its power: unsynced changes are then lost.

The worst case that POSIX allows for a disk on which every sync is obeyed:

- a file has the bytes and the length of its last `datasync`; a file without any `datasync` is empty;
- a directory has the names of its last `sync_dir`: names created, renamed or removed in it since then are reverted,
  and a new file whose directory was not synced is lost, synced or not;
- of a removed tree everything is lost at once except its name, which stays until the sync of its directory;
- a rename from one directory to another needs a sync of both: with the target's sync only, both names exist.

A real disk may keep any part of the unsynced changes. `Power.cut` returns one extreme, the present files (as after a
kill) are the other. A test that checks both, at every step, shows where the order of writes and syncs matters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from storage.files import OverlayFileSystem
from storage.files.fs import File, FileLock, FileSystem
from tests.robustness.crash.relay import Relay, RelayFile


class _Kept:
    """A file: the bytes that the disk holds."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data


class _Folder:
    """A directory: its current names, and the names that the disk holds."""

    def __init__(self) -> None:
        self.names: dict[str, _Kept | _Folder] = {}
        self.kept: dict[str, _Kept | _Folder] = {}

    def folder(self, parts: tuple[str, ...]) -> _Folder:
        """Return the directory at this relative path."""
        found: _Folder = self
        for part in parts:
            child = found.names[part]
            assert isinstance(child, _Folder)
            found = child
        return found


def nothing(operation: str, path: Path) -> None:
    """Do nothing before a step."""


class Power(Relay):
    """A file layer that passes every call to `fs` and tracks the data that would survive a power loss. Thread-safe.

    Everything that `fs` holds at the start counts as synced. `before` is called before each step (see `Relay`), and may
    raise, call `cut`, or use the store. Syncs must go through this object; other users of `fs` may only read.
    """

    def __init__(self, fs: FileSystem | None = None) -> None:
        super().__init__(fs or OverlayFileSystem())
        self.before: Callable[[str, Path], None] = nothing
        self._lock = (
            threading.RLock()
        )  # held from an operation until it is recorded, never while `before` runs
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
        """Return the files that survive a power loss now, as a separate file system. This one stays usable."""
        found = OverlayFileSystem()
        with self._lock:
            _write(found, Path("/"), self._root)
        return found

    def kill(self) -> None:
        """End the process that used this file system: its locks are free, and the next process finds all changes."""
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
        """Sync a file: the disk holds its current bytes."""
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
    """Return the files that a power loss would leave before each step of `act`, and at its end."""
    cuts: list[OverlayFileSystem] = []
    power.before = lambda operation, path: cuts.append(power.cut())
    act()
    power.before = nothing
    return [*cuts, power.cut()]


def _write(fs: OverlayFileSystem, path: Path, folder: _Folder) -> None:
    """Create in `fs` the part of a directory that the disk holds."""
    for name, node in folder.kept.items():
        at = path / name
        if isinstance(node, _Folder):
            fs.make_dir(at)
            _write(fs, at, node)
            continue
        file = fs.open(at, create=True)
        file.pwrite(node.data, 0)
        file.close()
