"""Atomic writes of small files: the order of the steps, and the files after a failed step."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.errors import IoFailure
from storage.files import OverlayFileSystem, atomic_write, remove_if_present
from tests.unit.files.conftest import Place
from tests.unit.files.guarded import Watched, failing


def test_new_and_replaced(place: Place) -> None:
    for data in (b"first, and longer", b"second", b""):
        atomic_write(place.fs, place.root / "f", data)
        assert place.fs.read_bytes(place.root / "f") == data
        assert place.fs.list_dir(place.root) == ["f"]


def test_replaces_what_lies_below(place: Place) -> None:
    path = place.put("f", b"old" * 2000)
    place.put("f.tmp", b"left over by a crash, longer than the new bytes")
    atomic_write(place.fs, path, b"new")
    assert place.fs.read_bytes(path) == b"new"
    assert place.fs.list_dir(place.root) == ["f"]


@pytest.fixture
def watched() -> Watched:
    """A watched file system with the file /d/f."""
    fs = OverlayFileSystem(None)
    fs.make_dir(Path("/d"))
    atomic_write(fs, Path("/d/f"), b"old")
    return Watched(fs)


def test_order_of_steps(watched: Watched) -> None:
    atomic_write(watched, Path("/d/f"), b"new")
    steps = [(operation, name) for operation, name in watched.log if operation != "truncate"]
    assert steps == [
        ("create", "f.tmp"),
        ("open", "f.tmp"),
        ("write", "f.tmp"),
        ("datasync", "f.tmp"),
        ("close", "f.tmp"),
        ("rename", "f"),
        ("sync_dir", "d"),
    ]


@pytest.mark.parametrize("step", ["open", "truncate", "write", "datasync", "rename"])
def test_a_failure_leaves_the_old_file(watched: Watched, step: str) -> None:
    watched.before[step, "f" if step == "rename" else "f.tmp"] = failing(errno.ENOSPC)
    with pytest.raises(IoFailure):
        atomic_write(watched, Path("/d/f"), b"new")
    assert watched.read_bytes(Path("/d/f")) == b"old"
    assert watched.list_dir(Path("/d")) == ["f"]
    assert watched.open_now == 0


def test_a_failed_directory_sync_is_told(watched: Watched) -> None:
    watched.before["sync_dir", "d"] = failing(errno.EIO)
    with pytest.raises(IoFailure):
        atomic_write(watched, Path("/d/f"), b"new")
    assert watched.read_bytes(Path("/d/f")) == b"new"


def test_a_temporary_file_that_cannot_be_removed_hides_nothing(watched: Watched) -> None:
    watched.before["write", "f.tmp"] = failing(errno.ENOSPC)
    watched.before["remove", "f.tmp"] = failing(errno.EIO)
    with pytest.raises(IoFailure) as caught:
        atomic_write(watched, Path("/d/f"), b"new")
    assert caught.value.facts()["errno"] == errno.ENOSPC


def test_remove_if_present(place: Place) -> None:
    path = place.put("f", b"x")
    assert remove_if_present(place.fs, path)
    assert not remove_if_present(place.fs, path)
    place.put_dir("d")
    with pytest.raises(IoFailure):
        remove_if_present(place.fs, place.root / "d")
