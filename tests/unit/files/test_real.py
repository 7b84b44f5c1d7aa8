"""Failures of the disk: short writes and reads, no space, limits, links, pipes; and the calls to the kernel."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage.errors import DiskFull, IoFailure
from storage.files import Buffer, OverlayFileSystem, RealFileSystem, is_missing
from storage.files.failures import io_failure
from tests.unit.files.guarded import descriptors_below
from tests.unit.files.test_conformance import errno_of

FS = RealFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a file of ten digits."""
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    return path


def refuse(number: int) -> Callable[..., object]:
    """Return a system call that fails with this errno."""

    def call(*arguments: object, **options: object) -> object:
        raise OSError(number, os.strerror(number))

    return call


# Errors.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_space_is_disk_full(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    file = FS.open(path, write=True)
    for name, operation, call in (
        ("pwrite", "write", lambda: file.pwrite(b"x", 0)),
        ("ftruncate", "truncate", lambda: file.truncate(100)),
        ("open", "open", lambda: FS.open(path, create=True)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse(number))
            with pytest.raises(DiskFull) as caught:
                call()
        assert caught.value.facts() == {
            "path": str(path),
            "operation": operation,
            "errno": number,
        }


def test_no_space_at_a_sync_fences(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FS.open(path, write=True)
    monkeypatch.setattr(os, "fdatasync", refuse(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", refuse(errno.ENOSPC))
    for call in (file.datasync, lambda: FS.sync_dir(path.parent)):
        with pytest.raises(IoFailure) as caught:
            call()
        assert type(caught.value) is IoFailure
        assert caught.value.facts()["errno"] == errno.ENOSPC


def test_other_errors_are_io_failures(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FS.open(path, write=True)
    for name, call in (
        ("pwrite", lambda: file.pwrite(b"x", 0)),
        ("pread", lambda: file.pread(1, 0)),
        ("ftruncate", lambda: file.truncate(1)),
        ("fdatasync", file.datasync),
        ("fstat", file.size),
        ("scandir", lambda: FS.list_dir(path.parent)),
        ("close", file.close),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse(errno.EIO))
            assert errno_of(call) == errno.EIO, name


def test_the_message_names_path_and_reason(tmp_path: Path) -> None:
    with pytest.raises(IoFailure, match=f"^open {tmp_path}/none: No such file or directory$"):
        FS.open(tmp_path / "none")


def test_too_many_open_files_says_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", refuse(errno.EMFILE))
    with pytest.raises(IoFailure, match="ulimit -n"):
        FS.open(path)


def test_every_errno_has_a_message(path: Path) -> None:
    for number in errno.errorcode:
        assert len(str(io_failure(number, path, "write"))) > len(f"write {path}: ")


def test_is_missing_means_missing(path: Path) -> None:
    assert is_missing(io_failure(errno.ENOENT, path, "open"))
    assert not is_missing(io_failure(errno.ENOTDIR, path, "open"))


def test_a_directory_that_may_not_be_looked_into_is_not_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "stat", refuse(errno.EACCES))
    assert errno_of(FS.exists, path) == errno.EACCES
    assert errno_of(FS.is_dir, path) == errno.EACCES


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_devices_are_not_opened() -> None:
    assert errno_of(FS.open, Path("/dev/full"), write=True) == errno.EINVAL


# Short writes and reads.


@pytest.mark.parametrize("step", [1, 3, 999])
def test_short_writes_go_on(path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = os.pwrite
    calls: list[int] = []

    def short(descriptor: int, data: bytes, position: int) -> int:
        calls.append(position)
        return real(descriptor, memoryview(data)[:step], position)

    monkeypatch.setattr(os, "pwrite", short)
    data = os.urandom(1000)
    FS.open(path, write=True).pwrite(data, 5)
    assert path.read_bytes() == b"01234" + data
    assert calls == list(range(5, 1005, step))


@pytest.mark.parametrize("step", [1, 3, 100])
def test_pieces_are_written_as_one(path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = os.pwritev

    def short(descriptor: int, pieces: list[bytes], position: int) -> int:
        return real(descriptor, [b"".join(pieces)[:step]], position)

    monkeypatch.setattr(os, "pwritev", short)
    pieces: list[Buffer] = [b"ab", bytearray(b"cde"), memoryview(b"xfgx")[1:3]]
    for fs in (FS, OverlayFileSystem(RealFileSystem())):
        with closing(fs.open(path, write=True)) as file:
            file.pwritev(pieces, 8)
            assert file.pread(20, 0) == b"01234567abcdefg"


def test_a_write_that_stops_short_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    calls = iter([4, errno.ENOSPC])

    def full(descriptor: int, data: bytes, position: int) -> int:
        step = next(calls)
        if step == errno.ENOSPC:
            raise OSError(errno.ENOSPC, "full")
        return real(descriptor, memoryview(data)[:step], position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull):
        FS.open(path, write=True).pwrite(b"abcdefgh", 0)
    assert path.read_bytes() == b"abcd456789"


def test_a_write_that_makes_no_way_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    assert errno_of(FS.open(path, write=True).pwrite, b"abc", 0) == errno.EIO


def test_short_reads_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: real(fd, min(size, 3), position))
    file = FS.open(path)
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(100, 1) == b"123456789"


# The kernel.


def test_sparse(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    file.truncate(1 << 30)
    status = (tmp_path / "f").stat()
    assert (status.st_size, status.st_blocks) == (1 << 30, 0)


def test_modes(tmp_path: Path) -> None:
    FS.make_dir(tmp_path / "a" / "b")
    FS.open(tmp_path / "a" / "f", create=True).close()
    old = os.umask(0o022)
    os.umask(old)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/f")]
    assert modes == [0o700 & ~old, 0o700 & ~old, 0o644 & ~old]


def test_descriptors_are_closed_and_not_inherited(path: Path) -> None:
    file = FS.open(path)
    assert [os.get_inheritable(fd) for fd in descriptors_below(path.parent)] == [False]
    file.close()
    assert errno_of(FS.open, path.parent) == errno.EISDIR
    assert errno_of(FS.read_bytes, path / "x") == errno.ENOTDIR
    FS.sync_dir(path.parent)
    FS.read_bytes(path)
    assert descriptors_below(path.parent) == []


def test_links_are_not_followed(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    for options in ({}, {"write": True}, {"create": True}):
        assert errno_of(FS.open, link, **options) == errno.ELOOP
    assert errno_of(FS.size, link) == errno_of(FS.read_bytes, link) == errno.ELOOP
    assert errno_of(FS.lock, link) == errno.ELOOP
    assert (FS.exists(link), FS.is_dir(link)) == (True, False)
    FS.remove(link)
    assert path.read_bytes() == b"0123456789"


def test_dangling_links_exist_and_are_not_created_through(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    assert FS.exists(link)
    assert errno_of(FS.open, link, create=True) == errno.ELOOP
    assert not (tmp_path / "target").exists()
    assert errno_of(FS.make_dir, link / "d") == errno.ENOENT


def test_a_link_to_a_directory_is_refused_or_followed_as_asked(tmp_path: Path) -> None:
    FS.make_dir(tmp_path / "d")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    FS.open(tmp_path / "link" / "f", create=True).close()
    for fs in (FS, OverlayFileSystem(FS)):
        assert errno_of(fs.is_dir, tmp_path / "link") == errno.ELOOP
        assert fs.is_dir(tmp_path / "link", follow=True)
        assert fs.list_dir(tmp_path / "link") == ["f"]
        assert not fs.is_dir(tmp_path / "link" / "f", follow=True)
        assert not fs.is_dir(tmp_path / "dangling")
    FS.make_dir(tmp_path / "link")
    FS.sync_dir(tmp_path / "link")


def test_remove_tree_removes_links_and_not_their_targets(tmp_path: Path) -> None:
    FS.make_dir(tmp_path / "kept")
    FS.open(tmp_path / "kept" / "f", create=True).close()
    FS.make_dir(tmp_path / "d")
    (tmp_path / "d" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    FS.remove_tree(tmp_path / "d")
    FS.remove_tree(tmp_path / "link")
    assert FS.list_dir(tmp_path) == ["kept"]
    assert FS.list_dir(tmp_path / "kept") == ["f"]


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for options in ({}, {"write": True}):
        assert errno_of(FS.open, tmp_path / "pipe", **options) == errno.EINVAL
    assert errno_of(FS.size, tmp_path / "pipe") == errno.EINVAL


FILE_LIMIT = """
import resource, sys
from pathlib import Path
from storage.errors import DiskFull
from storage.files import RealFileSystem
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
file = RealFileSystem().open(Path(sys.argv[1]), create=True)
try:
    file.pwrite(b"x" * 8000, 0)
except DiskFull as failure:
    print(failure.facts()["errno"], file.size())
"""

OPEN_LIMIT = """
import resource, sys
from pathlib import Path
from storage.errors import IoFailure
from storage.files import RealFileSystem
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
files = []
try:
    while True:
        files.append(RealFileSystem().open(Path(sys.argv[1]), create=True))
except IoFailure as failure:
    print(failure.facts()["errno"], failure)
"""


def in_child(code: str, path: Path) -> str:
    """Return the output of the code, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_file_size_limit(tmp_path: Path) -> None:
    assert in_child(FILE_LIMIT, tmp_path / "f").split() == [str(errno.EFBIG), "5000"]


def test_open_files_limit(tmp_path: Path) -> None:
    said = in_child(OPEN_LIMIT, tmp_path / "f")
    assert said.startswith(f"{errno.EMFILE} ")
    assert "too many open files" in said


def test_another_process_may_make_the_parent_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks of a job make folders in one new folder: the second finds no parent, then a parent that is there."""
    make = Path.mkdir

    def late(path: Path, mode: int) -> None:
        try:
            make(path, mode)
        except FileNotFoundError:
            os.makedirs(path.parent)  # noqa: PTH103  # the other process, which Path.mkdir is not
            raise

    monkeypatch.setattr(Path, "mkdir", late)
    FS.make_dir(tmp_path / "rebuild" / "t-0")
    assert (tmp_path / "rebuild" / "t-0").is_dir()


def test_a_folder_below_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    assert errno_of(FS.make_dir, tmp_path / "link" / "d") == errno.ENOENT
