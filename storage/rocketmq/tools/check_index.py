"""Whether the entries of the index tell the truth about the log.

Owns the judgement of entries, slots and headers, fed with the records of the log in order; must not
read the log. Entries stand in the order of the log, so that both are walked side by side. A record
that is indexed twice is right (the real store does so at the border after a crash), and so are
entries of what was deleted; an index without tags is one of RocketMQ 4.x.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from storage.files import HandleCache
from storage.model import Finding
from storage.notes import Tallies
from storage.rocketmq.dispatch import Dispatch
from storage.rocketmq.format.index_file import (
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    SLOT_SIZE,
    TAG_TYPE,
    IndexEntry,
    decode_entries,
    entry_position,
    key_hash,
    slot_position,
    time_diff_s,
)
from storage.rocketmq.key_index_file import KeyIndexFile
from storage.rocketmq.key_index_table import file_order
from storage.rocketmq.tools.check_queues import Surroundings

ENTRIES_AT_ONCE: Final = 1 << 14


class Numbered(NamedTuple):
    """An entry, its file and its number there."""

    file: KeyIndexFile
    number: int
    entry: IndexEntry
    inherited_ms: int | None  # end time of the file before; None for the first


class IndexCheck:
    """The index files of a store, met by the records of its log."""

    def __init__(
        self,
        index_files: Sequence[KeyIndexFile],
        files: HandleCache,
        tallies: Tallies,
        surroundings: Surroundings,
        *,
        directory: Path,
    ) -> None:
        self._index_files = index_files
        self._files = files
        self._directory = directory
        self._tallies = tallies
        self._log_start, self._rebuilt_from, self._damaged_between, _ = surroundings
        self._entries = self._in_order()
        self._current = next(self._entries, None)
        self._keys_met = False
        self._tags_met = False
        self._without_tags: list[Finding] = []

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
        self._keys_met |= False in met
        self._tags_met |= True in met

    def finish(self, log_end: int) -> None:
        """The end of the log."""
        while self._current is not None:
            if self._current.entry.physical_offset >= log_end:
                self._report(
                    self._current,
                    "index-beyond-log",
                    "warning",
                    f"the entry leads behind the end of the log at {log_end}",
                )
            else:
                self._refuse(self._current)
            self._current = next(self._entries, None)
        if self._keys_met and not self._tags_met and self._without_tags:
            self._tallies.add(self._without_tags[0])

    def _compare(self, found: Numbered, wanted: dict[int, bool], store_timestamp_ms: int) -> None:
        """An entry of a record that is there."""
        file, number, entry, inherited_ms = found
        if entry.key_hash not in wanted:
            what = "the record has no key with this hash"
            self._report(found, "wrong-index-entry", "warning", what, found=f"{entry.key_hash}")
        begin_ms: int | None = file.header.begin_timestamp_ms
        if number == FIRST_ENTRY:
            if begin_ms != store_timestamp_ms:
                began_ms = file.header.begin_timestamp_ms
                self._wrong_header(file, "beginTimestamp", store_timestamp_ms, began_ms)
            begin_ms = inherited_ms
        if begin_ms is None:
            return
        seconds = time_diff_s(store_timestamp_ms, begin_ms)
        if entry.time_diff_s != seconds:
            self._report(
                found,
                "wrong-index-entry",
                "warning",
                "the entry tells another time than its record: lookups by time may miss it",
                expected=f"{seconds} s",
                found=f"{entry.time_diff_s} s",
            )

    def _refuse(self, found: Numbered) -> None:
        """An entry that leads to no record."""
        at = found.entry.physical_offset
        if at >= self._log_start and not self._damaged_between(at, at + 1):
            what = f"no record begins at physical offset {at}, where the entry leads"
            self._report(found, "wrong-index-entry", "warning", what)

    def _note_missing(self, at: int, *, is_tag: bool) -> None:
        current, files = self._current, self._index_files
        path = self._directory
        if files:
            path = (files[-1] if current is None else current.file).path
        rebuilt = self._rebuilt_from is not None and at >= self._rebuilt_from
        finding = Finding(
            code="missing-index-entry",
            severity="info" if rebuilt else "warning",
            path=str(path),
            message=f"the record at physical offset {at} is not in the index under each of its keys",
        )
        if not is_tag or self._tags_met:
            self._tallies.add(finding)
        elif not self._without_tags:
            what = "no tag is in the index, as RocketMQ 4.x leaves it"
            finding = replace(finding, code="index-without-tags", severity="info", message=what)
            self._without_tags.append(finding)

    # ---- the entries, in order -----------------------------------------------------------------

    def _in_order(self) -> Iterator[Numbered]:
        """The entries that do not step out of the order of the log; those that do are told."""
        last = -1
        waiting: Numbered | None = None
        for found in self._all():
            at = found.entry.physical_offset
            if at < last:
                self._misplaced(found)
                continue
            if waiting is not None:
                if at < waiting.entry.physical_offset:
                    self._misplaced(waiting)
                else:
                    last = waiting.entry.physical_offset
                    yield waiting
            waiting = found
        if waiting is not None:
            yield waiting

    def _misplaced(self, found: Numbered) -> None:
        what = "the entry is not in the order of the log"
        at = found.entry.physical_offset
        self._report(found, "wrong-index-entry", "warning", what, found=f"physical offset {at}")

    def _all(self) -> Iterator[Numbered]:
        """Every entry of every file; chains, slots and header of a file are checked on the way."""
        inherited_ms: int | None = None
        for file in self._index_files:
            slots = array("i", bytes(file.slots * SLOT_SIZE))
            last: IndexEntry | None = None
            for number, entry in self._of_file(file):
                slot = entry.key_hash % file.slots
                found = Numbered(file, number, entry, inherited_ms)
                if entry.previous != slots[slot]:
                    self._report(
                        found,
                        "wrong-index-entry",
                        "warning",
                        "the chain of its slot goes on elsewhere",
                        expected=f"entry {slots[slot]}",
                        found=f"entry {entry.previous}",
                    )
                slots[slot] = number
                last = entry
                yield found
            self._check_slots(file, slots)
            self._check_header(file, last, slots)
            inherited_ms = file.header.end_timestamp_ms

    def _of_file(self, file: KeyIndexFile) -> Iterator[tuple[int, IndexEntry]]:
        stop = min(file.header.index_count, file.entries)
        with self._files.borrow(file.path) as opened:
            for first in range(FIRST_ENTRY, stop, ENTRIES_AT_ONCE):
                count = min(stop - first, ENTRIES_AT_ONCE)
                data = opened.pread(count * ENTRY_SIZE, entry_position(file.slots, first))
                whole = data[: len(data) - len(data) % ENTRY_SIZE]
                yield from enumerate(decode_entries(whole), start=first)

    def _check_slots(self, file: KeyIndexFile, expected: array[int]) -> None:
        with self._files.borrow(file.path) as opened:
            stored = file_order(array("i", opened.pread(file.slots * SLOT_SIZE, HEADER_SIZE)))
        if stored == expected or not stored:
            return
        for slot, (wanted, found) in enumerate(zip(expected, stored, strict=True)):
            if wanted != found:
                self._tallies.add(
                    Finding(
                        code="wrong-index-slot",
                        severity="warning",
                        path=str(file.path),
                        position=slot_position(slot),
                        expected=f"entry {wanted}",
                        found=f"entry {found}",
                        message="the slot does not lead to the newest entry of its chain",
                    )
                )

    def _check_header(self, file: KeyIndexFile, last: IndexEntry | None, slots: array[int]) -> None:
        header = file.header
        if file.is_blank:
            self._wrong_header(file, "indexCount", "the number of the next entry", 0)
        if last is not None and header.end_physical_offset < last.physical_offset:
            end = header.end_physical_offset
            self._wrong_header(file, "endPhyOffset", last.physical_offset, end)
        used = len(slots) - slots.count(0)
        # 4.3 counted every entry.
        if header.hash_slot_count not in (used, header.index_count - 1):
            self._wrong_header(file, "hashSlotCount", used, header.hash_slot_count)

    def _wrong_header(self, file: KeyIndexFile, field: str, expected: object, found: int) -> None:
        self._tallies.add(
            Finding(
                code="wrong-index-header",
                severity="warning",
                path=str(file.path),
                position=0,
                expected=f"{field} {expected}",
                found=f"{field} {found}",
                message="the header does not fit the entries: lookups may miss records",
            )
        )

    def _report(self, place: Numbered, code: str, severity: str, what: str, **facts: str) -> None:
        self._tallies.add(
            Finding(
                code=code,
                severity=severity,
                path=str(place.file.path),
                position=entry_position(place.file.slots, place.number),
                message=f"entry {place.number}: {what}",
                **facts,  # type: ignore[arg-type]  # named by the callers
            )
        )
