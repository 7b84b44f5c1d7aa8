"""Files of the key index: removed, of another length, damaged, or on a disk that fills up."""

from __future__ import annotations

import random

import pytest

from storage.errors import DiskFull
from storage.files import HandleCache, OverlayFileSystem
from storage.rocketmq.format.index_file import (
    HEADER_SIZE,
    file_size,
)
from storage.rocketmq.format.names import index_name
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import DoubtedIndex
from tests.golden.rocketmq_stores import put
from tests.robustness.crash.faulty import FaultyFileSystem, at_change, disk_full
from tests.unit.rocketmq.index.indexes import (
    FOLDER,
    MS,
    contents,
    made_of,
    open_index,
    put_all,
    record,
    records,
    trusted,
)


@pytest.fixture
def five_files() -> tuple[OverlayFileSystem, KeyIndex]:
    """An index of five files with ten entries each: records 0-4, 5-9, ... with two keys each."""
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, records(23))
    index.sync()
    return fs, index


def test_files_before_the_log_go_but_not_the_last(
    five_files: tuple[OverlayFileSystem, KeyIndex],
) -> None:
    fs, index = five_files
    ends = [header.end_physical_offset for _, header in index.headers()]
    assert ends == [40, 90, 140, 190, 220]
    assert index.delete_before(40) == 0
    assert index.delete_before(141) == 3
    assert [header.end_physical_offset for _, header in index.headers()] == [190, 220]
    assert len(fs.list_dir(FOLDER)) == 2
    assert index.delete_before(10_000) == 1
    assert list(index.candidates("own 22")) == [220]
    assert list(index.candidates("own 19")) == []
    put_all(index, [record(230, "later")])
    assert list(index.candidates("later")) == [230]


def test_removed_files_are_made_again(five_files: tuple[OverlayFileSystem, KeyIndex]) -> None:
    fs, index = five_files
    whole = contents(fs)
    names = fs.list_dir(FOLDER)
    assert index.remove_named(names[3:]) == 2
    assert fs.list_dir(FOLDER) == names[:3]
    assert index.max_physical_offset == 140
    put_all(index, [d for d in records(23) if d.physical_offset > 140])
    index.sync()
    assert contents(fs) == whole
    assert index.remove_named(fs.list_dir(FOLDER)) == 5
    assert index.max_physical_offset == -1
    put_all(index, records(23))
    index.sync()
    assert contents(fs) == whole


def test_who_walks_in_a_file_that_goes_comes_to_an_end(
    five_files: tuple[OverlayFileSystem, KeyIndex],
) -> None:
    _, index = five_files
    walks = [iter(index.candidates(f"own {n}")) for n in range(23)]
    hot = iter(index.candidates("shared 0"))
    assert next(hot) == 0
    index.delete_before(10_000)
    assert [list(walk) for walk in walks] == [[]] * 20 + [[200], [210], [220]]
    assert set(hot) <= {offset * 20 for offset in range(12)}


def test_a_lost_header_shows(five_files: tuple[OverlayFileSystem, KeyIndex]) -> None:
    fs, _ = five_files
    path = FOLDER / fs.list_dir(FOLDER)[-1]
    put(fs, path, bytes(HEADER_SIZE), 0)
    index = open_index(fs)
    assert [file.is_blank for file in index.index_files] == [False] * 4 + [True]


def test_names_that_mean_nothing_are_left_alone() -> None:
    fs = OverlayFileSystem()
    put(fs, FOLDER / "notes.txt", b"mine")
    fs.make_dir(FOLDER / "20261121013209211")
    index = open_index(fs)
    assert [finding.code for finding in index.findings] == ["unknown-file"] * 2
    put_all(index, [record(0, "k")])
    assert fs.read_bytes(FOLDER / "notes.txt") == b"mine"


@pytest.mark.parametrize("name", ["20000101000000000", "29991231000000000"])
def test_another_length_is_told_and_never_touched(name: str) -> None:
    """The file is older or newer than the others, which stay in use."""
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, [record(0, "k")])
    index.sync()
    path = FOLDER / name
    put(fs, path, b"x" * 500)
    index = open_index(fs)
    (finding,) = index.findings
    assert (finding.code, finding.path) == ("index-file-size", str(path))
    assert "maxHashSlotNum" in finding.message
    assert index.misfits == [path]
    trusted(index)
    put_all(index, records(20, start=1))
    assert list(index.candidates("k")) == [0]
    assert list(index.candidates("own 20")) == [200]
    assert fs.read_bytes(path) == b"x" * 500
    assert (name == fs.list_dir(FOLDER)[0]) == (name < "21")


def test_a_file_whose_making_was_cut_short_is_used() -> None:
    fs = OverlayFileSystem()
    put(fs, FOLDER / index_name(MS), b"")
    index = open_index(fs)
    assert (list(index.candidates("k")), index.findings) == ([], [])
    put_all(index, [record(0, "k")])
    index.sync()
    assert contents(fs) == made_of([record(0, "k")])


@pytest.mark.parametrize("seed", range(30))
def test_damaged_files_end_every_walk(seed: int) -> None:
    """Random bytes in slots and entries cause no endless loop and no error."""
    chance = random.Random(seed)
    fs = OverlayFileSystem()
    index = open_index(fs, entries=200)
    put_all(index, records(60))
    index.sync()
    path = FOLDER / fs.list_dir(FOLDER)[0]
    for _ in range(20):
        at = chance.randrange(file_size(16, 200) - 4)
        put(fs, path, chance.choice([chance.randbytes(4), bytes([0, 0, 0, 9])]), at)
    index = trusted(open_index(fs, entries=200))
    for number in range(60):
        list(index.candidates(f"own {number}"))
        index.query_raw("own", str(number), max_count=64, begin_ms=0, end_ms=2**62)


@pytest.mark.parametrize("fail_at", range(1, 40))
def test_after_a_full_disk_the_same_records_are_put_once(
    fail_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher puts the same records again: the files are as if the disk had never been full."""
    monkeypatch.setattr("storage.rocketmq.index.key_index.TAIL_BYTES", 60)
    disk = OverlayFileSystem()
    fs = FaultyFileSystem(disk)
    fs.fault = at_change(fs, fail_at, disk_full)
    index = open_index(fs)
    for batch in (records(7, keys=3), records(9, keys=3, start=7), records(2, keys=3, start=16)):
        try:
            put_all(index, batch)
        except DiskFull:
            put_all(index, batch)
    try:
        index.sync()
    except DiskFull:
        index.sync()
    assert contents(disk) == made_of(records(18, keys=3))


def test_other_failures_come_through() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, records(3))
    index.sync()
    files = HandleCache(fs)
    index = KeyIndex(files, FOLDER, slots=16, entries=11, clock=lambda: MS)
    index.load()
    path = FOLDER / fs.list_dir(FOLDER)[0]
    fs.remove(path)
    files.forget(path)
    with pytest.raises(DoubtedIndex):
        list(trusted(index).candidates("own 1"))
    assert list(index.candidates("own 1")) == []
    assert index.doubted_ranges() == [(0, 20)]
