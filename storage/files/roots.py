"""The root directory of a store: creating it so that its name survives a crash, and finding its backend.

Owns that step, and the one field that the store files of all backends share; must not know any other file of the
directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from storage.coding.json_file import decode_json
from storage.errors import Corrupt, UnsupportedFormat
from storage.files.atomic import TEMPORARY_SUFFIX
from storage.files.fs import FileSystem

STORE_FILE: Final = ".logserver.store.json"
UNFINISHED_STORE_FILE: Final = STORE_FILE + TEMPORARY_SUFFIX


class Recognized(NamedTuple):
    """The result of a backend's check of a directory.

    - `holds_files`: files exist that only this backend's stores have.
    - `adopted`: logserver created the store or opened it for writing before; None: it is not a store of the backend.
    """

    holds_files: bool
    adopted: bool | None


class _StoreFile(msgspec.Struct):
    backend: str


def make_root(fs: FileSystem, path: Path) -> None:
    """Create the store's directory, durably: its own name and the names of parents that were created with it."""
    missing = [folder for folder in (path, *path.parents) if not fs.exists(folder)]
    fs.make_dir(path)
    for folder in missing:
        fs.sync_dir(folder.parent)


def holds_no_store(fs: FileSystem, path: Path, *, lock: str) -> bool:
    """Return whether no file of a store exists yet.

    Files of an interrupted first start do not count (the file `lock`, an unfinished store file), nor does lost+found.
    """
    left = {lock, UNFINISHED_STORE_FILE, "lost+found"}
    return not fs.exists(path) or set(fs.list_dir(path)) <= left


def stored_backend(fs: FileSystem, path: Path) -> str | None:
    """Return the backend that the directory's `.logserver.store.json` names; None if it is missing, invalid or a
    folder.
    """
    if not fs.exists(path / STORE_FILE) or fs.is_dir(path / STORE_FILE):
        return None
    try:
        return decode_json(fs.read_bytes(path / STORE_FILE), _StoreFile).backend
    except Corrupt:
        return None


def foreign_store(fs: FileSystem, path: Path, what: str) -> UnsupportedFormat:
    """Return the error for a directory that is not a `what`; it names the backend in the store file, if any."""
    backend = stored_backend(fs, path)
    named = "" if backend is None else f": {path / STORE_FILE} names the backend {backend!r}"
    return UnsupportedFormat(f"{path} is no {what}{named}", path=str(path))
