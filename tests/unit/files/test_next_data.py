"""The start of the next data in a file: only zeros before it, and near it where holes are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import IoFailure
from storage.files import FileSystem, OverlayFileSystem, RealFileSystem, copy_range
from tests.robustness.crash.counted import CountedReads
from tests.robustness.crash.ram import Ram

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


@pytest.mark.parametrize("at", [1 << 20, (1 << 20) + 4095, SIZE // 2 + 7, SIZE - 1])
def test_near_the_next_byte(fs: FileSystem, tmp_path: Path, at: int) -> None:
    file = fs.open(tmp_path / "file", write=True, create=True)
    file.truncate(SIZE)
    file.pwrite(b"x", 0)
    file.pwrite(b"y", at)
    assert file.next_data(0) == 0
    assert file.next_data(at) == at
    for start in (NEAR_BYTES, at // 2, at - 1):
        assert max(start, at - NEAR_BYTES) <= file.next_data(start) <= at
    file.close()
    with pytest.raises(IoFailure):
        file.next_data(0)


def test_behind_the_last_byte_comes_the_end(fs: FileSystem, tmp_path: Path) -> None:
    file = fs.open(tmp_path / "file", write=True, create=True)
    assert file.next_data(0) == 0
    file.truncate(SIZE)
    assert file.next_data(0) == SIZE
    file.pwrite(b"x" * 100, 0)
    assert file.next_data(NEAR_BYTES) == SIZE
    assert file.next_data(SIZE) == SIZE
    assert file.next_data(SIZE + 5) == SIZE + 5
    file.close()


def test_what_an_overlay_adds_and_cuts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    disk = RealFileSystem().open(path, write=True, create=True)
    disk.truncate(SIZE)
    disk.pwrite(b"x", SIZE // 2)
    disk.close()
    file = OverlayFileSystem(RealFileSystem()).open(path, write=True)
    assert 0 <= SIZE // 2 - file.next_data(0) <= NEAR_BYTES
    file.pwrite(b"y", 1 << 20)
    assert 0 <= (1 << 20) - file.next_data(0) <= NEAR_BYTES
    file.truncate(SIZE // 4)
    file.truncate(SIZE)
    assert file.next_data(2 << 20) == SIZE
    file.close()


def test_where_holes_are_not_known_nothing_is_passed_over(tmp_path: Path) -> None:
    fs = Ram()
    fs.make_dir(tmp_path)
    file = fs.open(tmp_path / "file", create=True)
    file.truncate(1 << 20)
    assert [file.next_data(start) for start in (0, 5, 1 << 20)] == [0, 5, 1 << 20]


def test_a_copy_of_holes_reads_the_data_alone(fs: FileSystem, tmp_path: Path) -> None:
    source = fs.open(tmp_path / "source", create=True)
    source.truncate(SIZE)
    for position, data in ((3, b"first"), (SIZE // 2 - 2, b"middle"), (SIZE - (8 << 20), b"last")):
        source.pwrite(data, position)
    whole = source.pread(SIZE, 0)
    counted = CountedReads(fs)
    for start, end in ((0, None), (1, SIZE // 2 + 1), (SIZE // 2 + (1 << 20), None)):
        counted.count_bytes = 0
        copy_range(counted, tmp_path / "source", tmp_path / "target", start=start, end=end)
        assert fs.read_bytes(tmp_path / "target") == whole[start:end]
        assert counted.count_bytes <= 4 << 20
    source.close()
