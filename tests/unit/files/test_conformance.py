"""Rules of every FileSystem, run over the disk, over memory, and over overlays with the test's files in the base.

The disk decides: a rule that it does not keep has no place here.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import IoFailure, StoreLocked
from storage.files import is_missing
from storage.files.fs import File
from tests.unit.files.conftest import Place

PAGE = 4096
LARGE = bytes(range(256)) * 100


def errno_of(call: Callable[..., object], *arguments: object, **options: object) -> object:
    """Return the errno of the IoFailure that the call must raise."""
    with pytest.raises(IoFailure) as caught:
        call(*arguments, **options)
    facts = caught.value.facts()
    assert set(facts) - {"position"} == {"path", "operation", "errno"}
    assert str(facts["path"]) in str(caught.value)
    return facts["errno"]


# Opening.


def test_open_reads_what_is_there(place: Place) -> None:
    path = place.put("f", LARGE)
    file = place.fs.open(path)
    assert (file.path, file.size(), file.pread(len(LARGE), 0)) == (path, len(LARGE), LARGE)


def test_create_makes_an_empty_file(place: Place) -> None:
    file = place.open("f")
    assert (file.size(), place.fs.size(place.root / "f")) == (0, 0)
    assert place.fs.list_dir(place.root) == ["f"]


def test_create_leaves_an_existing_file(place: Place) -> None:
    path = place.put("f", b"there")
    assert place.fs.open(path, create=True).pread(10, 0) == b"there"


def test_create_means_write(place: Place) -> None:
    place.open("f").pwrite(b"x", 0)
    assert place.fs.read_bytes(place.root / "f") == b"x"


@pytest.mark.parametrize("options", [{}, {"write": True}])
def test_opening_what_is_missing(place: Place, options: dict[str, bool]) -> None:
    with pytest.raises(IoFailure) as caught:
        place.fs.open(place.root / "none", **options)
    assert is_missing(caught.value)
    assert not place.fs.exists(place.root / "none")


@pytest.mark.parametrize("options", [{}, {"write": True}, {"create": True}])
def test_opening_a_directory(place: Place, options: dict[str, bool]) -> None:
    assert errno_of(place.fs.open, place.put_dir("d"), **options) == errno.EISDIR


@pytest.mark.parametrize("options", [{}, {"create": True}])
def test_opening_below_a_file_or_nothing(place: Place, options: dict[str, bool]) -> None:
    place.put("f")
    assert errno_of(place.fs.open, place.root / "f" / "x", **options) == errno.ENOTDIR
    assert errno_of(place.fs.open, place.root / "none" / "x", **options) == errno.ENOENT


def test_a_name_with_nul_is_refused(place: Place) -> None:
    path = place.root / "a\0b"
    assert errno_of(place.fs.open, path, create=True) == errno.EINVAL
    assert errno_of(place.fs.exists, path) == errno.EINVAL
    assert errno_of(place.fs.make_dir, path) == errno.EINVAL


# Bytes.


def test_pread_gives_less_only_at_the_end(place: Place) -> None:
    file = place.fs.open(place.put("f", b"0123456789"))
    assert file.pread(4, 3) == b"3456"
    assert file.pread(100, 7) == b"789"
    assert file.pread(0, 3) == b""
    assert file.pread(5, 10) == file.pread(5, 10**12) == b""


@pytest.mark.parametrize(
    ("position", "size_bytes"),
    [(0, 1), (PAGE - 1, 2), (PAGE, PAGE), (PAGE + 1, PAGE - 1), (10, 3 * PAGE), (len(LARGE), 5)],
)
def test_pwrite_changes_those_bytes_only(place: Place, position: int, size_bytes: int) -> None:
    file = place.fs.open(place.put("f", LARGE), write=True)
    data = b"\xa5" * size_bytes
    file.pwrite(data, position)
    expected = LARGE[:position] + data + LARGE[position + size_bytes :]
    assert file.pread(len(expected) + 1, 0) == expected
    assert (
        file.pread(size_bytes + 2, max(position - 1, 0))
        == expected[max(position - 1, 0) :][: size_bytes + 2]
    )


def test_pwrite_behind_the_end_leaves_zeros(place: Place) -> None:
    file = place.fs.open(place.put("f", b"abc"), write=True)
    file.pwrite(b"z", 2 * PAGE + 5)
    assert file.pread(3 * PAGE, 0) == b"abc" + bytes(2 * PAGE + 2) + b"z"


def test_pwrite_of_nothing_does_nothing(place: Place) -> None:
    file = place.fs.open(place.put("f", b"abc"), write=True)
    file.pwrite(b"", 100)
    assert file.size() == 3


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_pwrite_takes_any_bytes(place: Place, kind: Callable[[bytes], bytes]) -> None:
    file = place.open("f")
    file.pwrite(kind(LARGE), 1)
    assert file.pread(len(LARGE), 1) == LARGE


def test_all_handles_see_one_file(place: Place) -> None:
    path = place.put("f", b"old")
    early = place.fs.open(path)
    place.fs.open(path, write=True).pwrite(b"new and longer", 0)
    assert early.pread(100, 0) == b"new and longer"
    assert (early.size(), place.fs.size(path)) == (14, 14)


@pytest.mark.parametrize("size_bytes", [0, 1, PAGE - 1, PAGE, PAGE + 1, len(LARGE) - 1])
def test_what_was_cut_does_not_come_back(place: Place, size_bytes: int) -> None:
    file = place.fs.open(place.put("f", LARGE), write=True)
    file.pwrite(b"\xff" * 100, PAGE - 50)
    before = file.pread(size_bytes, 0)
    file.truncate(size_bytes)
    assert (file.size(), file.pread(len(LARGE), 0)) == (size_bytes, before)
    file.truncate(len(LARGE))
    assert file.pread(len(LARGE), 0) == before + bytes(len(LARGE) - size_bytes)


def test_cut_then_written_behind(place: Place) -> None:
    file = place.fs.open(place.put("f", LARGE), write=True)
    file.truncate(10)
    file.pwrite(b"end", PAGE + 1)
    assert file.pread(2 * PAGE, 0) == LARGE[:10] + bytes(PAGE - 9) + b"end"


def test_extending_gives_zeros(place: Place) -> None:
    file = place.open("f")
    file.truncate(10 << 20)
    assert (file.size(), file.pread(10, (10 << 20) - 5)) == (10 << 20, bytes(5))


@pytest.mark.parametrize("number", [-1, 1 << 63, 1 << 200])
def test_impossible_positions(place: Place, number: int) -> None:
    file = place.open("f")
    assert errno_of(file.pread, 1, number) == errno.EINVAL
    assert errno_of(file.pwrite, b"x", number) == errno.EINVAL
    assert errno_of(file.truncate, number) == errno.EINVAL
    assert errno_of(file.pread, -1, 0) == errno.EINVAL


def test_a_read_only_handle_cannot_write(place: Place) -> None:
    path = place.put("f", b"abc")
    file = place.fs.open(path)
    assert errno_of(file.pwrite, b"x", 0) == errno.EBADF
    with pytest.raises(IoFailure):
        file.truncate(1)
    assert place.fs.read_bytes(path) == b"abc"


def test_a_closed_file_is_closed(place: Place) -> None:
    file = place.fs.open(place.put("f", b"abc"), write=True)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.size,
        file.datasync,
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
    ]
    assert [errno_of(call) for call in calls] == [errno.EBADF] * len(calls)


def test_datasync(place: Place) -> None:
    file = place.open("f")
    file.pwrite(b"x", 0)
    file.datasync()
    assert file.pread(2, 0) == b"x"


def test_read_bytes(place: Place) -> None:
    assert place.fs.read_bytes(place.put("f", LARGE)) == LARGE
    assert place.fs.read_bytes(place.put("empty")) == b""
    assert errno_of(place.fs.read_bytes, place.root / "none") == errno.ENOENT


# Names.


def test_exists_and_is_dir(place: Place) -> None:
    place.put("d/f")
    found = {name: (place.fs.exists(place.root / name), place.fs.is_dir(place.root / name))
             for name in ("d", "d/f", "d/none", "none/x", "d/f/x", ".")}  # fmt: skip
    assert found == {
        "d": (True, True),
        "d/f": (True, False),
        "d/none": (False, False),
        "none/x": (False, False),
        "d/f/x": (False, False),
        ".": (True, True),
    }


def test_list_dir_is_sorted(place: Place) -> None:
    for name in ("b", "a10", "a9", "B", ".x", "é"):
        place.put(name)
    place.open("c")
    place.fs.make_dir(place.root / "aa")
    assert place.fs.list_dir(place.root) == [".x", "B", "a10", "a9", "aa", "b", "c", "é"]


def test_list_dir_of_what_is_none(place: Place) -> None:
    place.put("f")
    assert errno_of(place.fs.list_dir, place.root / "none") == errno.ENOENT
    assert errno_of(place.fs.list_dir, place.root / "f") == errno.ENOTDIR


def test_size_and_mtime(place: Place) -> None:
    path = place.put("f", b"abc")
    assert place.fs.size(path) == 3
    assert place.fs.mtime_ms(path) == place.below.mtime_ms(path)
    assert place.fs.mtime_ms(place.root) == place.below.mtime_ms(place.root)
    for missing in (place.fs.size, place.fs.mtime_ms):
        assert errno_of(missing, place.root / "none") == errno.ENOENT
    assert errno_of(place.fs.size, place.root) == errno.EISDIR


def test_make_dir_with_parents(place: Place) -> None:
    for _ in range(2):
        place.fs.make_dir(place.root / "a" / "b" / "c")
    assert place.fs.list_dir(place.root / "a" / "b") == ["c"]
    assert place.fs.is_dir(place.root / "a" / "b" / "c")
    place.fs.make_dir(place.root)


def test_make_dir_where_a_file_is(place: Place) -> None:
    place.put("f")
    assert errno_of(place.fs.make_dir, place.root / "f") == errno.EEXIST
    assert errno_of(place.fs.make_dir, place.root / "f" / "d") == errno.ENOTDIR
    assert errno_of(place.fs.make_dir, place.root / "f" / "d" / "e") == errno.ENOTDIR


def test_rename(place: Place) -> None:
    place.put("a", b"abc")
    place.put_dir("d")
    place.fs.rename(place.root / "a", place.root / "d" / "b")
    assert (place.fs.list_dir(place.root), place.fs.list_dir(place.root / "d")) == (["d"], ["b"])
    assert place.fs.read_bytes(place.root / "d" / "b") == b"abc"
    assert errno_of(place.fs.open, place.root / "a") == errno.ENOENT


def test_rename_replaces_a_file(place: Place) -> None:
    old = place.fs.open(place.put("b", b"old"))
    place.put("a", b"new")
    place.fs.rename(place.root / "a", place.root / "b")
    assert place.fs.list_dir(place.root) == ["b"]
    assert place.fs.read_bytes(place.root / "b") == b"new"
    assert old.pread(9, 0) == b"old"


def test_rename_to_itself(place: Place) -> None:
    path = place.put("a", b"abc")
    place.fs.rename(path, path)
    assert place.fs.read_bytes(path) == b"abc"


def test_rename_of_a_directory_moves_all_in_it(place: Place) -> None:
    place.put("d/sub/f", b"abc")
    place.put("d/gone", b"")
    place.fs.remove(place.root / "d" / "gone")
    place.open("d/made").pwrite(b"x", 0)
    place.put_dir("e")
    place.fs.rename(place.root / "d", place.root / "e")
    assert place.fs.list_dir(place.root) == ["e"]
    assert place.fs.list_dir(place.root / "e") == ["made", "sub"]
    assert place.fs.read_bytes(place.root / "e" / "sub" / "f") == b"abc"
    assert place.fs.read_bytes(place.root / "e" / "made") == b"x"
    place.fs.make_dir(place.root / "d")
    assert place.fs.list_dir(place.root / "d") == []


@pytest.mark.parametrize(
    ("source", "target", "number"),
    [
        ("none", "x", errno.ENOENT),
        ("f", "none/x", errno.ENOENT),
        ("f", "g/x", errno.ENOTDIR),
        ("f/x", "y", errno.ENOTDIR),
        ("d", "f", errno.ENOTDIR),
        ("f", "d", errno.EISDIR),
        ("d", "full", errno.ENOTEMPTY),
        ("d", "d/sub", errno.EINVAL),
    ],
)
def test_renames_that_are_refused(place: Place, source: str, target: str, number: int) -> None:
    place.put("f", b"f")
    place.put("g", b"g")
    place.put("full/x")
    place.put_dir("d")
    assert errno_of(place.fs.rename, place.root / source, place.root / target) == number
    assert place.fs.list_dir(place.root) == ["d", "f", "full", "g"]
    assert place.fs.read_bytes(place.root / "f") == b"f"


def test_remove(place: Place) -> None:
    path = place.put("f", b"abc")
    file = place.fs.open(path, write=True)
    place.fs.remove(path)
    assert (place.fs.exists(path), place.fs.list_dir(place.root)) == (False, [])
    assert errno_of(place.fs.remove, path) == errno.ENOENT
    file.pwrite(b"x", 3)
    assert file.pread(9, 0) == b"abcx"


def test_remove_then_create_is_a_new_file(place: Place) -> None:
    path = place.put("f", LARGE)
    place.fs.remove(path)
    file = place.open("f")
    file.truncate(10)
    assert place.fs.read_bytes(path) == bytes(10)


def test_remove_leaves_directories(place: Place) -> None:
    assert errno_of(place.fs.remove, place.put_dir("d")) == errno.EISDIR
    assert place.fs.is_dir(place.root / "d")


def test_remove_tree(place: Place) -> None:
    place.put("d/e/f", b"abc")
    place.open("d/g")
    place.fs.remove_tree(place.root / "d")
    assert place.fs.list_dir(place.root) == []
    assert errno_of(place.fs.remove_tree, place.root / "d") == errno.ENOENT
    place.fs.make_dir(place.root / "d")
    assert place.fs.list_dir(place.root / "d") == []
    assert errno_of(place.fs.remove_tree, place.put("f")) == errno.ENOTDIR


def test_sync_dir(place: Place) -> None:
    place.fs.sync_dir(place.root)
    assert errno_of(place.fs.sync_dir, place.root / "none") == errno.ENOENT
    assert errno_of(place.fs.sync_dir, place.put("f")) == errno.ENOTDIR


# Locks.


def test_lock_once(place: Place) -> None:
    path = place.root / ".lock"
    lock = place.fs.lock(path)
    assert place.fs.exists(path)
    with pytest.raises(StoreLocked, match="this process") as caught:
        place.fs.lock(path)
    assert caught.value.facts()["path"] == str(path)
    lock.release()
    lock.release()
    again = place.fs.lock(path)
    lock.release()  # this handle no longer holds the lock
    with pytest.raises(StoreLocked):
        place.fs.lock(path)
    again.release()
    assert place.fs.exists(path)


def test_two_lock_files(place: Place) -> None:
    locks = [place.fs.lock(place.root / name) for name in ("a", "b")]
    for lock in locks:
        lock.release()


def test_a_lock_file_that_cannot_be(place: Place) -> None:
    assert errno_of(place.fs.lock, place.root / "none" / ".lock") == errno.ENOENT
    assert errno_of(place.fs.lock, place.put_dir("d")) == errno.EISDIR


# Threads.


def test_threads_write_to_one_file(place: Place) -> None:
    path = place.put("f", bytes(8 * 5000))

    def write(number: int, file: File) -> None:
        for start in range(number * 5000, (number + 1) * 5000, 100):
            file.pwrite(bytes([number]) * 100, start)

    shared = place.fs.open(path, write=True)
    run_all([lambda n=n: write(n, shared) for n in range(8)])  # type: ignore[misc]
    assert shared.pread(50_000, 0) == b"".join(bytes([n]) * 5000 for n in range(8))


def test_threads_change_names(place: Place) -> None:
    def churn(number: int) -> None:
        for step in range(20):
            path = place.root / f"{number}-{step}"
            place.fs.open(path, create=True).close()
            place.fs.rename(path, path.with_suffix(".x"))
            place.fs.list_dir(place.root)
            place.fs.remove(path.with_suffix(".x"))

    run_all([lambda n=n: churn(n) for n in range(4)])  # type: ignore[misc]
    assert place.fs.list_dir(place.root) == []


def run_all(calls: list[Callable[[], None]]) -> None:
    """Run each call in a thread; pytest's thread check fails the test if a call fails."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_paths_are_normal(place: Place) -> None:
    place.put("d/f", b"abc")
    odd = Path(f"{place.root}/d/../d/./f")
    assert place.fs.read_bytes(odd) == b"abc"
