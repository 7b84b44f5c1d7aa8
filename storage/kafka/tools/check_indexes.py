"""Whether the entries of an index tell the truth about the log beside it.

Owns the judgement of entries, fed with the batches of the log in order; must not read files. An index
written across restarts holds other entries than a rebuild would give, so an entry counts as wrong only
if it misleads: offset index: the batch that starts at its position does not end with its offset; time
index: no batch ends with its offset, or its time is not the largest up to there.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.kafka.format import offset_index, time_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.indexes import NO_TIMESTAMP


class WrongEntries:
    """How many entries of a file were found wrong, and the first of them."""

    def __init__(self, size_bytes: int) -> None:
        self.count = 0
        self.position: int | None = None
        self.expected = ""
        self.found = ""
        self._size_bytes = size_bytes

    def add(self, index: int, expected: str, found: object) -> None:
        """One more: the `index`-th entry of the file."""
        if not self.count:
            self.position = index * self._size_bytes
            self.expected, self.found = expected, str(found)
        self.count += 1


class OffsetEntries:
    """The entries of an `.index`, met by the batches of its log."""

    def __init__(self, entries: Sequence[tuple[int, int]], base_offset: int) -> None:
        self.wrong = WrongEntries(offset_index.ENTRY_SIZE)
        self._entries = entries
        self._base_offset = base_offset
        self._at = 0

    def meet(self, position: int, header: BatchHeader) -> None:
        """A good batch."""
        self._refuse_before(position)
        if self._at < len(self._entries) and self._entries[self._at][1] == position:
            offset = self._base_offset + self._entries[self._at][0]
            if offset != header.last_offset:
                self.wrong.add(self._at, f"offset {header.last_offset}", offset)
            self._at += 1

    def pass_over(self, position: int, end: int) -> None:
        """A bad place: what points into it cannot be judged."""
        self._refuse_before(position)
        while self._at < len(self._entries) and self._entries[self._at][1] < end:
            self._at += 1

    def finish(self) -> None:
        """The end of the log."""
        self._refuse_before(None)

    def _refuse_before(self, position: int | None) -> None:
        while self._at < len(self._entries):
            found = self._entries[self._at][1]
            if position is not None and found >= position:
                return
            self.wrong.add(self._at, "the position of a batch", found)
            self._at += 1


class TimeEntries:
    """The entries of a `.timeindex`, met by the batches of its log."""

    def __init__(self, entries: Sequence[tuple[int, int]], base_offset: int) -> None:
        self.wrong = WrongEntries(time_index.ENTRY_SIZE)
        self.largest_ms = NO_TIMESTAMP
        self.blind = False
        self._entries = entries
        self._base_offset = base_offset
        self._at = 0

    @property
    def is_behind(self) -> bool:
        """Whether the last entry does not hold the largest time, which lookups go by."""
        last_ms = self._entries[-1][0] if self._entries else NO_TIMESTAMP
        return not self.blind and not self.wrong.count and last_ms < self.largest_ms

    def meet(self, header: BatchHeader) -> None:
        """A good batch."""
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
        """A bad place: from here on the largest time is not known."""
        self.blind = True

    def finish(self) -> None:
        """The end of the log."""
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
    """(expected, found) for the first entry of a `.txnindex` that is not as the log says.

    What began before the log start is known to the file alone, and may have held its neighbours'
    last stable offsets down.
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
