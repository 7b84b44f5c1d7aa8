"""A file system that records every change made through it, in order.

Owns the numbers of files and folders and the translation of calls on paths into changes of nodes; must not decide
what a crash leaves (disk.py). The notes of a workload are recorded in the same sequence, between the changes.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from pathlib import Path

from storage.files import OverlayFileSystem
from storage.files.fs import File, FileLock, FileSystem
from tests.robustness.crash.disk import (
    ROOT,
    Cut,
    Disk,
    Event,
    Link,
    NewFile,
    NewFolder,
    Rename,
    Sync,
    Unlink,
    Write,
)
from tests.robustness.crash.history import Note
from tests.robustness.crash.relay import Relay, RelayFile


@dataclass(slots=True)
class _Folder:
    node: int
    names: dict[str, _Folder | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Noted:
    """A note of the workload, among the changes of the disk."""

    note: Note


class Recorder(Relay):
    """A file layer that passes every call to `fs`, an in-memory file system whose contents count as synced.

    Thread-safe.

    `disk` is the state at the start; `events` are the changes and notes since then.
    """

    def __init__(self, fs: FileSystem | None = None) -> None:
        super().__init__(fs or OverlayFileSystem())
        self.disk = Disk()
        self.events: list[Event | Noted] = []
        self._lock = threading.RLock()
        self._nodes = ROOT
        self._root = _Folder(ROOT)
        self._load(Path("/"), self._root)
        for event in self.events:
            assert not isinstance(event, Noted)
            self.disk.feed(0, event)
        self.events.clear()

    @classmethod
    def after_kill_on(cls, disk: Disk) -> Recorder:
        """Return a recorder for the next process on a disk that kept its power.

        All files exist as the last process left them, and their unsynced changes are still pending.
        """
        recorder = cls()
        recorder._fs = disk.left(lambda pending: pending)
        recorder.disk = disk.after_kill()
        recorder._nodes = disk.last_node
        recorder._root = _known(disk.folders(), ROOT)
        return recorder

    def note(self, note: Note) -> None:
        """Record a fact that is true from here on."""
        with self._lock:
            self.events.append(Noted(note))

    def now(self, moment: int | None = None) -> Disk:
        """Return the disk after all recorded events; with `moment`, after that many events."""
        disk = copy.deepcopy(self.disk)
        for number, event in enumerate(self.events[:moment]):
            if not isinstance(event, Noted):
                disk.feed(number, event)
        return disk

    def after_kill(self) -> Recorder:
        """Return a recorder for the next process if the present one is killed now; this recorder stays usable."""
        return Recorder.after_kill_on(self.now())

    def _load(self, path: Path, folder: _Folder) -> None:
        for name in self._fs.list_dir(path):
            at = path / name
            if self._fs.is_dir(at):
                self._load(at, self._add_folder(folder, name))
            else:
                self._add(Write(self._add_file(folder, name), 0, self._fs.read_bytes(at)))
        for node in [folder.node, *(n for n in folder.names.values() if isinstance(n, int))]:
            self._add(Sync(node, len(self.events) + 1))

    def _add(self, event: Event) -> None:
        self.events.append(event)

    def _add_file(self, folder: _Folder, name: str) -> int:
        self._nodes += 1
        folder.names[name] = self._nodes
        self._add(NewFile(self._nodes))
        self._add(Link(folder.node, name, self._nodes))
        return self._nodes

    def _add_folder(self, folder: _Folder, name: str) -> _Folder:
        self._nodes += 1
        made = folder.names[name] = _Folder(self._nodes)
        self._add(NewFolder(self._nodes))
        self._add(Link(folder.node, name, self._nodes))
        return made

    def _folder(self, path: Path) -> _Folder:
        found: _Folder | int = self._root
        for part in path.parts[1:]:
            assert isinstance(found, _Folder)
            found = found.names[part]
        assert isinstance(found, _Folder)
        return found

    # ---- names ----

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        with self._lock:
            file = self._fs.open(path, write=write, create=create)
            return RecordedFile(self, file, self._file(path))

    def _file(self, path: Path) -> int:
        folder = self._folder(path.parent)
        node = folder.names.get(path.name)
        if node is None:
            node = self._add_file(folder, path.name)
        assert isinstance(node, int)
        return node

    def lock(self, path: Path) -> FileLock:
        with self._lock:
            lock = self._fs.lock(path)
            self._file(path)
            return lock

    def make_dir(self, path: Path) -> None:
        with self._lock:
            self._fs.make_dir(path)
            folder = self._root
            for part in path.parts[1:]:
                child = folder.names.get(part)
                folder = child if isinstance(child, _Folder) else self._add_folder(folder, part)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            self._fs.rename(source, target)
            old, new = self._folder(source.parent), self._folder(target.parent)
            node = old.names.pop(source.name)
            new.names[target.name] = node
            if old is new:
                self._add(Rename(old.node, source.name, target.name))
                return
            number = node.node if isinstance(node, _Folder) else node
            self._add(Link(new.node, target.name, number))
            self._add(Unlink(old.node, source.name))

    def remove(self, path: Path) -> None:
        with self._lock:
            self._fs.remove(path)
            self._unlink(self._folder(path.parent), path.name)

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            self._fs.remove_tree(path)
            self._unlink(self._folder(path.parent), path.name)

    def _unlink(self, folder: _Folder, name: str) -> None:
        node = folder.names.pop(name)
        if isinstance(node, _Folder):
            for child in list(node.names):
                self._unlink(node, child)
        self._add(Unlink(folder.node, name))

    def sync_dir(self, path: Path) -> None:
        with self._lock:
            self._fs.sync_dir(path)
            self._add(Sync(self._folder(path).node, len(self.events)))

    # ---- bytes ----

    def write(self, file: File, node: int, data: bytes, position: int) -> None:
        """Write bytes to a file and record the change."""
        with self._lock:
            file.pwrite(data, position)
            self._add(Write(node, position, bytes(data)))

    def cut(self, file: File, node: int, size_bytes: int) -> None:
        """Change the length of a file and record the change."""
        with self._lock:
            file.truncate(size_bytes)
            self._add(Cut(node, size_bytes))

    def sync(self, file: File, node: int) -> None:
        """Sync a file and record it: writes made before this call are sure once it returns, not earlier."""
        begun = len(self.events)
        file.datasync()
        with self._lock:
            self._add(Sync(node, begun))


class RecordedFile(RelayFile):
    """A file of a `Recorder`."""

    def __init__(self, recorder: Recorder, file: File, node: int) -> None:
        super().__init__(recorder, file)
        self._recorder = recorder
        self._node = node

    def pwrite(self, data: bytes, position: int) -> None:
        self._recorder.write(self._file, self._node, data, position)

    def truncate(self, size_bytes: int) -> None:
        self._recorder.cut(self._file, self._node, size_bytes)

    def datasync(self) -> None:
        self._recorder.sync(self._file, self._node)


def _known(folders: dict[int, dict[str, int]], node: int) -> _Folder:
    """Return a folder and everything below it, from the names in each folder."""
    names = folders[node].items()
    return _Folder(
        node, {name: _known(folders, child) if child in folders else child for name, child in names}
    )
