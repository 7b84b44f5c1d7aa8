"""Random operations on a file system and on a model of dicts and bytearrays: same answers, same refusals.

They run over an overlay on a base that holds part of the files (and must not change), and over the disk itself.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from storage.errors import IoFailure
from storage.files import FileSystem, OverlayFileSystem, RealFileSystem
from storage.files.fs import File
from tests.unit.files.guarded import ReadOnly

PAGE = 4096
Name = tuple[str, ...]
Tree = dict[Name, bytearray | None]  # None: a directory
Opened = tuple[File, bytearray]

NAMES = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(tuple)
EDGES = st.sampled_from([0, 1, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 7])
BYTES = st.builds(lambda byte, size: bytes([byte]) * size, st.integers(1, 255), EDGES)


def arrange(fs: FileSystem, root: Path, tree: Tree) -> None:
    """Create the files and directories of the model."""
    for name, data in sorted(tree.items()):
        path = root.joinpath(*name)
        if data is None:
            fs.make_dir(path)
        else:
            file = fs.open(path, create=True)
            file.pwrite(bytes(data), 0)
            file.close()


def look(fs: FileSystem, root: Path) -> Tree:
    """Return all files and directories of a file system."""
    found: Tree = {}
    pending: list[Name] = [()]
    while pending:
        parent = pending.pop()
        for name in fs.list_dir(root.joinpath(*parent)):
            path = root.joinpath(*parent, name)
            if fs.is_dir(path):
                pending.append((*parent, name))
                found[(*parent, name)] = None
            else:
                found[(*parent, name)] = bytearray(fs.read_bytes(path))
                assert fs.size(path) == len(found[(*parent, name)] or b"")
    return found


class FileSystemMachine(RuleBasedStateMachine):
    """A state machine with the model `tree`.

    The bytearray of a file stays the same object as long as the file exists, like an open handle.
    """

    files: Bundle[Opened] = Bundle("files")
    fs: FileSystem
    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.tree: Tree = {}
        self.opened: list[File] = []

    def begin(self, tree: Tree) -> None:
        """Create the file system, with `tree` in it."""
        raise NotImplementedError

    @initialize(files=st.dictionaries(NAMES, BYTES, max_size=6))
    def start(self, files: dict[Name, bytes]) -> None:
        for name, data in files.items():
            parents = [name[:depth] for depth in range(1, len(name))]
            taken = any(self.tree.get(parent) is not None for parent in parents)
            if not taken and name not in self.tree:
                self.tree.update((parent, None) for parent in parents)
                self.tree[name] = bytearray(data)
        self.begin(self.tree)

    def path(self, name: Name) -> Path:
        return self.root.joinpath(*name)

    def is_file(self, name: Name) -> bool:
        return self.tree.get(name) is not None

    def is_dir(self, name: Name) -> bool:
        return name == () or (name in self.tree and self.tree[name] is None)

    def below(self, name: Name) -> list[Name]:
        return [other for other in self.tree if other[: len(name)] == name]

    @rule(target=files, name=NAMES, create=st.booleans())
    def open(self, name: Name, create: bool) -> Opened | MultipleResults[Opened]:
        allowed = self.is_file(name) or (
            create and name not in self.tree and self.is_dir(name[:-1])
        )
        if not allowed:
            with pytest.raises(IoFailure):
                self.fs.open(self.path(name), write=True, create=create)
            return multiple()
        content = self.tree.setdefault(name, bytearray())
        assert content is not None
        file = self.fs.open(self.path(name), write=True, create=create)
        self.opened.append(file)
        return file, content

    @rule(opened=files, data=BYTES, position=EDGES)
    def write(self, opened: Opened, data: bytes, position: int) -> None:
        file, content = opened
        file.pwrite(data, position)
        if data:
            content.extend(bytes(max(0, position - len(content))))
            content[position : position + len(data)] = data

    @rule(opened=files, size_bytes=EDGES)
    def truncate(self, opened: Opened, size_bytes: int) -> None:
        file, content = opened
        file.truncate(size_bytes)
        del content[size_bytes:]
        content.extend(bytes(size_bytes - len(content)))

    @rule(opened=files, size_bytes=EDGES, position=EDGES)
    def read(self, opened: Opened, size_bytes: int, position: int) -> None:
        file, content = opened
        assert file.pread(size_bytes, position) == content[position : position + size_bytes]
        assert file.size() == len(content)

    @rule(source=NAMES, to=NAMES)
    def rename(self, source: Name, to: Name) -> None:
        call = (self.path(source), self.path(to))
        if not self.may_rename(source, to):
            with pytest.raises(IoFailure):
                self.fs.rename(*call)
            return
        self.fs.rename(*call)
        if source != to:
            self.tree.pop(to, None)
            for name in self.below(source):
                self.tree[(*to, *name[len(source) :])] = self.tree.pop(name)

    def may_rename(self, source: Name, target: Name) -> bool:
        if source not in self.tree or not self.is_dir(target[:-1]):
            return False
        if source == target:
            return True
        if target[: len(source)] == source:
            return False
        if target not in self.tree:
            return True
        if self.is_file(source):
            return self.is_file(target)
        return self.is_dir(target) and self.below(target) == [target]

    @rule(name=NAMES)
    def remove(self, name: Name) -> None:
        if self.is_file(name):
            self.fs.remove(self.path(name))
            del self.tree[name]
        else:
            with pytest.raises(IoFailure):
                self.fs.remove(self.path(name))

    @rule(name=NAMES)
    def remove_tree(self, name: Name) -> None:
        if self.is_dir(name):
            self.fs.remove_tree(self.path(name))
            for other in self.below(name):
                del self.tree[other]
        else:
            with pytest.raises(IoFailure):
                self.fs.remove_tree(self.path(name))

    @rule(name=NAMES)
    def make_dir(self, name: Name) -> None:
        ways = [name[:depth] for depth in range(1, len(name) + 1)]
        blocked = next((depth for depth, way in enumerate(ways) if self.is_file(way)), None)
        if blocked is None:
            self.fs.make_dir(self.path(name))
            self.tree.update((way, None) for way in ways)
        else:
            with pytest.raises(IoFailure):
                self.fs.make_dir(self.path(name))

    @rule(name=NAMES)
    def ask(self, name: Name) -> None:
        assert self.fs.exists(self.path(name)) == (name in self.tree)
        assert self.fs.is_dir(self.path(name)) == self.is_dir(name)

    @rule()
    def look_at_all(self) -> None:
        # Not an invariant: this reads all names into an overlay, which must also work before it has them.
        assert look(self.fs, self.root) == self.tree

    def teardown(self) -> None:
        if hasattr(self, "fs"):
            self.look_at_all()
        for file in self.opened:
            file.close()


class OverlayMachine(FileSystemMachine):
    """An overlay over a read-only base in memory, which must be unchanged at the end."""

    def begin(self, tree: Tree) -> None:
        self.root = Path("/root")
        self.base = OverlayFileSystem(None)
        self.base.make_dir(self.root)
        arrange(self.base, self.root, tree)
        self.before = look(self.base, self.root)
        self.fs = self.overlay = OverlayFileSystem(ReadOnly(self.base))

    @rule()
    def ask_what_changed(self) -> None:
        names = self.before.keys() | self.tree.keys()
        differ = [n for n in names if self.of(self.before, n) != self.of(self.tree, n)]
        assert self.overlay.changed() == sorted(self.path(name) for name in differ)

    @staticmethod
    def of(tree: Tree, name: Name) -> object:
        return tree.get(name, "nothing")

    def teardown(self) -> None:
        if hasattr(self, "fs"):
            self.ask_what_changed()
            assert look(self.base, self.root) == self.before
        super().teardown()


class DiskMachine(FileSystemMachine):
    """The disk: the model must behave like a real file system."""

    def begin(self, tree: Tree) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.fs = RealFileSystem()
        arrange(self.fs, self.root, tree)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "fs"):
            shutil.rmtree(self.root)


@pytest.mark.parametrize("machine", [OverlayMachine, DiskMachine])
def test_against_the_model(machine: type[FileSystemMachine]) -> None:
    examples = settings.default.max_examples if settings.default else 100
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples // 2, stateful_step_count=40)
    )
