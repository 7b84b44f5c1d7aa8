"""The end of a file's data: never before its last non-zero byte, and near it where holes are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import IoFailure
from storage.files import FileSystem, OverlayFileSystem, RealFileSystem

SIZE = 64 << 20
NEAR_BYTES = 1 << 16

KINDS = ("disk", "memory", "over the disk")


@pytest.fixture(params=KINDS)
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "disk":
        return RealFileSystem()
    if request.param == "memory":
        memory = OverlayFileSystem()
        memory.make_dir(tmp_path)
        return memory
    return OverlayFileSystem(RealFileSystem())


@pytest.mark.parametrize("last", [0, 1, 4095, 4096, 70_000, SIZE - 1])
def test_near_the_last_byte(fs: FileSystem, tmp_path: Path, last: int) -> None:
    file = fs.open(tmp_path / "file", write=True, create=True)
    file.truncate(SIZE)
    file.pwrite(b"x", last)
    for start in {0, last // 2, last}:
        assert last < file.data_end(start) <= last + NEAR_BYTES
    assert file.data_end(last + NEAR_BYTES) == last + NEAR_BYTES
    file.close()
    with pytest.raises(IoFailure):
        file.data_end(0)


def test_of_nothing(fs: FileSystem, tmp_path: Path) -> None:
    file = fs.open(tmp_path / "file", write=True, create=True)
    assert file.data_end(0) == 0
    file.truncate(SIZE)
    assert file.data_end(0) == 0
    assert file.data_end(SIZE) == SIZE
    file.close()


def test_what_an_overlay_adds_and_cuts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    disk = RealFileSystem().open(path, write=True, create=True)
    disk.pwrite(b"x" * 10_000, 0)
    disk.truncate(SIZE)
    disk.close()
    file = OverlayFileSystem(RealFileSystem()).open(path, write=True)
    assert 10_000 <= file.data_end(0) <= 10_000 + NEAR_BYTES
    file.pwrite(b"y", 1 << 20)
    assert 1 << 20 < file.data_end(0) <= (1 << 20) + NEAR_BYTES
    file.truncate(100)
    file.truncate(SIZE)
    assert 100 <= file.data_end(0) <= NEAR_BYTES
    file.close()
