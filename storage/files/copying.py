"""Copying a piece of one file into another, a chunk at a time; a hole is not read and stays a hole.

Owns the loop; must not know what is in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.files.fs import FileSystem

CHUNK_BYTES: Final = 1 << 20


def copy_range(
    fs: FileSystem, source: Path, target: Path, *, start: int, end: int | None = None
) -> None:
    """Make `target` hold the bytes [start, end) of `source` (None: up to its end), synced.

    A name made by it is durable only after `sync_dir` of its directory. Raises IoFailure, DiskFull:
    then a part of it may be there.
    """
    reader = fs.open(source)
    try:
        left = reader.size() - start if end is None else end - start
        writer = fs.open(target, write=True, create=True)
        try:
            writer.truncate(0)
            at = 0
            while at < left:
                hole_end = min(reader.next_data(start + at) - start, left)
                if hole_end > at:
                    at = hole_end
                    writer.truncate(at)
                    continue
                data = reader.pread(min(CHUNK_BYTES, left - at), start + at)
                if not data:
                    break
                writer.pwrite(data, at)
                at += len(data)
            writer.datasync()
        finally:
            writer.close()
    finally:
        reader.close()
