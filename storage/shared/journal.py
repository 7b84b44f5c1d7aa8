"""A journal next to a store: small entries that have no place in the formats of the real servers.

Owns the journal's two files and which of their entries count after a crash; must not know the meaning of an entry.
Entries are appended. When a generation is full, the previous generation is dropped, so that the files stay small.
Losing the journal loses no record.

    .logserver.NAME        the current generation
    .logserver.NAME.old    the previous generation

    u32 size of the payload, 1 at least (big-endian)
    u32 CRC-32C of the payload
    payload
    ... the next entry; an incomplete entry or a wrong CRC ends the generation

A crash can only tear the end; synced entries are before it. An unfinished rotation leaves the entries under one of the
two names. An unfinished `replace` leaves the old entries, or the old entries followed by the new ones. So a reader must
be able to apply an entry twice.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from storage.coding.checksum import crc32c
from storage.contract import LogStore
from storage.errors import IoFailure, StoreReadOnly
from storage.files import (
    Fence,
    File,
    FileSystem,
    OverlayFileSystem,
    atomic_write,
    remove_if_present,
)

PREFIX: Final = ".logserver."
OLD: Final = ".old"

_HEAD: Final = struct.Struct(">II")


def encode_entries(entries: Sequence[bytes]) -> bytes:
    """Return the entries as they are stored in a file."""
    return b"".join(
        part for entry in entries for part in (_HEAD.pack(len(entry), crc32c(entry)), entry)
    )


def decode_entries(data: bytes) -> tuple[list[bytes], int]:
    """Return the complete entries at the beginning of `data`, and the position after the last of them."""
    entries: list[bytes] = []
    at = 0
    while at + _HEAD.size < len(data):
        size, crc = _HEAD.unpack_from(data, at)
        begin = at + _HEAD.size
        entry = data[begin : begin + size]
        if not size or len(entry) < size or crc32c(entry) != crc:
            break
        entries.append(entry)
        at = begin + size
    return entries, at


def read_entry(file: File, position: int) -> tuple[bytes | None, int]:
    """Return the entry at a position of a file, and the position after it; None and `position` if it is cut off or
    damaged.
    """
    head = file.pread(_HEAD.size, position)
    if len(head) < _HEAD.size:
        return None, position
    size, _ = _HEAD.unpack(head)
    if position + _HEAD.size + size > file.size():
        return None, position
    entries, taken = decode_entries(head + file.pread(size, position + _HEAD.size))
    return (entries[0] if entries else None), position + taken


@runtime_checkable
class OnDisk(Protocol):
    """A store with a directory."""

    fs: FileSystem
    path: Path


def open_journal(store: LogStore, name: str, *, generation_entries: int) -> Journal:
    """Open the journal of this name next to an open store; its first entry creates the file. Open a journal only once.

    It keeps the newest `generation_entries` entries, and at most twice as many. A store without files has its journal
    in memory. Raises StoreReadOnly.
    """
    if not isinstance(store, OnDisk):
        memory = OverlayFileSystem()
        return Journal(memory, Path("/"), name, generation_entries=generation_entries)
    if store.read_only:
        raise StoreReadOnly(f"{store.path} is open read-only", path=str(store.path))
    return Journal(store.fs, store.path, name, generation_entries=generation_entries)


class Journal:
    """Small entries in order, opened by `open_journal`. Thread-safe.

    The entries may name records that a crash has lost. After a failed write or sync the journal accepts no more
    entries; the store is not affected.
    """

    def __init__(self, fs: FileSystem, path: Path, name: str, *, generation_entries: int) -> None:
        self._fs = fs
        self._path = path / (PREFIX + name)
        self._old = self._path.with_name(self._path.name + OLD)
        self._fence = Fence(self._path)
        self._limit = generation_entries
        self._lock = threading.Lock()
        self._file: File | None = None
        self._dirty = fs.exists(self._path)  # a killed process may not have synced it
        entries, self._end = self._load(self._path)
        self._count = len(entries)
        self._read = [*self._load(self._old)[0], *entries]

    def _load(self, path: Path) -> tuple[list[bytes], int]:
        return decode_entries(self._fs.read_bytes(path)) if self._fs.exists(path) else ([], 0)

    def take(self) -> Sequence[bytes]:
        """Return the entries that existed at opening, oldest first; a second call returns none. After a crash in
        `replace` an entry may be contained twice.
        """
        entries, self._read = self._read, []
        return entries

    @property
    def is_empty(self) -> bool:
        """True if the files contain no entry."""
        return not self._count and not self._fs.exists(self._old)

    def append(self, entries: Sequence[bytes], *, sync: bool) -> None:
        """Append entries: written to the operating system on return, and durable with `sync`. An entry has at least one
        byte.

        The oldest entries may be dropped to keep the journal small. Raises DiskFull (then none of the entries is
        stored), StoreFenced.
        """
        data = encode_entries(entries)
        with self._lock, self._fence.guarding():
            if self._count >= self._limit:
                self._rotate()
            file = self._file or self._open()
            try:
                file.pwrite(data, self._end)
            except IoFailure:
                with suppress(IoFailure):
                    file.truncate(self._end)
                raise
            self._end += len(data)
            self._count += len(entries)
            self._dirty = True
            if sync:
                self._sync()

    def flush(self) -> None:
        """Make all entries durable, also entries of earlier processes. Raises StoreFenced."""
        with self._lock:
            if self._dirty:
                with self._fence.guarding():
                    self._sync()

    def replace(self, entries: Sequence[bytes]) -> None:
        """Replace all entries; durable on return. After a crash the journal contains the old entries, the new entries,
        or the old entries followed by the new ones.
        """
        data = encode_entries(entries)
        with self._lock, self._fence.guarding():
            self._let_go()
            atomic_write(self._fs, self._path, data)
            self._end, self._count, self._dirty = len(data), len(entries), False
            if remove_if_present(self._fs, self._old):
                self._fs.sync_dir(self._path.parent)

    def close(self) -> None:
        """Close the file, without a sync. Call it before the store is closed."""
        with self._lock:
            self._let_go()

    def _open(self) -> File:
        """Open and return the file; its name is durable on return, also if a killed process created it."""
        file = self._file = self._fs.open(self._path, write=True, create=True)
        self._fs.sync_dir(self._path.parent)
        if file.size() > self._end:
            file.truncate(self._end)
        return file

    def _sync(self) -> None:
        if self._dirty:
            file = self._file or self._open()
            file.datasync()
            self._dirty = False

    def _rotate(self) -> None:
        self._sync()
        self._let_go()
        self._fs.rename(self._path, self._old)
        self._fs.sync_dir(self._path.parent)
        self._end = self._count = 0

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
