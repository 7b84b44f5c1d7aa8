"""Comparing the key index with the log, so that lookups know where the index can be trusted.

Owns the comparison, a part at a time; must not write, and must not report (storage.rocketmq.tools.verify.index does). A
record is covered if each of its strings for lookups (unique id, lookup keys) has an entry with its physical offset and
time, in a trusted file. A file is trusted if

- its chains and slots lead to every entry, and its header describes the first and the last entry;
- its entries are in the order of the log, and each belongs to the record at its physical offset.

Otherwise the file is damaged or left from an earlier store: no record between its first and last is covered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from storage.errors import Corrupt, IoFailure
from storage.rocketmq.format.index_file import FIRST_ENTRY, key_hash, time_diff_s
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.index.dispatch_request import heads_of, keys_of
from storage.rocketmq.index.index_coverage import IndexCoverage, Range, key_beside, record_end
from storage.rocketmq.index.key_index import SettledFile
from storage.rocketmq.index.key_index_file import DoubtedIndex, KeyIndexFile
from storage.rocketmq.log.scan import LogRange, Stop, walk_log
from storage.rocketmq.recovery.resync import first_record

CHECKED_AT_ONCE: Final = 128 << 20
"""Bytes of the log compared by one lookup: one or two seconds of work."""


class _Entry(NamedTuple):
    """An index entry during the comparison."""

    file: KeyIndexFile
    number: int
    key_hash: int
    physical_offset: int
    seconds: int
    begin_ms: int


class IndexCheck:
    """The comparison of one store's index with its log. One lookup compares at a time."""

    def __init__(self, coverage: IndexCoverage, deleted: Mapping[str, int]) -> None:
        """Set up the check. `deleted`: by topic, the physical offset below which its records are deleted."""
        self._coverage = coverage
        self._deleted = deleted
        self._lock = threading.Lock()
        self._check: Iterator[int] | None = None

    def advance(self, low: int, high: int) -> None:
        """Compare more of the log, unless the coverage of [low, high) is known."""
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
        """Compare [low, high) and note the result at its end; yield the number of log bytes read at each step."""
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
            if stop < high:  # the index cannot be checked for a range that cannot be read
                position = first_record(run, stop + 1, high) or high
                comparison.holes.append((stop, position))
        for first, last in comparison.judge_files():
            comparison.holes.append((first, record_end(coverage.log, last)))
        coverage.exclude_keys(comparison.key_holes)
        coverage.note_checked(low, high, comparison.holes)

    def _sound_files(self, low: int, high: int) -> Iterator[SettledFile]:
        """Yield the files with entries in [low, high) that are sound in themselves and in ascending order."""
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
    """The comparison of records with index entries, both in the order of the log."""

    def __init__(self, files: Sequence[SettledFile], low: int, deleted: Mapping[str, int]) -> None:
        self.files = files
        self.holes: list[Range] = []
        self.key_holes: list[Range] = []
        self._low = low
        self._deleted = deleted
        self._wrong: set[KeyIndexFile] = set()
        self._entries = self._in_order()
        self._current = next(self._entries, None)

    def meet(self, log_range: LogRange) -> None:
        """Compare the records in this part of the log."""
        data, start = log_range.data, log_range.start
        heads = heads_of(data, log_range.records, start)
        for (at, size), head in zip(log_range.records, heads, strict=True):
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
        """Return the hashes in entries of the record at `at`; `known`: the hashes that it may have."""
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
        """Doubt the files with wrong entries and trust the others; yield first and last record of each doubted file."""
        for file, header, _ in self.files:
            if file in self._wrong:
                file.doubt()
                yield header.begin_physical_offset, header.end_physical_offset
            else:
                file.is_trusted = True

    def _in_order(self) -> Iterator[_Entry]:
        """Yield the entries of all files from `low` on. An entry out of order is skipped and makes its file wrong."""
        last = -1
        for file, header, _ in self.files:
            begin_ms = header.begin_timestamp_ms
            try:
                for number, (hashed, at, seconds, _) in file.entries_in(
                    FIRST_ENTRY, header.index_count
                ):
                    if at < last:
                        self._wrong.add(file)
                        continue
                    last = at
                    if at >= self._low:
                        yield _Entry(file, number, hashed, at, seconds, begin_ms)
            except (Corrupt, IoFailure, DoubtedIndex):
                self._wrong.add(file)


def _has_time(entry: _Entry, time_ms: int) -> bool:
    """Return whether a lookup by the record's time finds its entry. See KeyIndexFile.candidates."""
    if entry.number == FIRST_ENTRY:
        return entry.begin_ms == time_ms
    return entry.seconds == time_diff_s(time_ms, entry.begin_ms)
