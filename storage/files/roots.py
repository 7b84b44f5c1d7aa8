"""The directory that a store lives in: made so that its name outlives a crash, and whose it is.

Owns that step, and the one fact that every backend's store file tells alike; must not know what else
lies there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from storage.coding.own_json import decode_json
from storage.errors import Corrupt, UnsupportedFormat
from storage.files.atomic import TEMPORARY_SUFFIX
from storage.files.fs import FileSystem

STORE_FILE: Final = ".logserver.store.json"
UNFINISHED_STORE_FILE: Final = STORE_FILE + TEMPORARY_SUFFIX


class Recognized(NamedTuple):
    """What a backend sees in a directory: whether files are there that only its stores have, and whether the store is
    one of ours (made by us, or taken over before); None: it is no store of the backend.
    """

    holds_files: bool
    adopted: bool | None


class _StoreFile(msgspec.Struct):
    backend: str


def make_root(fs: FileSystem, path: Path) -> None:
    """Make the store's directory, durably: its own name and those of parents made on the way."""
    missing = [folder for folder in (path, *path.parents) if not fs.exists(folder)]
    fs.make_dir(path)
    for folder in missing:
        fs.sync_dir(folder.parent)


def holds_no_store(fs: FileSystem, path: Path, *, lock: str) -> bool:
    """Whether nothing of a store is there yet; what an interrupted first start left does not count: the file `lock`
    and an unfinished store file.
    """
    left = {lock, UNFINISHED_STORE_FILE, "lost+found"}
    return not fs.exists(path) or set(fs.list_dir(path)) <= left


def stored_backend(fs: FileSystem, path: Path) -> str | None:
    """Which backend's store this is by its `.logserver.store.json`; None without one, or when it
    cannot be understood, or is a folder.
    """
    if not fs.exists(path / STORE_FILE) or fs.is_dir(path / STORE_FILE):
        return None
    try:
        return decode_json(fs.read_bytes(path / STORE_FILE), _StoreFile).backend
    except Corrupt:
        return None


def foreign_store(fs: FileSystem, path: Path, what: str) -> UnsupportedFormat:
    """The error for a directory that is no `what`; it names the backend that the store file tells, if one does."""
    backend = stored_backend(fs, path)
    named = "" if backend is None else f": {path / STORE_FILE} names the backend {backend!r}"
    return UnsupportedFormat(f"{path} is no {what}{named}", path=str(path))
