"""Fuzz targets: a whole small store with arbitrary edits of its files, opened, read, verified, dumped and repaired.

An input is a sequence of edits, each encoded as

    position  bytes  field     note
    0         1      file      index among the store's files, in name order
    1         2      position  in the file, modulo its length plus one
    3         1      what      0 write, 1 cut the file here, 2 zeros from here on, 3 remove it
    4         1      length    of the written bytes
    5         n      bytes

Guarantee: the store opens or raises a StorageError, and so does every later call on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from storage import LogStore, Record
from storage.errors import StorageError
from storage.files import FileSystem, OverlayFileSystem
from tests.robustness.fuzz.target import Check, Target
from tests.robustness.fuzz.tiny import (
    BACKENDS,
    ROOT,
    T0,
    TinyStore,
    look_up,
    overwrite,
    read_all,
    tiny,
)

WRITE, CUT, ZEROS, REMOVE = range(4)
HEAD_BYTES = 5
MAX_EDITS = 8
SEED_STEP = 90  # bytes between the positions of the seeds
QUICK_TRIES = 20


class Edit(NamedTuple):
    """One edit of one file."""

    file: int
    position: int
    what: int
    data: bytes

    def encode(self) -> bytes:
        """Return the edit as encoded in an input."""
        head = (self.file, *self.position.to_bytes(2), self.what, len(self.data))
        return bytes(head) + self.data


def edits_of(data: bytes) -> Iterator[Edit]:
    """Yield the edits in an input."""
    at = 0
    for _ in range(MAX_EDITS):
        if at + HEAD_BYTES > len(data):
            return
        file, high, low, what, length = data[at : at + HEAD_BYTES]
        at += HEAD_BYTES
        yield Edit(file, high << 8 | low, what % 4, data[at : at + length])
        at += length


def apply(edit: Edit, fs: OverlayFileSystem, names: Sequence[str]) -> None:
    """Apply an edit, unless the file no longer exists."""
    path = ROOT / names[edit.file % len(names)]
    if not fs.exists(path):
        return
    size = fs.size(path)
    position = edit.position % (size + 1)
    if edit.what == REMOVE:
        fs.remove(path)
    elif edit.what == WRITE:
        overwrite(fs, path, position, edit.data)
    else:
        _cut(fs, path, position, size if edit.what == ZEROS else position)


def _cut(fs: OverlayFileSystem, path: Path, position: int, size_bytes: int) -> None:
    file = fs.open(path, write=True)
    file.truncate(position)
    file.truncate(size_bytes)
    file.close()


def check_store(backend: str, clean: bool, data: bytes) -> None:
    """Read the damaged store in every way, then repair it, write to it and open it again."""
    store = tiny(backend, clean=clean)
    names = list(store.files())
    disk = OverlayFileSystem(store.disk)
    for edit in edits_of(data):
        apply(edit, disk, names)
    with suppress(StorageError):
        store.verified(disk)
    with suppress(StorageError):
        store.dump_all(disk)
    _open(store, disk, read_only=True)
    _open(store, OverlayFileSystem(disk))
    if _open(store, disk, accept_loss=True):
        assert _open(store, disk), "what a start has mended, the next one opens"


def _open(store: TinyStore, fs: FileSystem, **how: bool) -> bool:
    """Return whether the store opened. If so, read everything in it and, unless it is read-only, append a record."""
    try:
        opened = store.open(fs, **how)
    except StorageError:
        return False
    with suppress(StorageError):
        _use(opened)
    with suppress(StorageError):
        opened.close()
    return True


def _use(opened: LogStore) -> None:
    list(read_all(opened))
    if opened.read_only:
        look_up(opened)
    elif T0.topic in opened.topics():
        result = opened.append(T0, [Record(b"k1", b"afterwards")])
        opened.flush()
        page = opened.read(T0, result.base_offset)
        assert page.records[0].value == b"afterwards"


def seeds(backend: str, clean: bool) -> Sequence[bytes]:
    """Return edits at positions all over the store, one edit each."""
    files = tiny(backend, clean=clean).files()
    found = [
        Edit(number, position, WRITE, bytes([data[position] ^ 0x11])).encode()
        for number, data in enumerate(files.values())
        for position in range(0, len(data.rstrip(b"\0")), SEED_STEP)
    ]
    return [b"", *found]


def _target(backend: str) -> Target:
    checks = [
        Check(
            f"{backend}-store-{'clean' if clean else 'killed'}",
            partial(seeds, backend, clean),
            partial(check_store, backend, clean),
            QUICK_TRIES,
        )
        for clean in (True, False)
    ]
    return Target(f"{backend}-store", checks, share=6)


STORES = tuple(map(_target, BACKENDS))
