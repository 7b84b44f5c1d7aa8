"""Staged files: the files that the tasks of one write leave next to a store, until all of them are appended at once.

Owns the folder's path and the files' form; must not open a store, nor know the meaning of a run's bytes. A task writes
its own file, on any machine; the committing process reads the files run by run.

    DIR.staged-ID/NAME     next to the store DIR, one file per task

    u32 size of the payload (big-endian)
    u32 CRC-32C of the payload
    payload, MessagePack: [topic, partition, records, data]; data is encoded in the backend's way
    ... the next run, to the end of the file
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from storage.errors import Corrupt, StorageError
from storage.files import FileSystem
from storage.model import TopicPartition
from storage.shared.journal import encode_entries, read_entry

STAGED: Final = ".staged-"


class Run(msgspec.Struct, array_like=True, frozen=True):
    """Encoded records for one partition, appended in one piece."""

    topic: str
    partition: int
    records: int
    data: bytes


class StagedPart(msgspec.Struct, array_like=True):
    """The content of a staged file for one partition. `largest_bytes`: the size of its largest run."""

    topic: str
    partition: int
    records: int = 0
    largest_bytes: int = 0


class StagedFile(msgspec.Struct, frozen=True):
    """A finished file, by its name in the folder; small, and picklable."""

    name: str
    size_bytes: int
    parts: list[StagedPart]


def staging_folder(store: Path, write_id: str) -> Path:
    """Return the folder for the files of a write's tasks: next to the store, on the same file system."""
    store = store.resolve()
    return store.with_name(f"{store.name}{STAGED}{write_id}")


def other_folders(fs: FileSystem, store: Path) -> list[Path]:
    """Return all staging folders next to a store."""
    store = store.resolve()
    prefix = store.name + STAGED
    if not fs.exists(store.parent):
        return []
    return [store.with_name(name) for name in fs.list_dir(store.parent) if name.startswith(prefix)]


class StagedWriter:
    """A writer of one staged file, for one thread. The file counts once `finish` has returned its description."""

    def __init__(self, fs: FileSystem, folder: Path, name: str) -> None:
        self._fs = fs
        self._path = folder / name
        self._parts: dict[TopicPartition, StagedPart] = {}
        self._end = 0
        fs.make_dir(folder)
        self._file = fs.open(self._path, write=True, create=True)

    def add(self, run: Run) -> None:
        """Append a run to the file. Raises DiskFull."""
        data = encode_entries([_ENCODE(run)])
        self._file.pwrite(data, self._end)
        self._end += len(data)
        address = TopicPartition(run.topic, run.partition)
        part = self._parts.setdefault(address, StagedPart(*address))
        part.records += run.records
        part.largest_bytes = max(part.largest_bytes, len(run.data))

    def finish(self) -> StagedFile:
        """Make the file durable and return its description."""
        self._file.datasync()
        self._file.close()
        self._fs.sync_dir(self._path.parent)
        return StagedFile(self._path.name, self._end, list(self._parts.values()))

    def discard(self) -> None:
        """Close the file and remove it, if possible."""
        self._file.close()
        with suppress(StorageError):
            self._fs.remove(self._path)


def read_runs(fs: FileSystem, path: Path, size_bytes: int) -> Iterator[Run]:
    """Yield the runs of a finished file, one at a time. Raises Corrupt, IoFailure."""
    file = fs.open(path)
    try:
        position = 0
        while position < size_bytes:
            payload, following = read_entry(file, position)
            if payload is None:
                raise Corrupt(
                    f"{path}: the run at {position} is damaged", path=str(path), position=position
                )
            yield _DECODE(payload)
            position = following
    finally:
        file.close()


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Run).decode
