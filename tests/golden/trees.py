"""What a directory looks like from outside: every name, byte and time, to be compared before and after."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One name: its kind and permissions, when its bytes or names changed, its length and its bytes' SHA-256."""

    mode: str
    mtime_ns: int
    size_bytes: int
    digest: str


def picture(root: Path) -> dict[str, Entry]:
    """Everything below `root`, `root` itself included, by relative path; access times are no part of it."""
    return {str(path.relative_to(root)): _entry(path) for path in [root, *root.rglob("*")]}


def _entry(path: Path) -> Entry:
    status = path.lstat()
    is_file = stat.S_ISREG(status.st_mode)
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
    return Entry(
        stat.filemode(status.st_mode), status.st_mtime_ns, status.st_size if is_file else 0, digest
    )
