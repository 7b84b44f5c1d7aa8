"""One consume queue: entries of 20 bytes that point into the commit log, in order of their offsets.

Owns the entries of one topic and queue id: appending, reading, cutting, and the fillers before the
first entry; must not know the content of a record. Source: ConsumeQueue of RocketMQ. The offset of an
entry is its position divided by 20.

    position in the run   0        20       40
    unit                  offset 0 offset 1 ... end | taken ... taken_end | held ... readable_end
                          in files                  | in memory

Entries are taken while their file does not exist yet: `WaitingQueues` creates it, and they are written then. Entries
that cannot be taken now are held in memory too, but only for readers, until they are taken.
All entries are derived from the log: they need not be durable before a checkpoint counts them. One writer
at a time (the dispatcher); readers at any time, below `readable_end`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import DamagedStore
from storage.files import HandleCache
from storage.rocketmq.format.queue_entry import (
    FILLER,
    UNIT,
    UNIT_SIZE,
    QueueEntry,
    decode_units,
    positions_in,
    sound_part,
)
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state.blocked_paths import IN_THE_WAY

FILES_AT_ONCE: Final = 32
"""Files that are created and synced together. More take fewer syncs, but a commit of the journal longer."""
NOWHERE = -1
UNITS_AT_ONCE = 50_000
READ_AT_ONCE: Final = 1 << 13  # as objects
BISECTED_IN_MEMORY: Final = 256  # entries: a page of the file has 204


class Held(NamedTuple):
    """Queue entries that are in no file, from the offset `start` on."""

    start: int
    units: bytes

    @property
    def end(self) -> int:
        """The offset after the last held entry."""
        return self.start + len(self.units) // UNIT_SIZE


NOTHING_HELD: Final = Held(0, b"")


class ConsumeQueue:
    """The entries of one queue. `start` and `end` are offsets; `end` moves after the entries are
    written.
    """

    def __init__(self, files: HandleCache, directory: Path, file_bytes: int) -> None:
        self.run = FileSequence(files, directory, file_bytes, kind="consumequeue")
        self.start = 0  # the first offset of a record that still exists
        self.end = 0
        self._taken = 0  # the offset after the last entry that was taken; see `taken_end`
        self.last_end = NOWHERE  # the physical offset after the last taken entry's record
        self.is_torn = False  # entries were found after the end, past a position without an entry
        self._synced = 0  # the position up to which entries are on disk; moved by `sync`
        self.unsettled: int | None = None  # base of a created file that is not durable yet
        self._held = NOTHING_HELD  # replaced as a whole, so that a reader's copy does not change

    @property
    def directory(self) -> Path:
        """The folder consumequeue/TOPIC/QUEUEID."""
        return self.run.directory

    def look_at(self, bases: Sequence[int], end: int, last_end: int) -> None:
        """Set the files, the next offset and the end of the last record as given. For reading only."""
        self.run.take_as_there(bases)
        self.start, self.end, self.last_end = self.first_offset, end, last_end

    def use(self, start: int, end: int) -> None:
        """Set the first and the next offset, as recovery found them, and count all entries as synced."""
        self.start, self.end, self._taken = start, end, end
        self._synced = end * UNIT_SIZE
        self.last_end = NOWHERE
        for offset in range(end - 1, self.first_offset - 1, -1):
            unit = self.unit(offset)
            if not unit.is_filler:
                self.last_end = unit.physical_offset + unit.size
                break

    def forget(self) -> None:
        """Treat the queue as having no entries; its files stay."""
        self.run.forget()
        self.use(0, 0)

    def discard(self) -> None:
        """Remove all files of the queue, including files that were forgotten."""
        self.run.load()
        self._remove_last_first(self.run.bases)
        self.use(0, 0)

    @property
    def first_offset(self) -> int:
        """The offset of the first entry that a file has room for."""
        return self.run.start // UNIT_SIZE

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no entry; fillers do not count."""
        return self.last_end == NOWHERE

    @property
    def taken_end(self) -> int:
        """The offset after the last entry that was appended or taken: `end` unless entries wait for their file."""
        return max(self.end, self._taken)

    @property
    def readable_end(self) -> int:
        """The offset after the last entry that `read` returns."""
        held = self._held  # read before `end`: `append` moves `end`, then drops held entries
        return max(self.end, held.end)

    @property
    def has_empty_files(self) -> bool:
        """Whether files without an entry follow the others: they were made just before a crash. From such
        a last file RocketMQ concludes that the queue is empty (ConsumeQueue.correctMinOffset).
        """
        return bool(self._behind(self.end))

    def _behind(self, end: int) -> Sequence[int]:
        """Return the files without an entry below `end` that may be removed. The first file stays unless
        `end` is 0: its name records the next offset.
        """
        bases = self.run.bases[1:] if end else self.run.bases
        return [base for base in bases if base >= end * UNIT_SIZE]

    def append(self, units: bytes, offset: int, last_end: int) -> None:
        """Append entries; `offset` is the offset of the first of them.

        If the queue is empty and does not begin at 0, fillers are written before it, from the start of
        its first file.
        """
        if self.unsettled is not None:
            settle([self])
        if self.is_empty and self.end != offset:
            self._begin_at(offset)
        position = self.end * UNIT_SIZE
        at = 0
        while at < len(units):
            base = position - position % self.run.file_bytes
            if self.run.base_of(position) is None:
                self._create(base)
            size = min(len(units) - at, base + self.run.file_bytes - position)
            self.run.write(position, units[at : at + size] if size < len(units) else units)
            position += size
            at += size
        self.last_end = last_end
        self._written_to(position // UNIT_SIZE)

    def _written_to(self, end: int) -> None:
        """Move `end`, then drop the entries in memory if all of them are written."""
        self.end = end
        if self._held.end <= end:
            self._held = NOTHING_HELD

    def take(self, units: bytes, offset: int, last_end: int) -> int:
        """Append entries as `append` does, but create no file for them: without one they wait in memory.

        Return how many bytes of them wait; then `write_taken` must follow, once `make_room` and `settle` have made
        the file. Only a queue that begins at a later offset than 0 gets its first file at once.
        """
        position = self.taken_end * UNIT_SIZE
        has_file = self.run.base_of(position + len(units) - UNIT_SIZE) is not None
        begins_later = self.is_empty and self.end != offset
        if begins_later or (has_file and self.taken_end == self.end):
            self.append(units, offset, last_end)
            return 0
        held, waiting = self._held, self._waiting + units
        taken_end = self.end + len(waiting) // UNIT_SIZE
        # Readers may use the entries that are only held: they stay.
        only_held = held.units[(taken_end - held.start) * UNIT_SIZE :]
        self._held = Held(self.end, waiting + only_held)
        self._taken = taken_end
        self.last_end = last_end
        return len(units)

    @property
    def is_waiting(self) -> bool:
        """Whether entries that were taken are not written yet."""
        return self._taken > self.end

    @property
    def _waiting(self) -> bytes:
        held, end = self._held, self.end
        first, stop = end - held.start, self.taken_end - held.start
        return held.units[first * UNIT_SIZE : stop * UNIT_SIZE]

    def write_taken(self) -> int:
        """Write the entries that wait for the file at `end`, which is durable. Return how many bytes were written."""
        position = self.end * UNIT_SIZE
        base = self.run.base_of(position)
        if base is None or not self.is_waiting:
            return 0
        units = self._waiting[: base + self.run.file_bytes - position]
        self.run.write(position, units)
        self._written_to(self.end + len(units) // UNIT_SIZE)
        return len(units)

    def hold(self, units: bytes) -> None:
        """Let readers find these entries after the taken entries. They are not part of the queue: `taken_end`
        stays, and the caller must pass them to `append` or `take` later.
        """
        self._held = Held(self.end, self._waiting + units)

    def _begin_at(self, offset: int) -> None:
        position = offset * UNIT_SIZE
        base = position - position % self.run.file_bytes
        self.run.remove([b for b in self.run.bases if b != base])
        if self.run.base_of(base) is None:
            self._create(base)
        self.run.write(base, FILLER * ((position - base) // UNIT_SIZE))
        self._synced = base
        self.start = self.end = offset

    def fill_to(self, offset: int) -> None:
        """Write fillers up to `offset`, so that the next entry gets this offset. Durable on return.

        Records of the log's first possible file must not follow: RocketMQ skips them when it reads a filler
        (ConsumeQueue.getIndexBuffer and DefaultMessageStore.getMessage).
        """
        if self.is_empty:
            if self.end != offset:
                self._begin_at(offset)
        else:
            while self.end < offset:
                count = min(offset - self.end, UNITS_AT_ONCE)
                self.append(FILLER * count, self.end, self.last_end)
        self.sync()

    def make_room(self, offset: int) -> None:
        """Create the file for the next entry, if its offset is `offset` and no file has room. Entries may
        be written to the file after `settle` has made it durable.
        """
        position = self.end * UNIT_SIZE
        if self.unsettled is None and offset == self.end and self.run.base_of(position) is None:
            self._make(position - position % self.run.file_bytes)

    def _make(self, base: int) -> None:
        fs = self.run.files.fs
        for path in (self.directory.parent, self.directory):
            if fs.exists(path) and not fs.is_dir(path):
                raise DamagedStore(f"{path}: {IN_THE_WAY}", path=str(path), position=0, findings=())
        if not fs.exists(self.directory):
            fs.make_dir(self.directory)
        self.run.make(base)
        self.unsettled = base

    def _create(self, base: int) -> None:
        self._make(base)
        settle([self])

    def read(self, offset: int, count: int) -> Sequence[QueueEntry]:
        """Read at most `count` entries from `offset` on, below the readable end. Entries are not checked: a
        damaged entry is returned and is not `is_valid`. Raises Corrupt if a file is missing.
        """
        held = self._held  # read before `end`: `append` moves `end`, then drops held entries
        written = min(count, self.end - offset)
        units: list[QueueEntry] = []
        while len(units) < written:
            position = (offset + len(units)) * UNIT_SIZE
            data = self.run.read(position, (written - len(units)) * UNIT_SIZE)
            if len(data) < UNIT_SIZE:
                raise self.run.missing(position)
            units += decode_units(data[: len(data) - len(data) % UNIT_SIZE])
        if held.start <= offset + len(units) < min(offset + count, held.end):
            first, stop = offset + len(units) - held.start, offset + count - held.start
            units += decode_units(held.units[first * UNIT_SIZE : stop * UNIT_SIZE])
        return units

    def entries(self, first: int, stop: int) -> Iterator[tuple[int, QueueEntry]]:
        """Yield (offset, entry) for the offsets in [first, stop), which have entries. Raises Corrupt as `read`."""
        while first < stop:
            units = self.read(first, min(READ_AT_ONCE, stop - first))
            yield from enumerate(units, first)
            first += len(units)

    def positions(self, offset: int) -> Iterator[bytes]:
        """Yield the physical offsets in the entries from `offset` on, as `positions_in` packs them."""
        for _, units in self._chunks(offset):
            yield positions_in(units)

    def sound_end(self, offset: int) -> int:
        """Return the first offset from `offset` on with an entry that is invalid or does not point after all
        earlier entries; `end` if all are sound. A filler points to 0 and may stand anywhere.
        """
        last = -1
        for first, units in self._chunks(offset):
            sound_bytes, last = sound_part(units, last)
            if sound_bytes < len(units):
                return first + sound_bytes // UNIT_SIZE
        return self.end

    def _chunks(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset of the first, bytes) of the entries from `offset` to the end, many at a time."""
        position, end = offset * UNIT_SIZE, self.end * UNIT_SIZE
        for start, data in self.run.chunks(position, end, UNITS_AT_ONCE * UNIT_SIZE):
            yield start // UNIT_SIZE, data[: len(data) - len(data) % UNIT_SIZE]

    def unit(self, offset: int) -> QueueEntry:
        """Return one entry below the end. Raises Corrupt if there is none."""
        units = self.read(offset, 1)
        if not units:
            raise self.run.missing(offset * UNIT_SIZE)
        return units[0]

    def cut(self, end: int) -> None:
        """Remove the entries from `end` on: overwrite them with zeros and remove the files after them. The
        first file stays if its name is needed for the next offset.
        """
        position = end * UNIT_SIZE
        self._remove_last_first(self._behind(end))
        data_end = self.run.data_end(position)
        if data_end > position:
            self.run.zero(position, data_end)
        self.use(min(self.start, end), end)

    def _remove_last_first(self, bases: Sequence[int]) -> None:
        """Remove files in descending order. Otherwise a crash could leave one of them as the queue's first
        file: its name would mean that the entries before it were deleted, and they would not be rebuilt.
        """
        self.run.remove_in_turn(bases[::-1])

    def sync(self) -> None:
        """Sync all entries that are not on disk yet."""
        end = self.end * UNIT_SIZE
        if self._synced < end:
            self.run.sync(self._synced, end)
            self._synced = end

    def distrust(self, offset: int) -> None:
        """Make the next `sync` write entries from `offset` on again: they exist but may not be on disk.
        For use after a crash of the process, when the page cache may still hold its writes.
        """
        position = min(offset, self.end) * UNIT_SIZE
        for base in self.run.bases:
            if base + self.run.file_bytes > position:
                self.run.distrust(base)
        self._synced = min(self._synced, position)

    def drop_outlived(self) -> None:
        """Remove the files that hold only entries before `start`, the oldest first; the last file stays.
        Durable on return.
        """
        first = self.start * UNIT_SIZE
        outlived = [base for base in self.run.bases[:-1] if base + self.run.file_bytes <= first]
        self.run.remove_in_turn(outlived)

    def first_at(self, physical_offset: int) -> int:
        """Return the first offset of a record at or after a physical offset; `end` if there is none.

        An invalid entry counts as after it: after a power cut, invalid entries, with valid entries after
        them, may follow the entries that were synced.
        """
        low, high = max(self.start, self.first_offset), self.end
        middle = low  # try the first entry first: if no record was deleted, it is the answer after one read
        while low < high:
            at, unit = self._first_unit(middle, high) or (high - 1, None)
            if unit is not None and (not unit.is_valid or unit.physical_offset >= physical_offset):
                high = at
            else:
                low = at + 1
            middle = (low + high) // 2
        return low

    def _first_unit(self, offset: int, stop: int) -> tuple[int, QueueEntry] | None:
        """Return (offset, entry) of the first entry in [offset, stop) that is not a filler; None if none."""
        for at in range(offset, stop):
            unit = self.unit(at)
            if not unit.is_filler:
                return at, unit
        return None

    def written_end(self) -> int:
        """Return the offset after the last entry, by a bisection of the last file with an entry: entries
        are written in order, and the rest of a file is zeros.
        """
        for base in reversed(self.run.bases):
            first = base // UNIT_SIZE
            end = self._valid_end(first, (base + self.run.file_bytes) // UNIT_SIZE)
            if end > first:
                return end
        return self.first_offset

    def _valid_end(self, low: int, high: int) -> int:
        """Return the offset after the last valid entry in [low, high), by bisection. A start does this for every queue:
        a known hole is not read, and the last entries are read at once.
        """
        zeros_from = self.run.zeros_from(low * UNIT_SIZE)
        data, data_start = b"", 0
        while low < high:
            if not data and high - low <= BISECTED_IN_MEMORY:
                data = self.run.read(low * UNIT_SIZE, (high - low) * UNIT_SIZE)
                data_start = low
            middle = (low + high) // 2
            if middle * UNIT_SIZE >= zeros_from:
                high = middle
                continue
            at = (middle - data_start) * UNIT_SIZE
            unit = (
                data[at : at + UNIT_SIZE] if data else self.run.read(middle * UNIT_SIZE, UNIT_SIZE)
            )
            if QueueEntry._make(UNIT.unpack(unit.ljust(UNIT_SIZE, b"\0"))).is_valid:
                low = middle + 1
            else:
                high = middle
        return low


def settle(queues: Iterable[ConsumeQueue]) -> None:
    """Make the files that `make_room` created for these queues durable: their length and name, and the
    folders up to the store's root.

    The first sync commits all earlier file creations in one commit of the file system's journal, so that
    the other syncs have little to do. Syncing each file before creating the next takes a commit each.
    """
    unsettled = [(queue, queue.unsettled) for queue in queues if queue.unsettled is not None]
    if not unsettled:
        return
    for queue, base in unsettled:
        queue.run.sync(base, base + 1)
    folders = {
        folder: queue.run.files.fs
        for queue, _ in unsettled
        for folder in (queue.directory, *queue.directory.parents[:3])
    }
    for folder, fs in folders.items():
        fs.sync_dir(folder)
    for queue, _ in unsettled:
        queue.unsettled = None


class WaitingQueues:
    """The queues with entries that wait for their files, and the creation of these files, many at once.

    `lock` is held by the writer of the queues. It is taken only to note and to write entries, not during the creation
    and the syncs of files, so that neither appends nor readers wait for those. A crash may leave a file without
    entries, but no entry in a file whose length or name is not on disk.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.size_bytes = 0  # of the entries that wait; written under `lock`
        self._lock = lock
        self._queues: dict[ConsumeQueue, None] = {}  # the first to wait first; changed under `lock`

    def __len__(self) -> int:
        return len(self._queues)

    def take(self, queue: ConsumeQueue, units: bytes, offset: int, last_end: int) -> None:
        """Append entries, or let them wait (lock held); see ConsumeQueue.take."""
        waiting_bytes = queue.take(units, offset, last_end)
        if waiting_bytes:
            self._queues[queue] = None
            self.size_bytes += waiting_bytes

    def listed(self) -> Sequence[ConsumeQueue]:
        """Return the queues that wait now (lock held)."""
        return list(self._queues)

    def write(self, queues: Sequence[ConsumeQueue]) -> Sequence[ConsumeQueue]:
        """Create the next file of the first of these queues, sync the files, then each changed folder once, and then
        write the entries. Return the queues that still wait. One call at a time.

        Raises DiskFull (all entries that were not written wait), IoFailure (a sync or write failed), DamagedStore.
        """
        first = queues[:FILES_AT_ONCE]
        for queue in first:
            if queue.is_waiting:
                queue.make_room(queue.end)
        settle(first)
        with self._lock:
            for queue in first:
                self.size_bytes -= queue.write_taken()
                if not queue.is_waiting:
                    self._queues.pop(queue, None)
        return [queue for queue in first if queue.is_waiting] + list(queues[FILES_AT_ONCE:])
