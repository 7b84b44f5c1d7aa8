"""Small files changed in one step: written beside, synced, renamed, and the directory synced.

Owns the order of those steps; must not know what is in the file. After a crash at any point the file has its old bytes
or its new ones, never a mixture; a left-over NAME.tmp means nothing and is overwritten next time (the reference writes
its checkpoints the same way under the same name).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from storage.errors import IoFailure
from storage.files.failures import is_missing
from storage.files.fs import FileSystem

TEMPORARY_SUFFIX = ".tmp"


def atomic_write(fs: FileSystem, path: Path, data: bytes) -> None:
    """Make `path` hold `data`: durable on return, and old or new at every moment before.

    Raises IoFailure or DiskFull; then the file is as it was (after a failed `sync_dir`: old or new). Two writers of one
    path at the same time must be kept apart by the caller.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        write_durably(fs, temporary, data)
        fs.rename(temporary, path)
    except IoFailure:
        with contextlib.suppress(IoFailure):
            fs.remove(temporary)
        raise
    fs.sync_dir(path.parent)


def remove_if_present(fs: FileSystem, path: Path) -> bool:
    """Remove a file; False when there was none. Durable after `sync_dir` of its directory."""
    try:
        fs.remove(path)
    except IoFailure as error:
        if is_missing(error):
            return False
        raise
    return True


def write_durably(fs: FileSystem, path: Path, data: bytes) -> None:
    """Make the file hold `data`, synced, but not whole at every moment; its name is durable only
    after `sync_dir` of its directory.
    """
    file = fs.open(path, write=True, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.datasync()
    finally:
        file.close()
