"""Leader epochs: the entries of a partition's leader-epoch-checkpoint, and the epoch of this server's own appends.

Owns the rules by which entries are added and removed (LeaderEpochFileCache), and by which this server raises an epoch;
must not do IO. Entries ascend in both epoch and start offset; the first entry starts at the log start.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from storage.coding.varint import INT32_MAX, INT64_MAX


class OwnEpochs:
    """The leader epochs that this server assigns: a partition's first append after a start raises its epoch.

    This holds only while no broker has raised an epoch, because in a broker's store its controller assigns epochs. An
    epoch of this server would be above the broker's next one. The broker then drops this server's epoch entry, and
    consumers that reach a record with that epoch wait forever. So in a broker's store the newest epoch stays as it is.

    `highest` is the highest epoch that this server assigned. `note` makes a higher epoch durable before it is assigned
    (None: the store is a broker's). Thread-safe.
    """

    def __init__(self, highest: int = 0, note: Callable[[int], None] | None = None) -> None:
        self._highest = highest
        self._note = note
        self._lock = threading.Lock()

    def meet(self, epoch: int | None) -> None:
        """Note a partition's newest epoch at a start. Above `highest` it is a broker's: then no epoch is raised."""
        if epoch is not None and epoch > self._highest:
            self._note = None  # it meets the same epoch at the next start, while the log has it

    def next_after(self, latest: int | None) -> int:
        """Return the epoch of the first append to a partition whose newest epoch is `latest`."""
        if latest is None:
            return 0
        if self._note is None:
            return latest
        epoch = min(latest + 1, INT32_MAX)
        with self._lock:
            if epoch > self._highest:
                self._note(epoch)
                self._highest = epoch
        return epoch


class LeaderEpochs:
    """The epoch entries of one partition. Not thread-safe: the partition's append lock guards it."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = list(entries)

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        """The entries (epoch, start offset), ascending."""
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        """The newest epoch, or None without entries."""
        entries = self._entries
        return entries[-1][0] if entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an entry if `epoch` is above the newest epoch; return whether an entry was added. Epoch -1: no epoch.

        Entries that start at or after `start_offset` are removed first: an epoch without a record is replaced by the
        next epoch.
        """
        if epoch < 0 or (self._entries and epoch <= self._entries[-1][0]):
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """Return the newest epoch that is not above `epoch`, and its end in a log that ends at `log_end`
        (LeaderEpochFileCache.endOffsetFor). None for an epoch above the newest one.

        For an epoch below all entries it is this epoch, which ends where the first entry begins.
        """
        if epoch < 0 or not self._entries or epoch > self._entries[-1][0]:
            return None
        above = bisect_right(self._entries, (epoch, INT64_MAX))
        end = self._entries[above][1] if above < len(self._entries) else log_end
        return (self._entries[above - 1][0] if above else epoch), min(end, log_end)

    def truncate_start(self, start_offset: int) -> None:
        """Cut the entries to a log that now begins at `start_offset`. Earlier entries are removed; the entry in force
        there then starts at `start_offset`.
        """
        before = [entry for entry in self._entries if entry[1] <= start_offset]
        after = [entry for entry in self._entries if entry[1] > start_offset]
        self._entries = [(before[-1][0], start_offset), *after] if before else after

    def truncate_end(self, end_offset: int) -> None:
        """Cut the entries to a log that now ends at `end_offset`: remove entries that start at or after it."""
        self._entries = [entry for entry in self._entries if entry[1] < end_offset]
