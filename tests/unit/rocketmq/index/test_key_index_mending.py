"""The newest index files after a crash: kept where they are whole, otherwise repaired from their entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.files import HandleCache, OverlayFileSystem
from storage.rocketmq.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    decode_header,
    entry_position,
)
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import ALWAYS
from storage.rocketmq.index.key_index_mending import mend
from tests.unit.rocketmq.index.indexes import put_all, trusted

FOLDER = Path("/store/index")
SLOTS, ENTRIES = 8, 40
START_MS = 1_700_000_000_000
SIZE = 100

Damage = Callable[[OverlayFileSystem, Path], None]


def dispatch(number: int) -> Dispatch:
    keys = (f"t#key-{number}", f"t#shared-{number % 3}")
    return Dispatch("t", 0, number, number * SIZE, SIZE, 0, time_of(number * SIZE), 0, keys)


def time_of(physical_offset: int) -> int:
    return START_MS + physical_offset * 10


def opened(fs: OverlayFileSystem) -> KeyIndex:
    index = KeyIndex(HandleCache(fs), FOLDER, slots=SLOTS, entries=ENTRIES, clock=lambda: START_MS)
    index.load()
    return index


def filled(fs: OverlayFileSystem, count: int) -> KeyIndex:
    index = opened(fs)
    put_all(index, map(dispatch, range(count)))
    index.sync()
    return index


def zero(position: int, size: int) -> Damage:
    def damage(fs: OverlayFileSystem, path: Path) -> None:
        file = fs.open(path, write=True)
        file.pwrite(bytes(size), position)
        file.close()

    return damage


def nothing(fs: OverlayFileSystem, path: Path) -> None:
    """Do no damage."""


DAMAGES: dict[str, tuple[Damage, int]] = {
    "nothing": (nothing, 30),
    "header": (zero(0, HEADER_SIZE), 30),
    "slots": (zero(HEADER_SIZE, SLOTS * SLOT_SIZE), 30),
    "one slot": (zero(HEADER_SIZE + 3 * SLOT_SIZE, SLOT_SIZE), 30),
    "last entry": (zero(entry_position(SLOTS, 21), ENTRY_SIZE), 30),
    "entries in the middle": (zero(entry_position(SLOTS, 9), 3 * ENTRY_SIZE), 24),
    "all entries": (zero(entry_position(SLOTS, 1), 30 * ENTRY_SIZE), 19),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_made_whole(name: str) -> None:
    """Records are put again from the offset that `mend` returns; then every key finds each of its records once."""
    damage, _ = DAMAGES[name]
    fs = OverlayFileSystem()
    index = filled(fs, 30)
    path = index.index_files[-1].path
    assert len(index.index_files) == 2
    damage(fs, path)
    index = opened(fs)
    names = [file.path.name for file in index.index_files]
    files = HandleCache(fs)
    last = mend(files, index, names[-1:], log_end=30 * SIZE, time_of=time_of)
    assert last is not None
    put_all(index, (dispatch(n) for n in range(last // SIZE, 30)))
    for number in range(30):
        assert list(trusted(index).candidates(f"t#key-{number}", times=ALWAYS)) == [
            number * SIZE
        ], number
    for shared in range(3):
        expected = [n * SIZE for n in range(30) if n % 3 == shared]
        assert list(index.candidates(f"t#shared-{shared}", times=ALWAYS)) == expected


@pytest.mark.parametrize("name", DAMAGES)
def test_as_much_as_can_be_is_kept(name: str) -> None:
    damage, kept = DAMAGES[name]
    fs = OverlayFileSystem()
    path = filled(fs, 30).index_files[-1].path
    damage(fs, path)
    index = opened(fs)
    last = mend(HandleCache(fs), index, [path.name], log_end=30 * SIZE, time_of=time_of)
    assert last is not None
    assert last // SIZE >= kept - 1
    assert last // SIZE < 30


def test_a_whole_file_is_left_as_it_is() -> None:
    fs = OverlayFileSystem()
    path = filled(fs, 30).index_files[-1].path
    before = fs.read_bytes(path)
    mend(HandleCache(fs), opened(fs), [path.name], log_end=30 * SIZE, time_of=time_of)
    assert fs.read_bytes(path) == before


def test_entries_behind_the_end_of_the_log_go() -> None:
    """Otherwise new records up to the last of these entries would be skipped."""
    fs = OverlayFileSystem()
    path = filled(fs, 30).index_files[-1].path
    index = opened(fs)
    last = mend(HandleCache(fs), index, [path.name], log_end=25 * SIZE, time_of=time_of)
    assert last == 24 * SIZE
    header = decode_header(fs.read_bytes(path))
    assert (header.end_physical_offset, header.end_timestamp_ms) == (last, time_of(last))
    put_all(index, [dispatch(25)])
    assert list(index.candidates("t#key-25", times=ALWAYS)) == [25 * SIZE]
    assert list(index.candidates("t#key-26", times=ALWAYS)) == []


def test_what_follows_a_damaged_file_goes_too() -> None:
    """Its entries would come after records that have to be put again."""
    fs = OverlayFileSystem()
    index = filled(fs, 70)
    paths = [file.path for file in index.index_files]
    assert len(paths) == 4
    zero(entry_position(SLOTS, 30), 3 * ENTRY_SIZE)(fs, paths[1])
    index = opened(fs)
    names = [path.name for path in paths[1:]]
    last = mend(HandleCache(fs), index, names, log_end=70 * SIZE, time_of=time_of)
    assert last is not None
    assert [file.path for file in index.index_files] == paths[:2]
    put_all(index, (dispatch(n) for n in range(last // SIZE, 70)))
    for number in range(70):
        assert list(trusted(index).candidates(f"t#key-{number}", times=ALWAYS)) == [number * SIZE]


def test_nothing_left() -> None:
    fs = OverlayFileSystem()
    path = filled(fs, 10).index_files[-1].path
    zero(0, HEADER_SIZE)(fs, path)
    zero(entry_position(SLOTS, 2), 30 * ENTRY_SIZE)(fs, path)
    zero(entry_position(SLOTS, 1), ENTRY_SIZE)(fs, path)
    index = opened(fs)
    assert mend(HandleCache(fs), index, [path.name], log_end=10 * SIZE, time_of=time_of) is None
