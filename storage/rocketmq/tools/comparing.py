"""Whether two files hold the same bytes.

Owns that comparison; must not know what is in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.files import FileSystem

CHUNK_BYTES: Final = 1 << 20


def is_same(made_fs: FileSystem, made: Path, old_fs: FileSystem, old: Path) -> bool:
    """Whether two files hold the same bytes; a missing one holds none."""
    if not old_fs.exists(old):
        return False
    first, second = made_fs.open(made), old_fs.open(old)
    try:
        size_bytes = first.size()
        return size_bytes == second.size() and all(
            first.pread(CHUNK_BYTES, at) == second.pread(CHUNK_BYTES, at)
            for at in range(0, size_bytes, CHUNK_BYTES)
        )
    finally:
        first.close()
        second.close()
