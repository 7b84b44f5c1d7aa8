"""Which leader wrote from which offset on: the entries behind a partition's leader-epoch-
checkpoint; and which epoch a writer of ours takes.

Owns the rules by which entries come and go (LeaderEpochFileCache), and when ours rise; must not do IO. Entries rise in
both epoch and start offset; the first one starts at the log start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from storage.kafka.settings import INT32_MAX


class OwnEpochs:
    """The epochs that a store's own starts give: a partition's first append after a start raises its epoch.

    Only as long as nobody else has raised one: where a broker leads, epochs are its controller's to give. One that we
    made up would pass the broker's next, which drops the entry of ours, and whose consumers wait for ever behind a
    record that bears it. There the newest epoch stays. `highest` is the highest that was given here; `note` makes a
    higher one durable before it is given (None: the store is a broker's). Thread-safe.
    """

    def __init__(self, highest: int = 0, note: Callable[[int], None] | None = None) -> None:
        self._highest = highest
        self._note = note
        self._lock = threading.Lock()

    def meet(self, epoch: int | None) -> None:
        """The newest epoch of a partition that is there at a start: was it given here?"""
        if epoch is not None and epoch > self._highest:
            self._note = None  # for as long as it is there, also at the next start

    def next_after(self, latest: int | None) -> int:
        """The epoch of the first append to a partition whose newest epoch is `latest`."""
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
        """(epoch, start offset), ascending."""
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        """The newest epoch, or None when nothing has been written under any."""
        return self._entries[-1][0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an entry if `epoch` is newer than the newest; tells whether anything changed. -1: none.

        Entries with an epoch or a start that is not lower go first: an epoch that got no record is
        replaced by the next.
        """
        if epoch < 0 or (self._entries and epoch <= self._entries[-1][0]):
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def truncate_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: earlier entries go, the one in force there is cut
        to it.
        """
        before = [entry for entry in self._entries if entry[1] <= start_offset]
        after = [entry for entry in self._entries if entry[1] > start_offset]
        self._entries = [(before[-1][0], start_offset), *after] if before else after

    def truncate_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: entries that start at or behind it go."""
        self._entries = [entry for entry in self._entries if entry[1] < end_offset]
