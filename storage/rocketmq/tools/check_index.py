"""Whether the entries of the index tell the truth about the log.

Owns the judgement of entries, fed with the records of a stretch of the log in order; must not read
the log. Entries stand in the order of the log, so that both are walked side by side. A record that is
indexed twice is right (the real store does so at the border after a crash), and so are entries of
what was deleted; an index without tags is one of RocketMQ 4.x.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Unpack

from storage.files import HandleCache
from storage.findings import Comparison, finding
from storage.model import Finding
from storage.notes import Tallies
from storage.rocketmq.dispatch import Dispatch
from storage.rocketmq.format.index_file import (
    FIRST_ENTRY,
    TAG_TYPE,
    IndexEntry,
    key_hash,
    time_diff_s,
)
from storage.rocketmq.index_header import wrong_header
from storage.rocketmq.key_index_file import KeyIndexFile
from storage.rocketmq.tools.check_index_file import (
    entries_end,
    entries_of,
    entry_at,
    entry_finding,
)
from storage.rocketmq.tools.check_queues import Surroundings


class IndexPlace(NamedTuple):
    """The next entry to be met: the number of its file (behind the last one: END), its own there, and
    the physical offset of the entry before it.
    """

    file: int
    number: int
    last: int


BEGIN: Final = IndexPlace(0, FIRST_ENTRY, -1)
END: Final = IndexPlace(-1, 0, 0)


class Numbered(NamedTuple):
    """An entry: the number of its file and its own there, and that file with what it inherited."""

    at: int
    number: int
    file: KeyIndexFile
    entry: IndexEntry
    inherited_ms: int | None  # end time of the file before; None for the first


def guessed_place(
    index_files: Sequence[KeyIndexFile], files: HandleCache, position: int
) -> IndexPlace:
    """The first entry of what lies at or behind a physical offset, if nothing is wrong before it."""
    last = -1
    for at, file in enumerate(index_files):
        low, high = FIRST_ENTRY, entries_end(file)
        if low == high:
            continue
        if file.header.end_physical_offset < position:
            last = file.header.end_physical_offset
            continue
        while low < high:
            middle = (low + high) // 2
            at_middle = entry_at(file, files, middle).physical_offset
            if at_middle < position:
                low, last = middle + 1, at_middle
            else:
                high = middle
        if low < entries_end(file):
            return IndexPlace(at, low, last)
    return END


class IndexCheck:
    """The index files of a store from one place on, met by the records of a stretch of its log."""

    def __init__(
        self,
        index_files: Sequence[KeyIndexFile],
        files: HandleCache,
        surroundings: Surroundings,
        place: IndexPlace,
        *,
        directory: Path,
    ) -> None:
        self.tallies = Tallies()
        self.early = Tallies()  # tags that are missing before any was met
        self.keys_met = False
        self.tags_met = False
        self._index_files = index_files
        self._files = files
        self._directory = directory
        self._log_start, self._rebuilt_from, self._damaged_between, *_ = surroundings
        self._before = place.last  # physical offset of the entry in front of the current one
        self._entries = self._in_order(place)
        self._current = next(self._entries, None)

    @property
    def place(self) -> IndexPlace:
        """The next entry to be met."""
        current = self._current
        return END if current is None else IndexPlace(current.at, current.number, self._before)

    def meet(self, dispatch: Dispatch, *, deleted: bool = False) -> None:
        """A good record. `deleted`: of a deleted topic, so that its entries are right, but need not
        be there: a rebuild leaves them out.
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
        """The end of the log."""
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
        """An entry of a record that is there."""
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
        """An entry that leads to no record."""
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
        """The entries from a place on that do not step out of the order of the log. Those that do are
        told by whoever comes past them: who stops at an entry has told those in front of it.
        """
        last = place.last
        waiting: Numbered | None = None
        odd: list[Numbered] = []  # behind the one that waits
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
        """Every entry of every file from a place on."""
        run = self._index_files
        for at in range(place.file if place != END else len(run), len(run)):
            file = run[at]
            inherited_ms = run[at - 1].header.end_timestamp_ms if at else None
            first = place.number if at == place.file else FIRST_ENTRY
            for number, entry in entries_of(file, self._files, first):
                yield Numbered(at, number, file, entry, inherited_ms)

    def _report(
        self, met: Numbered, code: str, severity: str, what: str, **facts: Unpack[Comparison]
    ) -> None:
        self.tallies.add(entry_finding(met.file, met.number, code, severity, what, **facts))


def without_tags(early: Tallies) -> Finding | None:
    """What it means that no tag at all is in an index that has keys."""
    first = next(iter(early.all()), None)
    if first is None:
        return None
    what = "the index contains no tags: RocketMQ 4.x and 5.3 write it so"
    return finding("index-without-tags", first.path, position=first.position, message=what)
