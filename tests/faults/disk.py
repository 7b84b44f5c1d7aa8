"""A disk that may lose its power: what it surely holds, and what it may hold of the rest.

Owns the model of what a crash leaves; must not know stores or workloads. It is fed with changes in the order in which
the programs made them. A change is **sure** once its file (for bytes) or its folder (for names) was synced by a call
that began after it; until then it is **pending**, and a crash keeps any part of what is pending:

- of a file any subset of its writes and truncations, and of a write any of its sectors (a length may be kept where the
  bytes behind it are not: they read as zeros then);
- of a folder any subset of its names that came, went or changed. A rename within one folder is one step, between two
  folders it is two. A file whose name is lost is lost, synced or not.

This is the worst that POSIX allows a disk on which every sync is obeyed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from tests.faults.ram import Bytes, Folder, Ram

ROOT = 0  # the number of the root folder


class NewFile(NamedTuple):
    """There is a file with this number, empty and without a name."""

    node: int


class NewFolder(NamedTuple):
    """There is a folder with this number, empty and without a name."""

    node: int


class Write(NamedTuple):
    """Bytes of the file `node`."""

    node: int
    position: int
    data: bytes


class Cut(NamedTuple):
    """The file `node` has this length now."""

    node: int
    size_bytes: int


class Link(NamedTuple):
    """The folder `node` has this name now, for `child`."""

    node: int
    name: str
    child: int


class Unlink(NamedTuple):
    """The folder `node` has this name no longer."""

    node: int
    name: str


class Rename(NamedTuple):
    """In the folder `node` what was `source` is `target` now."""

    node: int
    source: str
    target: str


class Sync(NamedTuple):
    """What was done to `node` by changes with a number below `before` is sure."""

    node: int
    before: int


Change: TypeAlias = Write | Cut | Link | Unlink | Rename
Event: TypeAlias = NewFile | NewFolder | Change | Sync
Choice: TypeAlias = Callable[[Sequence[Change]], Sequence[Change]]
"""Takes all that is pending, gives what a crash keeps of it (in the same order; of a write, parts)."""


class Disk:
    """Fed with events; `left` makes what a crash leaves. One thread at a time."""

    def __init__(self) -> None:
        self._files: dict[int, bytearray] = {}
        self._folders: dict[int, dict[str, int]] = {ROOT: {}}
        self._pending: list[tuple[int, Change]] = []

    @property
    def pending(self) -> Sequence[Change]:
        """What is not sure, oldest first."""
        return [change for _, change in self._pending]

    @property
    def last_node(self) -> int:
        """The largest number of a file or folder, of those too that have lost their name."""
        return max((*self._files, *self._folders))

    def feed(self, number: int, event: Event) -> None:
        """The next event; its number is above those of all before it."""
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
        """The same disk for the next process: what was pending is pending still, and older than all to come."""
        other = Disk()
        other._files = {node: bytearray(data) for node, data in self._files.items()}
        other._folders = {node: dict(names) for node, names in self._folders.items()}
        other._pending = [(-1, change) for change in self.pending]
        return other

    def folders(self) -> dict[int, dict[str, int]]:
        """The names in every folder as programs see them: node by name."""
        other = self.after_kill()
        for change in other.pending:
            if isinstance(change, Link | Unlink | Rename):
                _apply({}, other._folders, change)
        return other._folders

    def left(self, choose: Choice) -> Ram:
        """The files after a crash that keeps of all that is pending what `choose` says."""
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
