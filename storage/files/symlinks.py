"""The disk with symbolic links followed: for reading only. Every followed link is remembered.

Owns the target of a link, and the rejection of links to nothing or to a folder above them; must not know any format.
Writes go to RealFileSystem, which follows no link: a store's writes stay in its own directory.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from storage.errors import IoFailure
from storage.files.real import RealFile, RealFileSystem


class FollowingFileSystem(RealFileSystem):
    """A RealFileSystem for offline commands and read-only servers. Thread-safe.

    A pickled copy starts without any known link.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards `_followed`
        self._followed: dict[Path, Path] = {}

    def __reduce__(self) -> tuple[type[FollowingFileSystem], tuple[()]]:
        return type(self), ()

    def followed(self) -> Mapping[Path, Path]:
        """Return the links that were followed so far, with their targets."""
        with self._lock:
            return dict(sorted(self._followed.items()))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> RealFile:
        if write or create:
            return super().open(path, write=write, create=create)
        file = super().open(self._target(path, "open"))
        file.path = path
        return file

    def is_dir(self, path: Path, *, follow: bool = False) -> bool:
        return super().is_dir(path if follow else self._target(path, "stat"), follow=follow)

    def size(self, path: Path) -> int:
        return super().size(self._target(path, "stat"))

    def mtime_ms(self, path: Path) -> int:
        return super().mtime_ms(self._target(path, "stat"))

    def _target(self, path: Path, operation: str) -> Path:
        """Return the target of a link, and any other path unchanged.

        Raises IoFailure (EINVAL) for a link to nothing, or to a folder that contains it: a walk over folders would not
        end.
        """
        if not path.is_symlink():
            return path
        target = real_path(path)
        if not target.exists():
            raise _refused(path, target, operation, "to nothing")
        if target.is_dir() and target in {real_path(p) for p in path.parents}:
            raise _refused(path, target, operation, "back to a folder that contains it")
        with self._lock:
            self._followed[path] = target
        return target


def real_path(path: Path) -> Path:
    """Return the path without symbolic links; names that do not exist stay unchanged."""
    return Path(os.path.realpath(path))


def _refused(path: Path, target: Path, operation: str, where: str) -> IoFailure:
    return IoFailure(
        f"{operation} {path}: a symbolic link that leads {where} ({target})",
        path=str(path),
        operation=operation,
        errno=errno.EINVAL,
    )
