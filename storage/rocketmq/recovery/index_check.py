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
from typing import Final

from storage.coding.native import is_native
from storage.errors import Corrupt, IoFailure
from storage.rocketmq.format.index_file import FIRST_ENTRY
from storage.rocketmq.format.message import decode_message
from storage.rocketmq.index.entry_match import EntryBlock, EntryMatch
from storage.rocketmq.index.index_coverage import IndexCoverage, Range, keys_beside, record_end
from storage.rocketmq.index.key_index import SettledFile
from storage.rocketmq.index.key_index_file import DoubtedIndex
from storage.rocketmq.index.record_pass import NOTHING, AllRecords, RecordPass
from storage.rocketmq.log.scan import LogRange, Stop, walk_log
from storage.rocketmq.recovery.resync import first_record

CHECKED_AT_ONCE: Final = (512 if is_native(EntryMatch.lacking) else 128) << 20
"""Bytes of the log compared by one lookup: two seconds of work, in plain Python six."""


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
        self._deleted = deleted
        self._deleted_end = max(deleted.values(), default=0)
        self._strings, self._required = (
            RecordPass(AllRecords(), with_tags=with_tags, queues_from=NOTHING)
            for with_tags in (True, False)
        )
        self._wrong: set[int] = set()
        self._match = EntryMatch(self._blocks(), low, self._wrong)

    def meet(self, log_range: LogRange) -> None:
        """Compare the records in this part of the log."""
        strings = _strings_of(self._strings, log_range)
        lacking = self._match.lacking(strings, lambda: _strings_of(self._required, log_range))
        if lacking:
            sizes = dict(log_range.records)
            for at in lacking:
                if not self._is_deleted(log_range, at):
                    self._add_hole(at, at + sizes[at])
        if self._strings.has_rare:
            self.key_holes += keys_beside(log_range)

    def _is_deleted(self, log_range: LogRange, at: int) -> bool:
        if at >= self._deleted_end:
            return False
        message = decode_message(log_range.data, at - log_range.start, check_crc=False)
        return at < self._deleted.get(message.topic, 0)

    def _add_hole(self, low: int, high: int) -> None:
        if self.holes and self.holes[-1][1] == low:
            low = self.holes.pop()[0]
        self.holes.append((low, high))

    def judge_files(self) -> Iterator[tuple[int, int]]:
        """Doubt the files with wrong entries and trust the others; yield first and last record of each doubted file."""
        for place, (file, header, _) in enumerate(self.files):
            if place in self._wrong:
                file.doubt()
                yield header.begin_physical_offset, header.end_physical_offset
            else:
                file.is_trusted = True

    def _blocks(self) -> Iterator[EntryBlock]:
        """Yield the entries of all files. A file that cannot be read is wrong."""
        for place, (file, header, _) in enumerate(self.files):
            begin_ms = header.begin_timestamp_ms
            try:
                for number, data in file.blocks_in(FIRST_ENTRY, header.index_count):
                    yield EntryBlock(place, number, begin_ms, data)
            except (Corrupt, IoFailure, DoubtedIndex):
                self._wrong.add(place)


def _strings_of(record_pass: RecordPass, log_range: LogRange) -> bytes:
    record_pass.take(log_range.data, 0, log_range.size_bytes, log_range.start)
    return record_pass.taken().strings
