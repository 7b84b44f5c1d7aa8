"""The numbers of slots and entries of index files, inferred from the files alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage.files import OverlayFileSystem, RealFileSystem
from storage.rocketmq.format.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
)
from storage.rocketmq.index.sizes import infer_sizes
from tests.golden.rocketmq_stores import GoldenStore, all_stores, by_id, put
from tests.unit.rocketmq.index.indexes import (
    FOLDER,
    made_of,
    open_index,
    put_all,
    record,
    records,
    sizes_of,
)

stores = pytest.mark.parametrize("store", all_stores(), ids=by_id)


@stores
def test_sizes_are_told_by_the_files(store: GoldenStore) -> None:
    assert infer_sizes(RealFileSystem(), store.root / "index") == sizes_of(store)


@stores
def test_sizes_are_told_by_any_one_file(store: GoldenStore) -> None:
    for path in (store.root / "index").iterdir():
        fs = OverlayFileSystem()
        put(fs, FOLDER / path.name, path.read_bytes())
        assert infer_sizes(fs, FOLDER) == sizes_of(store)


@pytest.mark.parametrize(("slots", "entries"), [(1, 2), (5, 100), (100, 5), (16, 11), (997, 1000)])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_sizes_of_ours_are_told(slots: int, entries: int, count: int) -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, slots=slots, entries=entries)
    put_all(index, records(count))
    index.sync()
    assert infer_sizes(fs, FOLDER) == (slots, entries)


def test_the_default_sizes_are_told() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, slots=DEFAULT_SLOTS, entries=DEFAULT_ENTRIES)
    put_all(index, records(5))
    index.sync()
    assert infer_sizes(fs, FOLDER) == (DEFAULT_SLOTS, DEFAULT_ENTRIES)
    assert list(index.candidates("own 3")) == [30]


def no_folder(fs: OverlayFileSystem) -> None:
    """Create nothing."""


def no_entries(fs: OverlayFileSystem) -> None:
    """Create a file without entries."""
    index = open_index(fs)
    put_all(index, [record(0)])
    index.sync()


def two_lengths(fs: OverlayFileSystem) -> None:
    """Create files of different sizes."""
    put(fs, FOLDER / "20000101000000000", made_of(records(3), slots=8)[0])
    put(fs, FOLDER / "20000101000000001", made_of(records(3), slots=9)[0])


def no_index(fs: OverlayFileSystem) -> None:
    """Create a file with an index file's name and random content, and an unrelated file."""
    put(fs, FOLDER / "20000101000000000", random.Random(1).randbytes(1000))
    put(fs, FOLDER / "notes", b"mine")


@pytest.mark.parametrize("make", [no_folder, no_entries, two_lengths, no_index])
def test_sizes_that_cannot_be_told(make: Callable[[OverlayFileSystem], None]) -> None:
    fs = OverlayFileSystem()
    make(fs)
    assert infer_sizes(fs, FOLDER) is None
