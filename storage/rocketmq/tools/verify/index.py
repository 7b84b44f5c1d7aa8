"""Checks of index entries against the log.

Owns the rules for index entries; the records of a log range are passed in, in order. Must not read the log. Entries
are in log order, so that both are walked in parallel. These cases are right:

- a record that is indexed twice: the real store does this at the border after a crash;
- entries of deleted records;
- an index without tags: RocketMQ 4.x writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Unpack

from storage.findings import Comparison, finding
from storage.model import Finding
from storage.rocketmq.format.index_file import (
    FIRST_ENTRY,
    TAG_TYPE,
    IndexEntry,
    key_hash,
    time_diff_s,
)
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.key_index_file import KeyIndexFile, wrong_header
from storage.rocketmq.tools.verify.index_file import entry_finding
from storage.rocketmq.tools.verify.queues import QueueContext
from storage.shared.diagnostics import Tallies


class IndexPlace(NamedTuple):
    """The next index entry: the number of its file (END after the last file), its number in that file, and the physical
    offset of the previous entry.
    """

    file: int
    number: int
    last: int


BEGIN: Final = IndexPlace(0, FIRST_ENTRY, -1)
END: Final = IndexPlace(-1, 0, 0)


class Numbered(NamedTuple):
    """An index entry with the number of its file, its number in that file, the file, and the end time the file
    inherited.
    """

    at: int
    number: int
    file: KeyIndexFile
    entry: IndexEntry
    inherited_ms: int | None  # end time of the previous file; None for the first file


def guessed_place(index_files: Sequence[KeyIndexFile], position: int) -> IndexPlace:
    """Return the place of the first entry for a physical offset or later, if everything before it is right."""
    last = -1
    for at, file in enumerate(index_files):
        low, high = FIRST_ENTRY, file.entries_end
        if low == high:
            continue
        if file.header.end_physical_offset < position:
            last = file.header.end_physical_offset
            continue
        while low < high:
            middle = (low + high) // 2
            at_middle = file.position_of(middle)
            if at_middle < position:
                low, last = middle + 1, at_middle
            else:
                high = middle
        if low < file.entries_end:
            return IndexPlace(at, low, last)
    return END


class IndexCheck:
    """The index files of a store from one place on, checked with the records of a log range."""

    def __init__(
        self,
        index_files: Sequence[KeyIndexFile],
        surroundings: QueueContext,
        place: IndexPlace,
        *,
        directory: Path,
    ) -> None:
        self.tallies = Tallies()
        self.early = Tallies()  # missing tags before the first tag was found
        self.keys_met = False
        self.tags_met = False
        self._index_files = index_files
        self._directory = directory
        self._log_start, self._rebuilt_from, self._damaged_between, *_ = surroundings
        self._before = place.last  # physical offset of the entry before the current entry
        self._entries = self._in_order(place)
        self._current = next(self._entries, None)

    @property
    def place(self) -> IndexPlace:
        """The place of the next entry."""
        current = self._current
        return END if current is None else IndexPlace(current.at, current.number, self._before)

    def meet(self, dispatch: Dispatch, *, deleted: bool = False) -> None:
        """Check a good record. `deleted`: its topic is deleted. Its entries are right, but may be missing, because a
        rebuild leaves them out.
        """
        at = dispatch.physical_offset
        tag_string = f"{dispatch.topic}#{TAG_TYPE}#"
        missing = {key_hash(key): key.startswith(tag_string) for key in dispatch.keys}
        wanted = dict(missing)
        while self._current is not None and self._current.entry.physical_offset <= at:
            if self._current.entry.physical_offset < at:
                self._refuse(self._current)
            else:
                self._compare(self._current, wanted, dispatch.store_timestamp_ms)
                missing.pop(self._current.entry.key_hash, None)
            self._current = next(self._entries, None)
        if deleted:
            return
        for is_tag in missing.values():
            self._note_missing(at, is_tag=is_tag)
        met = [is_tag for key, is_tag in wanted.items() if key not in missing]
        self.keys_met |= False in met
        self.tags_met |= True in met

    def finish(self, log_end: int) -> None:
        """Check the remaining entries, after the last record of the log."""
        while self._current is not None:
            if self._current.entry.physical_offset >= log_end:
                self._report(
                    self._current,
                    "index-beyond-log",
                    "warning",
                    f"the entry points after the end of the log at {log_end}",
                )
            else:
                self._refuse(self._current)
            self._current = next(self._entries, None)

    def _compare(self, found: Numbered, wanted: dict[int, bool], store_timestamp_ms: int) -> None:
        """Check an entry whose record exists."""
        _, number, file, entry, inherited_ms = found
        if entry.key_hash not in wanted:
            what = "the record has no key with this hash"
            self._report(found, "wrong-index-entry", "warning", what, found=f"{entry.key_hash}")
        begin_ms: int | None = file.header.begin_timestamp_ms
        if number == FIRST_ENTRY:
            if begin_ms != store_timestamp_ms:
                began_ms = file.header.begin_timestamp_ms
                wrong = wrong_header(file, "beginTimestamp", store_timestamp_ms, began_ms)
                self.tallies.add(wrong)
            begin_ms = inherited_ms
        if begin_ms is None:
            return
        seconds = time_diff_s(store_timestamp_ms, begin_ms)
        if entry.time_diff_s != seconds:
            self._report(
                found,
                "wrong-index-entry",
                "warning",
                "the entry has another time than its record: lookups by time may miss it",
                expected=f"{seconds} s",
                found=f"{entry.time_diff_s} s",
            )

    def _refuse(self, found: Numbered) -> None:
        """Report an entry that leads to no record, unless its record was deleted or damaged."""
        at = found.entry.physical_offset
        if at >= self._log_start and not self._damaged_between(at, at + 1):
            what = f"no record begins at physical offset {at}, where the entry points"
            self._report(found, "wrong-index-entry", "warning", what)

    def _note_missing(self, at: int, *, is_tag: bool) -> None:
        current, files = self._current, self._index_files
        path = self._directory
        if files:
            path = (files[-1] if current is None else current.file).path
        rebuilt = self._rebuilt_from is not None and at >= self._rebuilt_from
        missing = finding(
            "missing-index-entry",
            path,
            severity="info" if rebuilt else "warning",
            message=f"the record at physical offset {at} is not in the index under each of its keys",
        )
        (self.early if is_tag and not self.tags_met else self.tallies).add(missing, order=at)

    # ---- the entries, in order -----------------------------------------------------------------

    def _in_order(self, place: IndexPlace) -> Iterator[Numbered]:
        """Yield the entries from a place on that are in log order. Entries out of order are reported as the walk passes
        them: a walk that stops at an entry has reported all entries before it.
        """
        last = place.last
        waiting: Numbered | None = None
        odd: list[Numbered] = []  # out-of-order entries after the waiting entry
        for found in self._from(place):
            at = found.entry.physical_offset
            if at < last:
                odd.append(found)
                continue
            if waiting is not None and at < waiting.entry.physical_offset:
                self._misplaced(waiting, *odd)
            elif waiting is not None:
                self._before = last
                yield waiting
                last = waiting.entry.physical_offset
                self._misplaced(*odd)
            else:
                self._misplaced(*odd)
            waiting, odd = found, []
        if waiting is not None:
            self._before = last
            yield waiting
        self._misplaced(*odd)

    def _misplaced(self, *entries: Numbered) -> None:
        what = "the entry is not in the order of the log"
        for found in entries:
            at = found.entry.physical_offset
            self._report(found, "wrong-index-entry", "warning", what, found=f"physical offset {at}")

    def _from(self, place: IndexPlace) -> Iterator[Numbered]:
        """Yield every entry of every file from a place on."""
        run = self._index_files
        for at in range(place.file if place != END else len(run), len(run)):
            file = run[at]
            inherited_ms = run[at - 1].header.end_timestamp_ms if at else None
            first = place.number if at == place.file else FIRST_ENTRY
            for number, entry in file.entries_in(first, file.entries_end):
                yield Numbered(at, number, file, IndexEntry._make(entry), inherited_ms)

    def _report(
        self, met: Numbered, code: str, severity: str, what: str, **facts: Unpack[Comparison]
    ) -> None:
        self.tallies.add(entry_finding(met.file, met.number, code, severity, what, **facts))


def without_tags(early: Tallies) -> Finding | None:
    """Return the finding for an index that has keys but no tags at all."""
    first = next(iter(early.all()), None)
    if first is None:
        return None
    what = "the index contains no tags: RocketMQ 4.x and 5.3 write it so"
    return finding("index-without-tags", first.path, position=first.position, message=what)
