"""The comparison of the entries of index files with the strings of the records, both in the order of the log.

Owns which entries belong to which record, and the judgement on both; must not do IO: its owner reads the files.
Compiled if a compiler is available: then a record whose entries are complete and in order makes no Python object. Any
other record is compared as sets: keys may repeat, and 4.x indexes no tags.

    strings  | A: hash, time | A: hash, time | B: hash, time | C: no string |   rows of record_pass.py, the tag last
    entries  | A: hash, s    | A: hash, s    | -             |              |   of format/index_file.py

Here record B lacks an entry. An entry at A with another hash or time, or between A and B, makes its file wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from storage.coding.native import i64, read_i32_be, read_i64_be
from storage.rocketmq.format.index_file import ENTRY_SIZE, FIRST_ENTRY, time_diff_s
from storage.rocketmq.index.record_pass import STRING_SIZE

_OFFSET_POSITION: Final = 4
_TIME_POSITION: Final = 12  # of a string: the store time; of an entry: whole seconds
_NO_ENTRY: Final = (1 << 63) - 1
"""The physical offset after the last entry."""


class EntryBlock(NamedTuple):
    """Adjacent entries of an index file: the file's place in the run, the number of the first entry, the begin
    timestamp of the header, and the bytes.
    """

    file: int
    number: int
    begin_ms: int
    data: bytes


class EntryMatch:
    """The comparison from the physical offset `low` on. `wrong`: the places of the files with wrong entries. Not
    thread-safe.
    """

    def __init__(self, blocks: Iterator[EntryBlock], low: int, wrong: set[int]) -> None:
        """Compare these entries. An entry out of order is skipped, and makes its file wrong."""
        self.wrong = wrong
        self._blocks = blocks
        self._low: i64 = low
        self._file = 0
        self._begin_ms: i64 = 0
        self._data = b""
        self._position: i64 = 0  # of the current entry, in the data
        self._number: i64 = 0
        self._offset: i64 = -1  # of the current entry's record
        self._last_ms: i64 = 0  # `_seconds` was computed for this store time
        self._seconds: i64 = 0
        self._advance()

    def lacking(self, strings: bytes, required: Callable[[], bytes]) -> list[int]:
        """Return the physical offsets of the records that lack an entry for a required string.

        `strings`: all strings of the next records; each record has one row at least. `required` returns those that are
        no tags, in the same form. It is called if a record has fewer entries than strings.
        """
        lacking: list[int] = []
        wanted: bytes | None = None
        wanted_at: i64 = 0
        position: i64 = 0
        size: i64 = len(strings)
        while position < size:
            at: i64 = read_i64_be(strings, position + _OFFSET_POSITION)
            time_ms: i64 = read_i64_be(strings, position + _TIME_POSITION)
            stop: i64 = _rows_end(strings, position, at)
            while self._offset < at:  # no record begins at its offset
                self.wrong.add(self._file)
                self._advance()
            row: i64 = position
            while self._offset == at and row < stop and self._has_hash(strings, row):
                self._check_time(time_ms)
                self._advance()
                row += STRING_SIZE
            if self._offset == at or (row < stop and read_i32_be(strings, row) >= 0):
                found = _hashes(strings, position, row)
                self._take_rest(found, _hashes(strings, position, stop), at, time_ms)
                if wanted is None:
                    wanted = required()
                while wanted_at < len(wanted) and (
                    read_i64_be(wanted, wanted_at + _OFFSET_POSITION) < at
                ):
                    wanted_at += STRING_SIZE
                if not found >= _hashes(wanted, wanted_at, _rows_end(wanted, wanted_at, at)):
                    lacking.append(at)
            position = stop
        return lacking

    def _take_rest(self, found: set[int], known: set[int], at: i64, time_ms: i64) -> None:
        """Add the hashes of the record's other entries; `known`: the hashes that it may have."""
        while self._offset == at:
            hashed = int(read_i32_be(self._data, self._position))
            if hashed not in known:
                self.wrong.add(self._file)
            self._check_time(time_ms)
            found.add(hashed)
            self._advance()

    def _has_hash(self, strings: bytes, row: i64) -> bool:
        """Return whether the current entry has the hash of a string."""
        hashed: i64 = i64(read_i32_be(strings, row))
        return hashed >= 0 and hashed == i64(read_i32_be(self._data, self._position))

    def _check_time(self, time_ms: i64) -> None:
        """Note the file if a lookup by the record's time misses the current entry. See KeyIndexFile.candidates."""
        if self._number == FIRST_ENTRY:
            if self._begin_ms != time_ms:
                self.wrong.add(self._file)
            return
        if time_ms != self._last_ms:
            self._last_ms, self._seconds = time_ms, time_diff_s(time_ms, self._begin_ms)
        if i64(read_i32_be(self._data, self._position + _TIME_POSITION)) != self._seconds:
            self.wrong.add(self._file)

    def _advance(self) -> None:
        """Go to the next entry at or after `low`."""
        last: i64 = self._offset
        while True:
            self._position += ENTRY_SIZE
            self._number += 1
            if self._position >= len(self._data) and not self._load():
                self._offset = _NO_ENTRY
                return
            offset: i64 = read_i64_be(self._data, self._position + _OFFSET_POSITION)
            if offset < last:
                self.wrong.add(self._file)
                continue
            last = offset
            if offset >= self._low:
                self._offset = offset
                return

    def _load(self) -> bool:
        """Take the next block; return False if there is none."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._file, self._begin_ms, self._data = block.file, block.begin_ms, block.data
        self._position, self._number = 0, block.number
        self._last_ms = block.begin_ms
        self._seconds = 0
        return True


def _rows_end(strings: bytes, position: i64, at: i64) -> i64:
    """Return the position after the rows of the record at a physical offset."""
    size: i64 = len(strings)
    while position < size and read_i64_be(strings, position + _OFFSET_POSITION) == at:
        position += STRING_SIZE
    return position


def _hashes(strings: bytes, position: i64, stop: i64) -> set[int]:
    """Return the hashes of strings, without the note that a record has none."""
    hashes: set[int] = set()
    while position < stop:
        hashed = int(read_i32_be(strings, position))
        if hashed >= 0:
            hashes.add(hashed)
        position += STRING_SIZE
    return hashes
