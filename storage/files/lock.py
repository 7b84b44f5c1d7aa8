"""The exclusive lock on a store's own lock file: a POSIX record lock, as Java's FileChannel takes it.

Owns the locked descriptors of this process; must not write to, rename or remove a lock file. Java does not see
flock(2). A POSIX lock belongs to the process and is dropped when ANY descriptor of that file is closed. So a lock file
is opened once, and before a second open it is compared by device and inode, without opening it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from pathlib import Path

from storage.errors import StoreLocked
from storage.files.failures import SYSTEM_ERRORS, from_system, store_locked

# struct flock of Linux, 64 bit: l_type, l_whence, l_start, l_len, l_pid. Start 0 and length 0 mean the whole file and
# its future growth. FileChannel.tryLock() takes the same range (Kafka), and it covers byte 0 (RocketMQ).
_FLOCK = struct.Struct("@hhqqi0q")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_LOCK_ATTEMPTS = 3  # the holder may release the lock between the refusal and F_GETLK

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# Locks held by this process, by (device, inode). Read and changed under `_guard` only, which is also held while a lock
# file is opened or closed. So no thread can close a descriptor of a file that another thread has just locked.
_held: dict[tuple[int, int], PosixLock] = {}
_guard = threading.Lock()


class PosixLock:
    """A held lock, created by `acquire` only."""

    __slots__ = ("descriptors", "path", "pid")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.pid = process_id()
        self.descriptors = [descriptor]  # under `_guard`; empty when released

    def release(self) -> None:
        """Release the lock and close the file, which stays. A second call does nothing."""
        with _guard:
            for key in [key for key, lock in _held.items() if lock is self]:
                del _held[key]
            while self.descriptors:
                os.close(self.descriptors.pop())


def process_id() -> int:
    """Return this process's id, as reported to other processes."""
    return os.getpid()


def acquire(path: Path) -> PosixLock:
    """Lock `path` without waiting. A missing file is created; an existing file keeps its bytes and mtime.

    Raises StoreLocked with the holder's pid (this process included; None if the kernel does not report it, as across
    containers), IoFailure if it cannot be opened.
    """
    with _guard:
        try:
            _refuse_own(path)
            descriptor = os.open(path, _FLAGS, 0o644)
        except SYSTEM_ERRORS as error:
            raise from_system(error, path, "lock") from error
        try:
            _lock(descriptor, path)
        except StoreLocked:
            os.close(descriptor)
            raise
        except OSError as error:
            os.close(descriptor)
            raise from_system(error, path, "lock") from error
        lock = PosixLock(path, descriptor)
        _held[_key(os.fstat(descriptor))] = lock
        return lock


def adopt(descriptor: int, status: os.stat_result) -> bool:
    """Return whether this is a new descriptor of a lock file held here; then it stays open as long as the lock.

    For code that opens files of any kind: after True the caller must not close the descriptor.
    """
    with _guard:
        lock = _held.get(_key(status))
        if lock is not None:
            lock.descriptors.append(descriptor)
        return lock is not None


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _refuse_own(path: Path) -> None:
    """Raise StoreLocked if this process holds the file; checked without opening it."""
    try:
        held = _held.get(_key(path.stat(follow_symlinks=False)))
    except FileNotFoundError:
        return
    if held is not None:
        raise store_locked(path, held.pid)


def _lock(descriptor: int, path: Path) -> None:
    pid = 0
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        else:
            return
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _WHOLE_FILE))
        if kind != fcntl.F_UNLCK:
            break
    raise store_locked(path, pid if pid > 0 else None)
