"""The real disk: FileSystem and File over system calls.

Owns descriptors and the loops over short reads and writes; must not know any format, cache anything or map anything.
Descriptors are closed on exec. Nothing is synced implicitly: durability is requested with `datasync` and `sync_dir`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.files.failures import SYSTEM_ERRORS, from_system, io_failure
from storage.files.fs import Buffer, FileLock
from storage.files.lock import acquire, adopt

# The modes that Java uses under the usual umask; the directory's mode keeps other users out.
FILE_MODE = 0o644
DIRECTORY_MODE = 0o700

# O_NONBLOCK: opening a FIFO must not wait for its other end. It has no effect on a regular file.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class RealFile:
    """An open descriptor. Only `close` changes `_descriptor`, to -1, so that a late call gets EBADF.

    Otherwise a late call could read or write another file to which the kernel has given the same number.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __repr__(self) -> str:
        return f"RealFile({str(self.path)!r}, descriptor={self._descriptor})"

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except SYSTEM_ERRORS as error:
            raise from_system(error, self.path, "stat") from error

    def data_end(self, start: int) -> int:
        end = start
        try:
            while True:
                end = os.lseek(
                    self._descriptor, os.lseek(self._descriptor, end, os.SEEK_DATA), os.SEEK_HOLE
                )
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data after `end`
                return end
            if error.errno == errno.EINVAL:  # a file system without support for holes
                return max(self.size(), start)
            raise from_system(error, self.path, "lseek") from error

    def next_data(self, start: int) -> int:
        try:
            return os.lseek(self._descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole up to the end
                return max(self.size(), start)
            if error.errno == errno.EINVAL:  # a file system without support for holes
                return start
            raise from_system(error, self.path, "lseek") from error

    def pread(self, size_bytes: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            if len(data) == size_bytes or not data:
                return data
            return self._read_on(data, size_bytes, position)
        except SYSTEM_ERRORS as error:
            raise from_system(error, self.path, "read", position=position) from error

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        if not _NO_WAIT:
            return None
        data = bytearray(size_bytes)
        try:
            count = os.preadv(self._descriptor, (data,), position, _NO_WAIT)
        except SYSTEM_ERRORS:  # also a file system without such reads
            return None
        return data if count == size_bytes else None

    def _read_on(self, data: bytes, size_bytes: int, position: int) -> bytes:
        """Continue after a short read: at the end of the file, or at the 2 GiB limit of one call."""
        parts = [data]
        done = len(data)
        while done < size_bytes:
            data = os.pread(self._descriptor, size_bytes - done, position + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                self._write_on(data, position, written)
        except SYSTEM_ERRORS as error:
            raise from_system(error, self.path, "write") from error

    def pwritev(self, pieces: Sequence[Buffer], position: int) -> None:
        try:
            written = os.pwritev(self._descriptor, pieces, position)
            if written != sum(map(len, pieces)):
                self._write_on(b"".join(pieces), position, written)
        except SYSTEM_ERRORS as error:
            raise from_system(error, self.path, "write") from error

    def _write_on(self, data: bytes, position: int, written: int) -> None:
        """Continue after a short write: the next call writes more, or fails with the reason of the short write (a full
        disk).
        """
        view = memoryview(data)
        while written < len(view):
            count = os.pwrite(self._descriptor, view[written:], position + written)
            if count <= 0:
                raise io_failure(errno.EIO, self.path, "write")
            written += count

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except SYSTEM_ERRORS as error:
            raise from_system(error, self.path, "truncate") from error

    def datasync(self) -> None:
        if self._descriptor < 0:
            raise io_failure(errno.EBADF, self.path, "datasync")
        try:
            os.fdatasync(self._descriptor)
        except SYSTEM_ERRORS as error:
            raise from_system(error, self.path, "datasync") from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _close(descriptor, self.path)


_SPECIAL: Final = (
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class RealFileSystem:
    """The disk. It has no state: all instances are equivalent."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> RealFile:
        flags = _WRITE if write or create else _READ
        try:
            descriptor = os.open(path, flags | os.O_CREAT if create else flags, FILE_MODE)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "open") from error
        status = os.fstat(descriptor)
        if adopt(descriptor, status):
            raise io_failure(errno.EBUSY, path, "open")
        try:
            _check_regular(status.st_mode, path, "open")
        except IoFailure:
            _close(descriptor, path)
            raise
        return RealFile(path, descriptor)

    def exists(self, path: Path) -> bool:
        return _stat_or_none(path, follow=False) is not None

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        status = _stat_or_none(path, follow=follow)
        if status is None or not stat.S_ISLNK(status.st_mode):
            return status is not None and stat.S_ISDIR(status.st_mode)
        if self.is_dir(path, follow=True):
            raise io_failure(errno.ELOOP, path, "stat")
        return False

    def list_dir(self, path: Path) -> Sequence[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "list") from error

    def size(self, path: Path) -> int:
        status = _stat(path)
        _check_regular(status.st_mode, path, "stat")
        return status.st_size

    def mtime_ms(self, path: Path) -> int:
        return _stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: Path, time_ms: int) -> None:
        try:
            os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000), follow_symlinks=False)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "utime") from error

    def used_percent(self, path: Path) -> int:
        try:
            found = os.statvfs(path)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "statvfs") from error
        usable = found.f_blocks - found.f_bfree + found.f_bavail
        return 100 * (found.f_blocks - found.f_bfree) // usable if usable else 0

    def read_bytes(self, path: Path) -> bytes:
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def make_dir(self, path: Path) -> None:
        try:
            self._mkdir(path)
        except FileNotFoundError as error:
            if path.parent == path:
                raise from_system(error, path, "mkdir") from error
            # Another process may have made the parent since then: tasks of a job share a folder.
            if not self.exists(path.parent):
                self.make_dir(path.parent)
            try:
                self._mkdir(path)
            except SYSTEM_ERRORS as again:
                raise from_system(again, path, "mkdir") from again
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "mkdir") from error

    def _mkdir(self, path: Path) -> None:
        try:
            path.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            if not self.is_dir(path, follow=True):
                raise

    def rename(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        except SYSTEM_ERRORS as error:
            raise from_system(error, source, f"rename to {target.name} of") from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink()
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "remove") from error

    def remove_tree(self, path: Path) -> None:
        try:
            if path.is_symlink():  # remove the link, not its target: that may be in use
                path.unlink()
                return
            shutil.rmtree(path)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "remove_tree") from error

    def sync_dir(self, path: Path) -> None:
        try:
            descriptor = os.open(path, _DIRECTORY)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "sync_dir") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise from_system(error, path, "sync_dir") from error
        finally:
            _close(descriptor, path)

    def lock(self, path: Path) -> FileLock:
        return acquire(path)


def _close(descriptor: int, path: Path) -> None:
    try:
        os.close(descriptor)
    except OSError as error:
        raise from_system(error, path, "close") from error


def _check_regular(mode: int, path: Path, operation: str) -> None:
    """Raise IoFailure for an entry that is not a regular file: EISDIR for a folder, EINVAL for a device, a pipe or a
    socket.
    """
    if stat.S_ISDIR(mode):
        raise io_failure(errno.EISDIR, path, operation)
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _SPECIAL if is_kind(mode)), "of an unknown kind")
        reason = f"it is {kind}, and no regular file (move it away)"
        raise io_failure(errno.EINVAL, path, operation, reason=reason)


def _stat(path: Path) -> os.stat_result:
    """Return the status of the entry with this name. Raises IoFailure, ELOOP for a symbolic link."""
    try:
        status = path.stat(follow_symlinks=False)
    except SYSTEM_ERRORS as error:
        raise from_system(error, path, "stat") from error
    if stat.S_ISLNK(status.st_mode):
        raise io_failure(errno.ELOOP, path, "stat")
    return status


def _stat_or_none(path: Path, *, follow: bool) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except SYSTEM_ERRORS as error:
        failure = from_system(error, path, "stat")
        if failure.facts()["errno"] in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise failure from error
