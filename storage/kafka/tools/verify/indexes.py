"""Check of the entries of an index against the log next to it.

Owns the judgement of entries; its input is the batches of the log in order; must not read files. An
index written across restarts holds other entries than a rebuild would give. So an entry counts as
wrong only if it misleads a reader:

- offset index: the batch that starts at the entry's position does not end with the entry's offset;
- time index: no batch ends with the entry's offset, or its time is not the largest up to that batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.kafka.format import offset_index, time_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index.indexes import NO_TIMESTAMP


class WrongEntries:
    """The number of wrong entries of a file, and the first wrong entry."""

    def __init__(self, size_bytes: int) -> None:
        self.count = 0
        self.position: int | None = None
        self.expected = ""
        self.found = ""
        self._size_bytes = size_bytes

    def add(self, index: int, expected: str, found: object) -> None:
        """Add a wrong entry: the `index`-th entry of the file."""
        if not self.count:
            self.position = index * self._size_bytes
            self.expected, self.found = expected, str(found)
        self.count += 1


class OffsetEntries:
    """The entries of an `.index`, compared with the batches of its log in order."""

    def __init__(self, entries: Sequence[tuple[int, int]], base_offset: int) -> None:
        self.wrong = WrongEntries(offset_index.ENTRY_SIZE)
        self._entries = entries
        self._base_offset = base_offset
        self._at = 0

    def meet(self, position: int, header: BatchHeader) -> None:
        """Compare the entries with a good batch."""
        self._refuse_before(position)
        if self._at < len(self._entries) and self._entries[self._at][1] == position:
            offset = self._base_offset + self._entries[self._at][0]
            if offset != header.last_offset:
                self.wrong.add(self._at, f"offset {header.last_offset}", offset)
            self._at += 1

    def pass_over(self, position: int, end: int) -> None:
        """Skip a bad range: entries that point into it cannot be judged."""
        self._refuse_before(position)
        while self._at < len(self._entries) and self._entries[self._at][1] < end:
            self._at += 1

    def finish(self) -> None:
        """Handle the end of the log: entries that are left point at no batch."""
        self._refuse_before(None)

    def _refuse_before(self, position: int | None) -> None:
        while self._at < len(self._entries):
            found = self._entries[self._at][1]
            if position is not None and found >= position:
                return
            self.wrong.add(self._at, "the position of a batch", found)
            self._at += 1


class TimeEntries:
    """The entries of a `.timeindex`, compared with the batches of its log in order."""

    def __init__(self, entries: Sequence[tuple[int, int]], base_offset: int) -> None:
        self.wrong = WrongEntries(time_index.ENTRY_SIZE)
        self.largest_ms = NO_TIMESTAMP
        self.blind = False
        self._entries = entries
        self._base_offset = base_offset
        self._at = 0

    @property
    def is_behind(self) -> bool:
        """Whether the last entry's time, which lookups use, is below the largest time of the log."""
        last_ms = self._entries[-1][0] if self._entries else NO_TIMESTAMP
        return not self.blind and not self.wrong.count and last_ms < self.largest_ms

    def meet(self, header: BatchHeader) -> None:
        """Compare the entries with a good batch."""
        reached_ms = max(self.largest_ms, header.max_timestamp)
        rises, self.largest_ms = reached_ms > self.largest_ms, reached_ms
        if self.blind:
            return
        self._refuse_before(header.last_offset)
        if self._at < len(self._entries):
            time_ms, relative_offset = self._entries[self._at]
            if self._base_offset + relative_offset == header.last_offset:
                if time_ms != reached_ms or not rises:
                    self.wrong.add(self._at, f"time {reached_ms}, first reached there", time_ms)
                self._at += 1

    def pass_over(self) -> None:
        """Skip a bad range: after it the largest time is unknown, and no entry is judged."""
        self.blind = True

    def finish(self) -> None:
        """Handle the end of the log: entries that are left belong to no batch."""
        if not self.blind:
            self._refuse_before(None)

    def _refuse_before(self, offset: int | None) -> None:
        while self._at < len(self._entries):
            found = self._base_offset + self._entries[self._at][1]
            if offset is not None and found >= offset:
                return
            self.wrong.add(self._at, "the last offset of a batch", found)
            self._at += 1


def wrong_transaction(
    stored: Sequence[AbortedTransaction],
    rebuilt: Sequence[AbortedTransaction],
    *,
    start_offset: int,
) -> tuple[str, str] | None:
    """Return (expected, found) for the first entry of a `.txnindex` that differs from the log.

    Only the file knows transactions that began before the log start. They may have lowered the last
    stable offset of other entries.
    """
    by_marker = {entry.last_offset: entry for entry in stored}
    for entry in rebuilt:
        found = by_marker.pop(entry.last_offset, None)
        if found is None or not _is_same(found, entry, start_offset):
            return str(tuple(entry)), "no entry" if found is None else str(tuple(found))
    for entry in by_marker.values():
        if entry.first_offset >= start_offset:
            return "no entry", str(tuple(entry))
    return None


def _is_same(found: AbortedTransaction, entry: AbortedTransaction, start_offset: int) -> bool:
    if start_offset == 0:
        return found == entry
    return found.producer_id == entry.producer_id and found.first_offset <= entry.first_offset
