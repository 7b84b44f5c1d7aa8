"""The file system that loses its power: it keeps all synced data, and only synced data."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import StoreLocked
from storage.files import FileSystem, OverlayFileSystem, atomic_write
from tests.robustness.crash.power import Power

D = Path("/d")


def tree(fs: FileSystem, path: Path = D) -> dict[str, object]:
    """Return the content of a directory: bytes by name, and a dictionary for a directory."""
    return {
        name: tree(fs, path / name) if fs.is_dir(path / name) else fs.read_bytes(path / name)
        for name in fs.list_dir(path)
    }


def put(fs: FileSystem, name: str, data: bytes, *, sync: bool = False) -> None:
    """Write a file from its beginning on."""
    file = fs.open(D / name, create=True)
    file.pwrite(data, 0)
    if sync:
        file.datasync()
    file.close()


@pytest.fixture
def power() -> Power:
    """A disk with the file /d/old."""
    memory = OverlayFileSystem()
    memory.make_dir(D)
    put(memory, "old", b"old bytes")
    return Power(memory)


def test_what_was_there_is_kept(power: Power) -> None:
    assert tree(power.cut()) == tree(power) == {"old": b"old bytes"}


def test_bytes_need_a_sync_of_the_file(power: Power) -> None:
    put(power, "old", b"new")
    assert tree(power.cut()) == {"old": b"old bytes"}
    put(power, "old", b"NEW", sync=True)
    file = power.open(D / "old", write=True)
    file.truncate(2)
    assert tree(power.cut()) == {"old": b"NEW bytes"}
    file.datasync()
    assert tree(power.cut()) == {"old": b"NE"}


def test_names_need_a_sync_of_the_directory(power: Power) -> None:
    put(power, "new", b"bytes", sync=True)
    put(power, "hollow", b"bytes")
    power.remove(D / "old")
    assert tree(power.cut()) == {"old": b"old bytes"}
    power.sync_dir(D)
    assert tree(power.cut()) == {"new": b"bytes", "hollow": b""}


def test_renames_need_a_sync_of_the_directory(power: Power) -> None:
    put(power, "new", b"bytes", sync=True)
    power.sync_dir(D)
    power.rename(D / "new", D / "old")
    assert tree(power.cut()) == {"old": b"old bytes", "new": b"bytes"}
    power.sync_dir(D)
    assert tree(power.cut()) == tree(power) == {"old": b"bytes"}


def test_a_directory_needs_its_own_sync_and_that_of_the_one_above(power: Power) -> None:
    power.make_dir(D / "a" / "b")
    put(power, "a/b/f", b"bytes", sync=True)
    power.sync_dir(D / "a" / "b")
    assert tree(power.cut()) == {"old": b"old bytes"}
    power.sync_dir(D)
    assert tree(power.cut()) == {"old": b"old bytes", "a": {}}
    power.sync_dir(D / "a")
    assert tree(power.cut()) == tree(power)
    power.rename(D / "a", D / "c")
    assert tree(power.cut()) == {"old": b"old bytes", "a": {"b": {"f": b"bytes"}}}
    power.remove_tree(D / "c")
    assert tree(power.cut()) == {"old": b"old bytes", "a": {}}
    power.sync_dir(D)
    assert tree(power.cut()) == {"old": b"old bytes"}


def test_a_renamed_file_goes_on_being_the_same(power: Power) -> None:
    file = power.open(D / "old", write=True)
    power.rename(D / "old", D / "new")
    power.sync_dir(D)
    file.pwrite(b"OLD", 0)
    file.datasync()
    assert tree(power.cut()) == {"new": b"OLD bytes"}


def test_small_files_are_old_or_new_at_every_step(power: Power) -> None:
    cuts: list[object] = []
    power.before = lambda operation, path: cuts.append(tree(power.cut()).get("old"))
    atomic_write(power, D / "old", b"new")
    assert set(cuts) == {b"old bytes"}
    assert tree(power.cut()) == {"old": b"new"}


def test_a_cut_stands_alone(power: Power) -> None:
    found = power.cut()
    put(found, "old", b"there")
    put(power, "old", b"here!", sync=True)
    assert tree(found) == {"old": b"thereytes"}
    assert tree(power) == {"old": b"here!ytes"}


def test_a_kill_lets_go_of_the_locks(power: Power) -> None:
    power.lock(D / "lock")
    with pytest.raises(StoreLocked):
        power.lock(D / "lock")
    power.kill()
    power.lock(D / "lock").release()
    assert "lock" in tree(power)
    assert "lock" not in tree(power.cut())
