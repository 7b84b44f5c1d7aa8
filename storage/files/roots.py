"""The directory that a store lives in: made so that its name outlives a crash.

Owns that one step; must not know what lies in it.
"""

from __future__ import annotations

from pathlib import Path

from storage.files.fs import FileSystem


def make_root(fs: FileSystem, path: Path) -> None:
    """Make the store's directory, durably: its own name and those of parents made on the way."""
    missing = [folder for folder in (path, *path.parents) if not fs.exists(folder)]
    fs.make_dir(path)
    for folder in missing:
        fs.sync_dir(folder.parent)
