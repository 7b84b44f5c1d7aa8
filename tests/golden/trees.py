"""The outside view of a directory: every name, byte and time, for a comparison before and after."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One name: kind and permissions, time of the last change of its bytes or names, length, SHA-256 of its bytes."""

    mode: str
    mtime_ns: int
    size_bytes: int
    digest: str


def picture(root: Path) -> dict[str, Entry]:
    """Return everything below `root`, including `root`, by relative path; access times are left out."""
    return {str(path.relative_to(root)): _entry(path) for path in [root, *root.rglob("*")]}


def _entry(path: Path) -> Entry:
    status = path.lstat()
    is_file = stat.S_ISREG(status.st_mode)
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
    return Entry(
        stat.filemode(status.st_mode), status.st_mtime_ns, status.st_size if is_file else 0, digest
    )
