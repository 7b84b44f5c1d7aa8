"""The interface to staged appends: for many writers that fill one store at once, and one process that commits.

Owns the calls that the pipeline makes; must not know the rules (`staged_append`) or the files (`staged_files`).

    open_staged(folder, name)       each task: writes its runs, encoded by `staged_form(backend).encoder()`
    append_staged(store, write)     the committing process: into an existing store
    make_staged(backend, path, ..)  the committing process: as a new store, which appears at once or not at all
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.contract import Clock, LogStore, StoreOptions
from storage.errors import StorageError
from storage.files import FileSystem, RealFileSystem, make_root
from storage.registry import open_store, staged_form, wall_clock_ms
from storage.shared import staged_append
from storage.shared.atomic_store import new_store
from storage.shared.staged_append import StagedWrite
from storage.shared.staged_files import StagedWriter, other_folders

MADE: Final = "store"


def open_staged(folder: Path, name: str, *, fs: FileSystem | None = None) -> StagedWriter:
    """Create a new staged file, and its folder. Use each name once, also in a task that is run again."""
    return StagedWriter(fs or RealFileSystem(), folder, name)


def append_staged(store: LogStore, write: StagedWrite, *, clock: Clock = wall_clock_ms) -> bool:
    """Append a write to an open store; durable on return. See staged_append.append_staged."""
    form = staged_form(store.capabilities.backend, clock)
    return staged_append.append_staged(store, form, write)


def make_staged(
    backend: str,
    path: Path,
    write: StagedWrite,
    *,
    options: StoreOptions | None = None,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> None:
    """Make a new store from a write: on return it exists under its name and is durable; on an error it does not exist.

    Raises InvalidArgument unless `path` is missing or empty, and the errors of an append.
    """
    fs = fs or RealFileSystem()
    make_root(fs, write.folder)
    made = write.folder / MADE
    if fs.exists(made):
        fs.remove_tree(made)  # left by a commit that was killed
    with new_store(fs, path, sources=(), now_ms=clock(), made=made) as place:
        store = open_store(backend, place, options, fs=fs, clock=clock)
        try:
            staged_append.fill_new(store, staged_form(backend, clock), write)
        finally:
            store.close()


def remove_staged(folder: Path, *, fs: FileSystem | None = None) -> None:
    """Remove the folder of a write that is done or abandoned; files that cannot be removed stay."""
    try:
        (fs or RealFileSystem()).remove_tree(folder)
    except StorageError:
        return


def is_pending(store: Path, folder: Path, *, fs: FileSystem | None = None) -> bool:
    """Return whether the store still needs the files of this folder."""
    return staged_append.is_pending(fs or RealFileSystem(), store, folder)


def staged_folders(store: Path, *, fs: FileSystem | None = None) -> list[tuple[Path, int]]:
    """Return all staging folders next to a store, each with its last change in milliseconds."""
    fs = fs or RealFileSystem()
    return [(folder, fs.mtime_ms(folder)) for folder in other_folders(fs, store)]
