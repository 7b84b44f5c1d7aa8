"""Comparing the key index with the log, so that lookups know where the index can be trusted.

Owns the comparison, a piece at a time; must not write, and must not report (storage.rocketmq.tools.check_index does). A
record is covered if each of its strings that a lookup may ask for (unique id, lookup keys) has an entry for its place,
with its time, in a file that is trusted. A file is trusted if

- its chains and slots lead to every entry, and its header tells of the first and the last;
- its entries are in the order of the log, and each is one of the record at its place.

Else it is one of an earlier life of the store, or damaged: no record between its first and last is covered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from storage.errors import Corrupt, IoFailure
from storage.rocketmq.behind import first_told
from storage.rocketmq.dispatch import heads_of, keys_of
from storage.rocketmq.format.index_file import FIRST_ENTRY, key_hash, time_diff_s
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.index_coverage import IndexCoverage, Range, key_beside, record_end
from storage.rocketmq.key_index import SettledFile
from storage.rocketmq.key_index_file import DoubtedIndex, KeyIndexFile
from storage.rocketmq.walking import Stop, Stretch, walk_log

CHECKED_AT_ONCE: Final = 128 << 20
"""Of the log, by one lookup: a second or two."""


class _Entry(NamedTuple):
    """An entry as it is met."""

    file: KeyIndexFile
    number: int
    key_hash: int
    physical_offset: int
    seconds: int
    begin_ms: int


class IndexCheck:
    """The comparison of one store's index with its log. Lookups take turns."""

    def __init__(self, coverage: IndexCoverage, deleted: Mapping[str, int]) -> None:
        """`deleted`: by topic, the physical offset below which its records are deleted."""
        self._coverage = coverage
        self._deleted = deleted
        self._lock = threading.Lock()
        self._check: Iterator[int] | None = None

    def advance(self, low: int, high: int) -> None:
        """Compare more of the log, if it is not known which of [low, high) is covered."""
        coverage = self._coverage
        if not coverage.unknown(low, high):
            return
        with self._lock:
            left = CHECKED_AT_ONCE
            while left > 0 and coverage.unknown(low, high):
                if self._check is None:
                    self._check = self._checked(*coverage.unknown(coverage.log.start, high)[0])
                try:
                    left -= next(self._check)
                except StopIteration:
                    self._check = None

    def _checked(self, low: int, high: int) -> Iterator[int]:
        """Compare [low, high) and note the result at its end; yields how many bytes of the log were read."""
        coverage = self._coverage
        run = coverage.log.run
        comparison = _Comparison(list(self._sound_files(low, high)), low, self._deleted)
        position = low if comparison.files else high
        if not comparison.files:
            comparison.holes.append((low, high))
        while position < high:
            stop = high
            for step in walk_log(run, position, high, check_crc=False):
                if isinstance(step, Stop):
                    stop = step.position
                    break
                comparison.meet(step)
                yield len(step.data)
            position = stop
            if stop < high:  # what the index says of a place that cannot be read is not known
                position = first_told(run, stop + 1, high) or high
                comparison.holes.append((stop, position))
        for first, last in comparison.judge_files():
            comparison.holes.append((first, record_end(coverage.log, last)))
        coverage.exclude_keys(comparison.key_holes)
        coverage.note_checked(low, high, comparison.holes)

    def _sound_files(self, low: int, high: int) -> Iterator[SettledFile]:
        """Yield the files that have entries in [low, high), are sound in themselves, and in order."""
        last = -1
        for settled in self._coverage.index.settled():
            file, header, _ = settled
            if file.is_doubted or header.index_count <= FIRST_ENTRY:
                continue
            if header.end_physical_offset < low or header.begin_physical_offset >= high:
                continue
            if header.begin_physical_offset < last or not (
                file.is_trusted or file.is_sound(header, settled.slots)
            ):
                file.doubt()
                continue
            last = header.end_physical_offset
            yield settled


class _Comparison:
    """Records and entries side by side, both in the order of the log."""

    def __init__(self, files: Sequence[SettledFile], low: int, deleted: Mapping[str, int]) -> None:
        self.files = files
        self.holes: list[Range] = []
        self.key_holes: list[Range] = []
        self._low = low
        self._deleted = deleted
        self._wrong: set[KeyIndexFile] = set()
        self._entries = self._in_order()
        self._current = next(self._entries, None)

    def meet(self, stretch: Stretch) -> None:
        """Compare the records of a stretch."""
        data, start = stretch.data, stretch.start
        heads = heads_of(data, stretch.records, start)
        for (at, size), head in zip(stretch.records, heads, strict=True):
            topic, _, _, sys_flag, time_ms, begin = head
            properties = decode_properties(data[begin : at - start + size])
            known = set(map(key_hash, keys_of(topic, properties, sys_flag, with_tags=True)))
            found = self._entries_of(at, known, time_ms)
            if at >= self._deleted.get(topic, 0):
                if key_beside(properties) is not None:
                    self.key_holes.append((at, at + size))
                wanted = keys_of(topic, properties, sys_flag, with_tags=False)
                if not found.issuperset(map(key_hash, wanted)):
                    self.holes.append((at, at + size))

    def _entries_of(self, at: int, known: set[int], time_ms: int) -> set[int]:
        """Return the hashes that lead to a record; `known`: those that may."""
        found: set[int] = set()
        while self._current is not None and self._current.physical_offset <= at:
            entry = self._current
            if (
                entry.physical_offset < at
                or entry.key_hash not in known
                or not _has_time(entry, time_ms)
            ):
                self._wrong.add(entry.file)
            found.add(entry.key_hash)
            self._current = next(self._entries, None)
        return found

    def judge_files(self) -> Iterator[tuple[int, int]]:
        """Doubt the files with wrong entries and trust the others; yields the first and last record of the former."""
        for file, header, _ in self.files:
            if file in self._wrong:
                file.doubt()
                yield header.begin_physical_offset, header.end_physical_offset
            else:
                file.is_trusted = True

    def _in_order(self) -> Iterator[_Entry]:
        """Yield the entries of all files from `low` on; one out of order makes its file wrong, and is left out."""
        last = -1
        for file, header, _ in self.files:
            begin_ms = header.begin_timestamp_ms
            try:
                for number, (hashed, at, seconds, _) in file.entries_below(header.index_count):
                    if at < last:
                        self._wrong.add(file)
                        continue
                    last = at
                    if at >= self._low:
                        yield _Entry(file, number, hashed, at, seconds, begin_ms)
            except (Corrupt, IoFailure, DoubtedIndex):
                self._wrong.add(file)


def _has_time(entry: _Entry, time_ms: int) -> bool:
    """Whether a lookup by the time of an entry's record finds the entry. See KeyIndexFile.candidates."""
    if entry.number == FIRST_ENTRY:
        return entry.begin_ms == time_ms
    return entry.seconds == time_diff_s(time_ms, entry.begin_ms)
