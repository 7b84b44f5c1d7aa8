"""A disk that may lose its power: the changes it surely holds, and the pending changes of which it may hold any part.

Owns the model of what a crash leaves; must not know stores or workloads. It is fed with changes in the order in which
the programs made them. A change is **sure** once its file (for bytes) or its folder (for names) was synced by a call
that began after the change. Until then it is **pending**, and a crash keeps any part of the pending changes:

- of a file any subset of its writes and truncations, and of a write any of its sectors (a length may be kept without
  the bytes before it: they then read as zeros);
- of a folder any subset of its added, removed and changed names. A rename within one folder is one step, a rename
  between two folders is two steps. A file that lost its name is lost, synced or not.

This is the worst case that POSIX allows for a disk on which every sync is obeyed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from tests.robustness.crash.ram import Bytes, Folder, Ram

ROOT = 0  # the node number of the root folder


class NewFile(NamedTuple):
    """The creation of an empty file with this node number and no name yet."""

    node: int


class NewFolder(NamedTuple):
    """The creation of an empty folder with this node number and no name yet."""

    node: int


class Write(NamedTuple):
    """A write of bytes to the file `node`."""

    node: int
    position: int
    data: bytes


class Cut(NamedTuple):
    """A change of the length of the file `node`."""

    node: int
    size_bytes: int


class Link(NamedTuple):
    """A new or replaced name in the folder `node`, for the node `child`."""

    node: int
    name: str
    child: int


class Unlink(NamedTuple):
    """The removal of a name from the folder `node`."""

    node: int
    name: str


class Rename(NamedTuple):
    """A rename within the folder `node`, from `source` to `target`."""

    node: int
    source: str
    target: str


class Sync(NamedTuple):
    """A sync of `node`: its changes with a number below `before` are sure."""

    node: int
    before: int


Change: TypeAlias = Write | Cut | Link | Unlink | Rename
Event: TypeAlias = NewFile | NewFolder | Change | Sync
Choice: TypeAlias = Callable[[Sequence[Change]], Sequence[Change]]
"""Takes all pending changes and returns the part that a crash keeps (same order; writes may be split)."""


class Disk:
    """A model of a disk that is fed with events; `left` builds the files after a crash. One thread at a time."""

    def __init__(self) -> None:
        self._files: dict[int, bytearray] = {}
        self._folders: dict[int, dict[str, int]] = {ROOT: {}}
        self._pending: list[tuple[int, Change]] = []

    @property
    def pending(self) -> Sequence[Change]:
        """The changes that are not sure, oldest first."""
        return [change for _, change in self._pending]

    @property
    def last_node(self) -> int:
        """The largest node number of all files and folders, including nodes that have lost their name."""
        return max((*self._files, *self._folders))

    def feed(self, number: int, event: Event) -> None:
        """Add the next event; its number is larger than the numbers of all events before it."""
        match event:
            case NewFile(node):
                self._files[node] = bytearray()
            case NewFolder(node):
                self._folders[node] = {}
            case Sync():
                self._sync(event)
            case _:
                self._pending.append((number, event))

    def _sync(self, sync: Sync) -> None:
        still = []
        for number, change in self._pending:
            if change.node == sync.node and number < sync.before:
                _apply(self._files, self._folders, change)
            else:
                still.append((number, change))
        self._pending = still

    def after_kill(self) -> Disk:
        """Return the disk for the next process: pending changes stay pending, and are older than all later ones."""
        other = Disk()
        other._files = {node: bytearray(data) for node, data in self._files.items()}
        other._folders = {node: dict(names) for node, names in self._folders.items()}
        other._pending = [(-1, change) for change in self.pending]
        return other

    def folders(self) -> dict[int, dict[str, int]]:
        """Return the names in every folder as programs see them: nodes by name, per folder."""
        other = self.after_kill()
        for change in other.pending:
            if isinstance(change, Link | Unlink | Rename):
                _apply({}, other._folders, change)
        return other._folders

    def left(self, choose: Choice) -> Ram:
        """Return the files after a crash that keeps the pending changes selected by `choose`."""
        kept = choose(self.pending)
        touched = {change.node for change in kept}
        files = {n: bytearray(data) if n in touched else data for n, data in self._files.items()}
        folders = {n: dict(names) if n in touched else names for n, names in self._folders.items()}
        for change in kept:
            _apply(files, folders, change)
        return Ram(_tree(files, folders, ROOT))


def _apply(files: dict[int, bytearray], folders: dict[int, dict[str, int]], change: Change) -> None:
    match change:
        case Write(node, position, data):
            file = files[node]
            file.extend(bytes(max(position - len(file), 0)))
            file[position : position + len(data)] = data
        case Cut(node, size_bytes):
            file = files[node]
            del file[size_bytes:]
            file.extend(bytes(size_bytes - len(file)))
        case Link(node, name, child):
            folders[node][name] = child
        case Unlink(node, name):
            folders[node].pop(name, None)
        case Rename(node, source, target):
            child = folders[node].pop(source, ROOT)
            if child != ROOT:
                folders[node][target] = child


def _tree(files: dict[int, bytearray], folders: dict[int, dict[str, int]], node: int) -> Folder:
    return {
        name: _tree(files, folders, child) if child in folders else Bytes(bytes(files[child]))
        for name, child in folders[node].items()
    }
