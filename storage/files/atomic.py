"""Small files changed in one step: written to a temporary file, synced, renamed, and the directory synced.

Owns the order of those steps, and the copy of a file's range; must not know the content of a file. After a crash at any
point the file has its old bytes or its new bytes, never a mixture. A left-over NAME.tmp has no meaning and is
overwritten at the next write. The real servers write their checkpoints in the same way and under the same name.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.files.failures import is_missing
from storage.files.fs import FileSystem

TEMPORARY_SUFFIX = ".tmp"
CHUNK_BYTES: Final = 1 << 20


def atomic_write(fs: FileSystem, path: Path, data: bytes, *, sync_dir: bool = True) -> None:
    """Replace the content of `path` by `data`: durable on return, and old or new at every moment before.

    `sync_dir` False: durable only after the caller's `sync_dir` of the directory, for several files of one directory.

    Raises IoFailure or DiskFull; then the file is unchanged (after a failed `sync_dir`: old or new). The caller must
    not run two writers of one path at the same time.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        write_durably(fs, temporary, data)
        fs.rename(temporary, path)
    except IoFailure:
        with contextlib.suppress(IoFailure):
            fs.remove(temporary)
        raise
    if sync_dir:
        fs.sync_dir(path.parent)


def remove_if_present(fs: FileSystem, path: Path) -> bool:
    """Remove a file; return False if it does not exist. Durable after `sync_dir` of its directory."""
    try:
        fs.remove(path)
    except IoFailure as error:
        if is_missing(error):
            return False
        raise
    return True


def write_durably(fs: FileSystem, path: Path, data: bytes) -> None:
    """Write `data` as the whole content of the file, and sync it. The file is incomplete during the write, and its name
    is durable only after `sync_dir` of its directory.
    """
    file = fs.open(path, write=True, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.datasync()
    finally:
        file.close()


def copy_range(
    fs: FileSystem, source: Path, target: Path, *, start: int, end: int | None = None
) -> None:
    """Write the bytes [start, end) of `source` (`end` None: to its end) as the whole content of `target`, and sync it.
    A hole is not read and stays a hole.

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
