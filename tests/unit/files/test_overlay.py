"""The overlay, next to the conformance suite: the base is unchanged and may be live, and memory holds only writes."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from storage.errors import IoFailure
from storage.files import OverlayFileSystem, RealFileSystem, atomic_write
from storage.files.fs import File
from tests.unit.files.guarded import ReadOnly, descriptors_below
from tests.unit.files.test_conformance import errno_of

REAL = RealFileSystem()
PAGE = 4096
LOG = bytes(range(251)) * 200


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory on disk with old times: log (50,200 bytes), part/a, part/b, empty/."""
    (tmp_path / "part").mkdir()
    (tmp_path / "empty").mkdir()
    for name, data in (("log", LOG), ("part/a", b"aaa"), ("part/b", b"bbb")):
        (tmp_path / name).write_bytes(data)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.utime(path, ns=(10**18, 10**18))
    return tmp_path


@pytest.fixture
def fs(root: Path) -> OverlayFileSystem:
    """An overlay over `root`; its clock counts from 1000."""
    clock = itertools.count(1000)
    return OverlayFileSystem(ReadOnly(REAL), clock=lambda: next(clock))


def picture(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return all names below a directory with modification times and bytes."""
    return {
        str(path): (path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in (root, *root.rglob("*"))
    }


def write(fs: OverlayFileSystem, path: Path, data: bytes, position: int = 0) -> None:
    file = fs.open(path, create=True)
    file.pwrite(data, position)
    file.close()


# The base.


def test_the_base_is_never_touched(root: Path, fs: OverlayFileSystem) -> None:
    before = picture(root)
    write(fs, root / "log", b"changed", 5000)
    log = fs.open(root / "log", write=True)
    log.truncate(100)
    log.datasync()
    atomic_write(fs, root / "part" / "a", b"new")
    fs.rename(root / "part", root / "moved")
    fs.remove(root / "moved" / "b")
    fs.remove_tree(root / "empty")
    fs.make_dir(root / "made" / "deep")
    fs.sync_dir(root)
    fs.lock(root / ".lock").release()
    log.close()
    assert picture(root) == before
    assert descriptors_below(root) == []


def test_open_files_hold_one_descriptor_of_the_base(root: Path, fs: OverlayFileSystem) -> None:
    files: list[File] = [fs.open(root / "log"), fs.open(root / "made", create=True)]
    cut = fs.open(root / "part" / "a", write=True)
    cut.truncate(0)
    files.append(fs.open(root / "part" / "a"))
    assert len(descriptors_below(root)) == 2
    for file in (*files, cut):
        file.close()
    assert descriptors_below(root) == []


def test_what_the_base_refuses_is_refused(root: Path, fs: OverlayFileSystem) -> None:
    (root / "link").symlink_to(root / "log")
    os.mkfifo(root / "pipe")
    assert fs.list_dir(root) == ["empty", "link", "log", "part", "pipe"]
    for name, number in (("link", errno.ELOOP), ("pipe", errno.EINVAL)):
        path = root / name
        assert (fs.exists(path), fs.is_dir(path)) == (True, False)
        assert errno_of(fs.open, path) == errno_of(fs.open, path, create=True) == number
        assert errno_of(fs.size, path) == errno_of(fs.mtime_ms, path) == number
        assert errno_of(fs.list_dir, path) == errno_of(fs.make_dir, path / "d") == errno.ENOTDIR
    assert fs.changed() == []
    fs.rename(root / "link", root / "renamed")
    fs.remove(root / "pipe")
    assert fs.changed() == [root / name for name in ("link", "pipe", "renamed")]


# A live base.


def test_a_file_keeps_the_length_it_was_first_seen_with(root: Path, fs: OverlayFileSystem) -> None:
    opened = fs.open(root / "log")
    assert fs.size(root / "part" / "a") == 3
    for name in ("log", "part/a"):
        with (root / name).open("ab") as writer:
            writer.write(b"later")
    assert (opened.size(), fs.size(root / "log")) == (len(LOG), len(LOG))
    assert opened.pread(100, len(LOG) - 2) == LOG[-2:]
    assert fs.read_bytes(root / "log") == LOG
    assert fs.read_bytes(root / "part" / "a") == b"aaa"
    opened_again = fs.open(root / "log", write=True)
    opened_again.pwrite(b"mine", len(LOG) + 2)
    assert opened_again.pread(100, len(LOG)) == b"\0\0mine"


def test_a_forgotten_file_has_its_new_length(root: Path, fs: OverlayFileSystem) -> None:
    for name in ("log", "part/a", "none"):
        fs.exists(root / name)
    file = fs.open(root / "part/a", write=True)
    file.pwrite(b"b", 0)
    file.close()
    for name in ("log", "part/a"):
        atomic_write(REAL, root / name, b"another one")
    for name in ("log", "part/a", "part", "none"):
        fs.forget(root / name)
    assert fs.read_bytes(root / "log") == b"another one"
    assert fs.read_bytes(root / "part/a")[:1] == b"b", "a written file stays as it is"


def test_growth_is_not_a_change(root: Path, fs: OverlayFileSystem) -> None:
    fs.size(root / "log")
    fs.size(root / "part" / "a")
    write(fs, root / "log", LOG[:10])
    with (root / "log").open("ab") as writer:
        writer.write(b"later")
    (root / "part" / "a").unlink()
    assert fs.changed() == []


def test_a_file_that_shrinks_reads_as_zeros(root: Path, fs: OverlayFileSystem) -> None:
    opened = fs.open(root / "log")
    os.truncate(root / "log", 100)
    assert opened.pread(200, 50) == LOG[50:100] + bytes(150)


def test_names_that_appear_are_seen(root: Path, fs: OverlayFileSystem) -> None:
    assert not fs.exists(root / "part" / "c")
    (root / "part" / "c").write_bytes(b"ccc")
    assert fs.list_dir(root / "part") == ["a", "b", "c"]
    assert fs.read_bytes(root / "part" / "c") == b"ccc"


class _Appearing(RealFileSystem):
    """A base in which another program creates a directory right after a check of its existence."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        found = super().is_dir(path, follow=follow)
        self._appear(path)
        return found

    def exists(self, path: Path) -> bool:
        found = super().exists(path)
        self._appear(path)
        return found

    def _appear(self, path: Path) -> None:
        if path == self._path:
            path.mkdir(exist_ok=True)


def test_a_directory_that_appears_while_it_is_looked_for_is_no_file(root: Path) -> None:
    late = root / "late"
    fs = OverlayFileSystem(_Appearing(late))
    assert not fs.exists(late)
    assert fs.is_dir(late)
    late.rmdir()
    fs = OverlayFileSystem(_Appearing(late))
    assert not fs.is_dir(late)
    fs.make_dir(late / "below")
    assert fs.list_dir(late) == ["below"]


def test_an_open_file_outlives_its_name_in_the_base(root: Path, fs: OverlayFileSystem) -> None:
    opened = fs.open(root / "log")
    (root / "log").unlink()
    assert opened.pread(len(LOG), 0) == LOG
    assert errno_of(fs.open, root / "log") == errno.ENOENT


def test_a_name_that_goes_while_it_is_looked_at(
    root: Path, fs: OverlayFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(_: RealFileSystem, path: Path) -> bool:
        if path.is_file():
            path.unlink()
        return True

    monkeypatch.setattr(RealFileSystem, "exists", exists)
    assert errno_of(fs.open, root / "log") == errno.ENOENT
    monkeypatch.undo()
    (root / "log").write_bytes(b"back")
    assert fs.read_bytes(root / "log") == b"back"


# Times.


def test_mtimes(root: Path, fs: OverlayFileSystem) -> None:
    old = 10**12
    log = fs.open(root / "log", write=True)
    log.pread(10, 0)
    log.pwrite(b"", 0)
    assert [fs.mtime_ms(path) for path in (root / "log", root, root / "part")] == [old] * 3
    log.pwrite(b"x", 0)
    written = fs.mtime_ms(root / "log")
    log.truncate(10)
    assert 1000 <= written < fs.mtime_ms(root / "log") < old
    fs.rename(root / "part" / "a", root / "a")
    assert fs.mtime_ms(root / "a") == old
    assert fs.mtime_ms(root) < old
    assert fs.mtime_ms(root / "part") < old
    write(fs, root / "made", b"")
    assert 1000 <= fs.mtime_ms(root / "made") < old


def test_without_a_clock_changes_have_time_zero(root: Path) -> None:
    fs = OverlayFileSystem(REAL)
    write(fs, root / "log", b"x")
    assert fs.mtime_ms(root / "log") == 0


# Changes.


def test_changed_compares_bytes(root: Path, fs: OverlayFileSystem) -> None:
    assert fs.changed() == []
    log = fs.open(root / "log", write=True)
    log.pwrite(LOG[5000:6000], 5000)
    log.truncate(len(LOG) - 10)
    log.pwrite(LOG[-10:], len(LOG) - 10)
    atomic_write(fs, root / "part" / "a", b"aaa")
    fs.rename(root / "part" / "b", root / "part" / "c")
    fs.rename(root / "part" / "c", root / "part" / "b")
    fs.lock(root / "log").release()
    fs.read_bytes(root / "part" / "b")
    assert fs.changed() == []
    log.pwrite(b"\xff", 5000)
    assert fs.changed() == [root / "log"]


@pytest.mark.parametrize("size_bytes", [0, 1, PAGE, len(LOG) - 1, len(LOG) + 1])
def test_another_length_is_a_change(root: Path, fs: OverlayFileSystem, size_bytes: int) -> None:
    fs.open(root / "log", write=True).truncate(size_bytes)
    assert fs.changed() == [root / "log"]


def test_zeros_where_the_base_has_bytes_are_a_change(root: Path, fs: OverlayFileSystem) -> None:
    log = fs.open(root / "log", write=True)
    log.truncate(100)
    log.truncate(len(LOG))
    assert fs.changed() == [root / "log"]


def test_changed_names(root: Path, fs: OverlayFileSystem) -> None:
    fs.make_dir(root / "made")
    write(fs, root / "made" / "f", b"x")
    fs.remove_tree(root / "part")
    fs.remove(root / "log")
    names = ["log", "made", "made/f", "part", "part/a", "part/b"]
    assert fs.changed() == [root / name for name in names]


def test_moved_directories(root: Path, fs: OverlayFileSystem) -> None:
    fs.rename(root / "part", root / "moved")
    names = ["moved", "moved/a", "moved/b", "part", "part/a", "part/b"]
    assert fs.changed() == [root / name for name in names]
    fs.make_dir(root / "part")
    write(fs, root / "part" / "a", b"aaa")
    write(fs, root / "part" / "b", b"BBB")
    assert fs.changed() == [root / name for name in ("moved", "moved/a", "moved/b", "part/b")]
    fs.remove_tree(root / "part")
    fs.rename(root / "moved", root / "part")
    assert fs.changed() == []


def test_a_file_in_the_place_of_a_directory(root: Path, fs: OverlayFileSystem) -> None:
    fs.remove_tree(root / "part")
    write(fs, root / "part", b"x")
    fs.remove(root / "log")
    fs.make_dir(root / "log")
    assert fs.changed() == [root / name for name in ("log", "part", "part/a", "part/b")]


def test_in_memory_all_is_made() -> None:
    fs = OverlayFileSystem(None)
    assert fs.list_dir(Path("/")) == []
    fs.make_dir(Path("/a"))
    write(fs, Path("/a/f"), b"x")
    write(fs, Path("/a/g"), b"x")
    fs.remove(Path("/a/g"))
    assert fs.changed() == [Path("/a"), Path("/a/f")]


def test_the_root_cannot_go(fs: OverlayFileSystem) -> None:
    for call in (fs.remove_tree, fs.lock):
        assert errno_of(call, Path("/")) == errno.EBUSY
    with pytest.raises(IoFailure):
        fs.rename(Path("/"), Path("/x"))


def test_overlays_stack(root: Path, fs: OverlayFileSystem) -> None:
    write(fs, root / "log", b"lower", 10)
    upper = OverlayFileSystem(ReadOnly(fs))
    write(upper, root / "log", b"U", 12)
    assert upper.read_bytes(root / "log") == LOG[:10] + b"loUer" + LOG[15:]
    assert fs.read_bytes(root / "log") == LOG[:10] + b"lower" + LOG[15:]
    assert upper.changed() == fs.changed() == [root / "log"]


# Memory and threads. pathlib interns the names in a path. The interpreter's table of interned names may grow by
# hundreds of KB at any name, so the names are interned before memory is traced.


def test_memory_is_for_what_is_written() -> None:
    fs = OverlayFileSystem(None)
    fs.make_dir(Path("/d"))
    names = [sys.intern(f"{number}.index") for number in range(50)]
    tracemalloc.start()
    try:
        for name in names:
            file = fs.open(Path("/d", name), create=True)
            file.truncate(10 << 20)
            file.pwrite(b"entry", 0)
            file.pwrite(b"entry", 5 << 20)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 50 * 3 * PAGE


def test_cutting_gives_memory_back() -> None:
    fs = OverlayFileSystem(None)
    file = fs.open(Path("/f"), create=True)
    names = [sys.intern(str(number)) for number in range(1000)]
    tracemalloc.start()
    try:
        file.pwrite(bytes(4 << 20), 0)
        file.truncate(0)
        for name in names:
            fs.open(Path("/", name), create=True)
            fs.remove(Path("/", name))
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 10 * PAGE


def test_a_read_sees_a_write_whole_or_not_at_all(root: Path, fs: OverlayFileSystem) -> None:
    file = fs.open(root / "log", write=True)
    done = threading.Event()
    size_bytes = 3 * PAGE
    torn: list[bytes] = []

    def read() -> None:
        while not done.is_set():
            data = file.pread(size_bytes, 100)
            if data != LOG[100 : 100 + size_bytes] and len(set(data)) > 1:
                torn.append(data)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(2000):
            file.pwrite(bytes([number % 256]) * size_bytes, 100)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert torn == []
