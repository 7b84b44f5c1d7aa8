"""Copying a range of a file to another file, in chunks; a hole is not read and stays a hole.

Owns the loop; must not know the content of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.files.fs import FileSystem

CHUNK_BYTES: Final = 1 << 20


def copy_range(
    fs: FileSystem, source: Path, target: Path, *, start: int, end: int | None = None
) -> None:
    """Write the bytes [start, end) of `source` (`end` None: to its end) as the whole content of `target`, and sync it.

    If `target` was created, its name is durable only after `sync_dir` of its directory. Raises IoFailure, DiskFull;
    then `target` may be incomplete.
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
