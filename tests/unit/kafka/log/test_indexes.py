"""Sparse indexes: which batches get an entry, and the form of the entries in memory and in the files."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage.errors import DataError
from storage.files import HandleCache, OverlayFileSystem
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.index.indexes import (
    IndexBuilder,
    SparseIndex,
    TransactionIndex,
    rebuild_indexes,
)
from tests.unit.kafka.log.batches import data_batch, header_of

PATH = Path("/0.index")


@pytest.fixture
def files() -> Iterator[HandleCache]:
    cache = HandleCache(OverlayFileSystem())
    yield cache
    cache.close()


def nothing() -> Sequence[tuple[int, int]]:
    raise AssertionError("the index must not be rebuilt")


def an_index(files: HandleCache, max_bytes: int = 80) -> SparseIndex:
    index = SparseIndex(files, PATH, offset_index, max_bytes=max_bytes, remake=nothing)
    files.fs.open(PATH, create=True).close()
    index.hold(())
    return index


# ---- which batches get an entry --------------------------------------------------------------------------------------

SIZE = len(data_batch())


@pytest.mark.parametrize(
    ("interval", "indexed"),
    [
        (0, [1, 2, 3, 4, 5]),
        (SIZE - 1, [1, 2, 3, 4, 5]),
        (SIZE, [2, 4]),
        (2 * SIZE - 1, [2, 4]),
        (2 * SIZE, [3]),
        (10 * SIZE, []),
    ],
)
def test_an_entry_comes_when_more_than_the_interval_went_by(
    interval: int, indexed: list[int]
) -> None:
    builder = IndexBuilder(interval)
    added = [builder.add(header_of(data_batch(n))) for n in range(6)]
    assert [n for n, is_indexed in enumerate(added) if is_indexed] == indexed


def test_entries_are_relative_last_offsets_and_positions() -> None:
    batches = [data_batch(100 + 3 * n, times_ms=(n, 10 - n, 7)) for n in range(4)]
    positions = [0, SIZE, 2 * SIZE, 3 * SIZE]
    headers = list(zip(positions, map(header_of, batches), strict=True))
    rebuilt = rebuild_indexes(headers, base_offset=100, interval_bytes=0)
    assert rebuilt.offsets == [(5, SIZE), (8, 2 * SIZE), (11, 3 * SIZE)]
    assert rebuilt.times == [(10, 2)]
    assert (rebuilt.max_timestamp_ms, rebuilt.max_timestamp_offset) == (10, 102)


def test_the_time_index_takes_rising_maxima_and_one_at_the_end() -> None:
    times = [5, 3, 9, 9, 2, 20]
    headers = [(n * SIZE, header_of(data_batch(n, times_ms=(t,)))) for n, t in enumerate(times)]
    assert rebuild_indexes(headers, base_offset=0, interval_bytes=0).times == [
        (5, 0),
        (9, 2),
        (20, 5),
    ]
    assert rebuild_indexes(headers, base_offset=0, interval_bytes=9999).times == [(20, 5)]


def test_no_batches_and_no_times_make_no_entries() -> None:
    assert rebuild_indexes([], base_offset=0, interval_bytes=0)[:2] == ([], [])
    headers = [(0, header_of(data_batch(0, times_ms=(-1,))))]
    assert rebuild_indexes(headers, base_offset=0, interval_bytes=0)[:2] == ([], [])


# ---- the files -------------------------------------------------------------------------------------------------------


def in_file(files: HandleCache) -> list[tuple[int, int]]:
    """Return the entries that the file has."""
    return offset_index.leading_entries(files.fs.read_bytes(PATH))


def test_the_file_is_extended_before_appends_and_cut_at_the_end(files: HandleCache) -> None:
    index = an_index(files)
    index.prepare()
    assert files.fs.size(PATH) == 80
    index.append(1, 100)
    index.append(4, 300)
    index.write(2)
    assert len(in_file(files)) == 2
    assert files.fs.size(PATH) == 80
    index.trim()
    assert offset_index.decode_entries(files.fs.read_bytes(PATH)) == [(1, 100), (4, 300)]
    index.prepare()
    index.append(9, 700)
    index.write(3)
    assert files.fs.size(PATH) == 80
    assert len(in_file(files)) == 3


def test_entries_wait_until_they_are_written(files: HandleCache) -> None:
    index = an_index(files)
    index.prepare()
    seen = []
    for n in range(1, 6):
        index.append(n, n * 10)
    assert index.floor(4) == (4, 40)
    for count in (0, 2, 1, 2, 4):
        index.write(count)
        seen.append(len(in_file(files)))
    assert seen == [0, 2, 2, 2, 4]
    index.trim()
    assert in_file(files) == [(n, n * 10) for n in range(1, 6)] == list(index.entries())
    assert files.fs.size(PATH) == 40


def test_no_descriptor_stays_open(files: HandleCache) -> None:
    index = an_index(files)
    index.prepare()
    index.append(1, 10)
    index.write(1)
    index.trim()
    assert SparseIndex(files, PATH, offset_index, max_bytes=80, remake=nothing).entries()
    assert files.open_files == 0


@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_file_that_was_removed_is_written_again_with_all_entries(
    files: HandleCache, written: int
) -> None:
    index = an_index(files)
    index.prepare()
    for n in range(1, 4):
        index.append(n, n * 10)
    index.write(written)
    files.fs.remove(PATH)
    index.append(4, 40)
    index.write(4)
    assert in_file(files) == [(n, n * 10) for n in range(1, 5)]
    files.fs.remove(PATH)
    index.trim()
    assert offset_index.decode_entries(files.fs.read_bytes(PATH)) == list(index.entries())


def test_max_bytes_is_cut_to_whole_entries(files: HandleCache) -> None:
    for size, count in ((80, 10), (87, 10), (88, 11)):
        index = an_index(files, size)
        index.prepare()
        assert (index.max_entries, files.fs.size(PATH)) == (count, count * 8)


@pytest.mark.parametrize(
    ("key", "found"), [(0, None), (1, (1, 100)), (3, (1, 100)), (4, (4, 300)), (99, (9, 700))]
)
def test_floor(files: HandleCache, key: int, found: tuple[int, int] | None) -> None:
    index = an_index(files)
    for entry in ((1, 100), (4, 300), (9, 700)):
        index.append(*entry)
    assert index.floor(key) == found
    assert (len(index), index.last()) == (3, (9, 700))
    assert index.entries() == [(1, 100), (4, 300), (9, 700)]


def test_an_index_that_is_not_used_is_not_touched(files: HandleCache) -> None:
    files.fs.open(PATH, create=True).truncate(80)
    SparseIndex(files, PATH, offset_index, max_bytes=80, remake=nothing).trim()
    assert files.fs.size(PATH) == 80


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x00\x00\x05\x00\x00\x00\x09\x00\x00\x00\x04\x00\x00\x00\x10",
        b"\x80\x00\x00\x05\x00\x00\x00\x09",
    ],
)
def test_a_damaged_file_is_made_anew(files: HandleCache, content: bytes) -> None:
    file = files.fs.open(PATH, create=True)
    file.pwrite(content, 0)
    index = SparseIndex(files, PATH, offset_index, max_bytes=80, remake=lambda: [(3, 30)])
    assert index.entries() == [(3, 30)]


def test_what_a_crash_leaves_of_a_preallocated_index_is_read_without_its_zeros(
    files: HandleCache,
) -> None:
    file = files.fs.open(PATH, create=True)
    file.pwrite(offset_index.encode_entry(2, 90), 0)
    file.truncate(800)
    index = SparseIndex(files, PATH, offset_index, max_bytes=800, remake=nothing)
    assert index.entries() == [(2, 90)]


def test_time_entries_keep_64_bits(files: HandleCache) -> None:
    files.fs.open(PATH, create=True).close()
    index = SparseIndex(files, PATH, time_index, max_bytes=120, remake=nothing)
    index.hold(())
    index.append(1 << 62, 2**31 - 1)
    index.trim()
    assert time_index.decode_entries(files.fs.read_bytes(PATH)) == [(1 << 62, 2**31 - 1)]


def test_a_damaged_transaction_index_names_its_file(files: HandleCache) -> None:
    """A transaction index cannot be rebuilt from the log, so the caller gets an error that names the bad file."""
    with files.borrow(PATH, write=True, create=True) as file:
        file.pwrite(b"\xff" * 34, 0)
    with pytest.raises(DataError) as refused:
        TransactionIndex(files, PATH, exists=True).entries()
    assert refused.value.facts()["path"] == str(PATH)


def test_a_reader_never_finds_a_key_without_its_value(files: HandleCache) -> None:
    """Readers take no lock: at each moment of an append, the value of an entry exists before its key."""
    index = an_index(files)
    seen: list[tuple[int, int]] = []

    class Watched(array):  # type: ignore[type-arg]  # array is not generic at run time
        """An array that runs a reader before and after each change."""

        def append(self, value: int) -> None:
            look()
            super().append(value)
            look()

    def look() -> None:
        held = index.held
        assert held is not None
        keys, values = held
        seen.append((len(keys), len(values)))
        assert index.last() is None or index.floor(1 << 30) == index.last()

    index.hold([(1, 10)])
    assert index._keys is not None
    index._keys, index._values = Watched("i", index._keys), Watched("q", index._values)
    for number in range(2, 6):
        index.append(number, number * 10)
    assert len(seen) == 16
    assert all(keys <= values for keys, values in seen)
