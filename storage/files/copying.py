"""Copying a piece of one file into another, a chunk at a time.

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
    """Copy the bytes [start, end) of `source` (None: up to its end) to the front of `target`, synced.

    A name made by it is durable only after `sync_dir` of its directory. Raises IoFailure, DiskFull:
    then a part of it may be there.
    """
    reader = fs.open(source)
    try:
        left = reader.size() - start if end is None else end - start
        writer = fs.open(target, write=True, create=True)
        try:
            at = 0
            while at < left and (data := reader.pread(min(CHUNK_BYTES, left - at), start + at)):
                writer.pwrite(data, at)
                at += len(data)
            writer.datasync()
        finally:
            writer.close()
    finally:
        reader.close()
