"""The file systems of the conformance suite, each with a directory to work in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.files import FileSystem, OverlayFileSystem, RealFileSystem
from storage.files.fs import File
from storage.files.real import RealFile
from tests.robustness.crash.ram import Ram
from tests.unit.files.guarded import ReadOnly


@dataclass(frozen=True)
class Place:
    """A file system, a directory in it, and its base file system (the same file system if it has no base)."""

    fs: FileSystem
    root: Path
    below: FileSystem

    def put(self, name: str, data: bytes = b"") -> Path:
        """Write a file and its directory in the base, so that an overlay has to load it."""
        path = self.root / name
        self.below.make_dir(path.parent)
        file = self.below.open(path, create=True)
        file.pwrite(data, 0)
        file.close()
        return path

    def put_dir(self, name: str) -> Path:
        """Create a directory in the base."""
        self.below.make_dir(self.root / name)
        return self.root / name

    def open(self, name: str) -> File:
        """Open a file for writing; create it if it is missing."""
        return self.fs.open(self.root / name, create=True)


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    """A folder on the disk: these are the tests of the real file system."""
    return on_disk


@pytest.fixture(params=["real", "memory", "over-real", "over-memory", "ram"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place on each implementation in turn; an overlay may only read its base."""
    real = RealFileSystem()
    memory = OverlayFileSystem(None)
    if request.param == "real":
        return Place(real, tmp_path, real)
    if request.param == "ram":
        ram = Ram()
        ram.make_dir(Path("/store"))
        return Place(ram, Path("/store"), ram)
    if request.param == "over-real":
        return Place(OverlayFileSystem(ReadOnly(real)), tmp_path, real)
    memory.make_dir(Path("/store"))
    fs = memory if request.param == "memory" else OverlayFileSystem(ReadOnly(memory))
    return Place(fs, Path("/store"), memory)


@pytest.fixture(autouse=True)
def closed_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cleanup that closes the real files of each test, because these tests leave files open."""
    opened: list[RealFile] = []

    def note(file: RealFile, path: Path, descriptor: int) -> None:
        make(file, path, descriptor)
        opened.append(file)

    make = RealFile.__init__
    monkeypatch.setattr(RealFile, "__init__", note)
    yield
    for file in opened:
        file.close()
