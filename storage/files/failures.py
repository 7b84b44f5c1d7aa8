"""Conversion of system errors to the storage error tree: the only place where an OSError becomes IoFailure or DiskFull.

Owns the mapping and its messages; must not do IO.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import DiskFull, IoFailure, StoreLocked

SYSTEM_ERRORS = (OSError, ValueError, OverflowError)
"""The Python errors of a system call: ValueError for a NUL in a path, OverflowError for a position over 63 bits."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SYNCS = frozenset({"datasync", "sync_dir"})
_REASONS = {
    errno.EMFILE: (
        "this process has too many open files (raise `ulimit -n`, or keep fewer open at a time)"
    ),
    errno.ENFILE: "the machine has too many open files (fs.file-max)",
    errno.EFBIG: "the file would be larger than allowed (`ulimit -f`, or the file system's limit)",
    errno.ELOOP: "it is a symbolic link, which is not followed",
    errno.EBUSY: "it is in use: a lock file held by this process, or a mount point",
    errno.EBADF: "it is closed, or not open for this",
}


def io_failure(
    number: int,
    path: Path,
    operation: str,
    *,
    position: int | None = None,
    reason: str = "",
) -> IoFailure:
    """Return the error for this errno: DiskFull for ENOSPC, EDQUOT and EFBIG, except at a sync.

    A sync without space has lost data that was reported as written: it is an IoFailure, which fences the store.
    `position`: the position in the file at which a read failed. `reason`: the meaning of the errno here.
    """
    no_space = number in _NO_SPACE and operation not in _SYNCS
    reason = reason or _REASONS.get(number) or os.strerror(number)
    place = "" if position is None else f" at {position}"
    facts = {} if position is None else {"position": position}
    return (DiskFull if no_space else IoFailure)(
        f"{operation} {path}{place}: {reason}",
        path=str(path),
        operation=operation,
        errno=number,
        **facts,
    )


def from_system(
    error: Exception, path: Path, operation: str, *, position: int | None = None
) -> IoFailure:
    """Return the error for one of SYSTEM_ERRORS; an exception without an errno counts as EINVAL."""
    number = error.errno if isinstance(error, OSError) else None
    return io_failure(number or errno.EINVAL, path, operation, position=position)


def store_locked(path: Path, pid: int | None) -> StoreLocked:
    """Return the error for a lock that process `pid` holds (None: the kernel does not report it)."""
    holder = "another process" if pid is None else f"process {pid}"
    if pid == os.getpid():
        holder = f"this process ({pid})"
    message = f"{path} is locked by {holder}: stop it first; `serve --read-only` and reading commands need no lock"
    return StoreLocked(message, path=str(path), pid=pid)


def is_missing(error: IoFailure) -> bool:
    """Return whether the failure means that the file or directory does not exist."""
    return error.facts().get("errno") == errno.ENOENT


@contextmanager
def unless_missing() -> Iterator[None]:
    """Leave the block, without an error, at a file or directory that does not exist: another program removed it."""
    try:
        yield
    except IoFailure as error:
        if not is_missing(error):
            raise
