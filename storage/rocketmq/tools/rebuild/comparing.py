"""Comparison of two files by content. A range that is a hole in both files is not read.

Owns that comparison; must not know the file formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.files import File, FileSystem

CHUNK_BYTES: Final = 1 << 20


def is_same(made_fs: FileSystem, made: Path, old_fs: FileSystem, old: Path) -> bool:
    """Return whether two files hold the same bytes. A missing `old` is never the same."""
    if not old_fs.exists(old):
        return False
    first, second = made_fs.open(made), old_fs.open(old)
    try:
        return first.size() == second.size() and _is_same_content(first, second)
    finally:
        first.close()
        second.close()


def _is_same_content(first: File, second: File) -> bool:
    position, end = 0, first.size()
    while True:
        position = min(first.next_data(position), second.next_data(position))
        if position >= end:
            return True
        if first.pread(CHUNK_BYTES, position) != second.pread(CHUNK_BYTES, position):
            return False
        position += CHUNK_BYTES
