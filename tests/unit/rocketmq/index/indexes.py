"""Helpers for key index tests: small indexes, indexes with a golden store's sizes, records, and the resulting files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from storage.files import FileSystem, HandleCache, OverlayFileSystem
from storage.rocketmq.format.index_file import key_hash
from storage.rocketmq.index.dispatch_request import Dispatch, dispatch_of
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.record_pass import NO_STRING, STRING
from tests.golden.rocketmq_stores import GoldenStore

FOLDER = Path("/store/index")
MS = 1_700_000_000_000


def open_index(
    fs: FileSystem, slots: int = 16, entries: int = 11, *, directory: Path = FOLDER
) -> KeyIndex:
    index = KeyIndex(HandleCache(fs), directory, slots=slots, entries=entries, clock=lambda: MS)
    index.load()
    return index


def trusted(index: KeyIndex) -> KeyIndex:
    """Mark all files of the index as compared with a log, and return the index."""
    for file in index.index_files:
        file.is_trusted = True
    return index


def index_like(store: GoldenStore, fs: FileSystem) -> KeyIndex:
    """Return an empty index with the sizes of a golden store's index."""
    return open_index(fs, *sizes_of(store))


def sizes_of(store: GoldenStore) -> tuple[int, int]:
    """Return (slots, entries) of a golden store's index files."""
    settings = store.settings
    return int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"])


@cache
def dispatches(store: GoldenStore) -> Sequence[Dispatch]:
    return [
        dispatch_of(message, message.physical_offset, with_tags=True)
        for message in store.messages()
    ]


def record(offset: int, *keys: str, time_ms: int | None = None) -> Dispatch:
    """Return a record of 10 bytes, indexed under `keys`; by default the store times are one second apart."""
    time_ms = MS + offset * 100 if time_ms is None else time_ms
    return Dispatch("t", 0, offset // 10, offset, 10, 0, time_ms, 0, keys)


def records(count: int, *, keys: int = 2, start: int = 0) -> list[Dispatch]:
    """Return records that each have one unique key and `keys` - 1 keys shared with other records."""
    return [
        record(n * 10, f"own {n}", *(f"shared {n % (k + 2)}" for k in range(keys - 1)))
        for n in range(start, start + count)
    ]


def strings_of(dispatches: Iterable[Dispatch]) -> bytes:
    """Return the strings of records, as the pass over the log makes them."""
    return b"".join(
        STRING.pack(hashed, dispatch.physical_offset, dispatch.store_timestamp_ms)
        for dispatch in dispatches
        for hashed in ([key_hash(key) for key in dispatch.keys] or [NO_STRING])
    )


def put_all(index: KeyIndex, dispatches: Iterable[Dispatch]) -> None:
    """Put the strings of records in one call."""
    index.put_strings(strings_of(dispatches))


def contents(fs: OverlayFileSystem) -> list[bytes]:
    """Return the bytes of each index file, oldest file first."""
    return [fs.read_bytes(FOLDER / name) for name in fs.list_dir(FOLDER)]


def made_of(dispatches: Sequence[Dispatch], *, slots: int = 16, entries: int = 11) -> list[bytes]:
    """Return the index files that result from putting these records in one call."""
    fs = OverlayFileSystem()
    index = open_index(fs, slots, entries)
    put_all(index, dispatches)
    index.sync()
    return contents(fs)
