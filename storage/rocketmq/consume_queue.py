"""One queue: units of 20 bytes that point into the commit log, in order of their offsets.

Owns the units of one topic and queue id: appending, reading, cutting, filling what lies before the
first one; must not know what is in a record. Source: ConsumeQueue of RocketMQ. A unit's offset is
its position divided by 20.

    position in the run   0        20       40
    unit                  offset 0 offset 1 ... end | held in memory ... readable_end

Units that cannot be written now are held, for readers only, until `append` writes them. All is derived
from the log: nothing here needs to be durable before a checkpoint says so. One writer at a time (the
dispatcher); readers at any time, below `readable_end`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import DamagedStore
from storage.files import HandleCache
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.queue_unit import FILLER, FILLER_SIZE, UNIT, UNIT_SIZE, Unit

NOWHERE = -1
IN_THE_WAY: Final = (
    "a file in the place of a folder. Move it away: the next start builds the folder from the log"
)
UNITS_AT_ONCE = 50_000


class Held(NamedTuple):
    """Units that no file has, from the offset `start` on."""

    start: int
    units: bytes

    @property
    def end(self) -> int:
        """The offset behind the last of them."""
        return self.start + len(self.units) // UNIT_SIZE


NOTHING_HELD: Final = Held(0, b"")


class ConsumeQueue:
    """The units of one queue. `start` and `end` are offsets; `end` moves after the units are
    written.
    """

    def __init__(self, files: HandleCache, directory: Path, file_bytes: int) -> None:
        self.run = FileRun(files, directory, file_bytes, kind="consumequeue")
        self.start = 0  # the first offset whose record is there
        self.end = 0
        self.last_end = NOWHERE  # the physical offset behind the last unit's record
        self.is_torn = False  # units were found behind the end, after a place without one
        self._synced = 0  # the position up to which units are on disk; moved by `sync`
        self.unsettled: int | None = None  # the file that was made and is not durable yet
        self._held = NOTHING_HELD  # replaced as a whole, so that a reader's copy stays what it is

    @property
    def directory(self) -> Path:
        """The folder consumequeue/TOPIC/QUEUEID."""
        return self.run.directory

    def look_at(self, bases: Sequence[int], end: int, last_end: int) -> None:
        """What somebody else found, to be read only: the files, the next offset, and the last record's end."""
        self.run.take_as_there(bases)
        self.start, self.end, self.last_end = self.first_offset, end, last_end

    def use(self, start: int, end: int) -> None:
        """What recovery found: the first offset and the next one."""
        self.start, self.end = start, end
        self._synced = end * UNIT_SIZE
        self.last_end = NOWHERE
        for offset in range(end - 1, self.first_offset - 1, -1):
            unit = self.unit(offset)
            if not unit.is_filler:
                self.last_end = unit.physical_offset + unit.size
                break

    def forget(self) -> None:
        """Count all units as none, whatever the files hold."""
        self.run.forget()
        self.use(0, 0)

    def discard(self) -> None:
        """Remove all files of the queue, those that were forgotten too."""
        self.run.load()
        self._remove_last_first(self.run.bases)
        self.use(0, 0)

    @property
    def first_offset(self) -> int:
        """The offset of the first unit that a file has room for."""
        return self.run.start // UNIT_SIZE

    @property
    def is_empty(self) -> bool:
        """Whether no unit was ever written here."""
        return self.last_end == NOWHERE

    @property
    def readable_end(self) -> int:
        """The offset behind the last unit that `read` gives."""
        held = self._held  # before `end`, which has moved when they are let go
        return max(self.end, held.end)

    @property
    def has_empty_files(self) -> bool:
        """Whether files without a unit follow the others: made just before a crash. From such a last
        file the real store concludes that nothing of the queue is left (ConsumeQueue.correctMinOffset).
        """
        return bool(self._behind(self.end))

    def _behind(self, end: int) -> Sequence[int]:
        """The files without a unit below `end` that need not stay: the name of a first one tells the
        next offset, unless that is 0.
        """
        bases = self.run.bases[1:] if end else self.run.bases
        return [base for base in bases if base >= end * UNIT_SIZE]

    def append(self, units: bytes, offset: int, last_end: int) -> None:
        """Put units behind the others; `offset` is that of the first of them.

        A queue that does not begin at 0 gets fillers before it, as far as its first file reaches.
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
        self.end = position // UNIT_SIZE
        if self._held.end <= self.end:
            self._held = NOTHING_HELD

    def hold(self, units: bytes) -> None:
        """Let readers find these units behind those that are written. They are no part of the files: `end`
        stays, and `append` is to be given them again.
        """
        self._held = Held(self.end, units)

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
        """Let the next entry get this offset: fillers stand for those before it. Durable on return.

        Records of the log's first possible file must not follow: at a filler the real store skips them
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
        """Make the file for the unit that comes next, if that is `offset` and there is none; units are
        written to it when `settle` has made it durable.
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

    def read(self, offset: int, count: int) -> Sequence[Unit]:
        """Units from `offset` on, at most `count` and none behind the readable end, as they are: one that
        is damaged is not `is_valid`. Raises Corrupt where a file is gone.
        """
        held = self._held  # before `end`, which has moved when they are let go
        written = min(count, self.end - offset)
        units: list[Unit] = []
        while len(units) < written:
            position = (offset + len(units)) * UNIT_SIZE
            data = self.run.read(position, (written - len(units)) * UNIT_SIZE)
            if len(data) < UNIT_SIZE:
                raise self.run.missing(position)
            whole = memoryview(data)[: len(data) - len(data) % UNIT_SIZE]
            units += map(Unit._make, UNIT.iter_unpack(whole))
        if held.start <= offset + len(units) < min(offset + count, held.end):
            first, stop = offset + len(units) - held.start, offset + count - held.start
            rest = held.units[first * UNIT_SIZE : stop * UNIT_SIZE]
            units += map(Unit._make, UNIT.iter_unpack(rest))
        return units

    def positions(self, offset: int) -> list[int]:
        """Where the units from `offset` on point to, less the fillers and what is no unit: zeros lead
        nowhere, and not to the log's first record. This and `sound_end` make no Units: a start asks
        them of every unit.
        """
        return [
            physical_offset
            for _, units in self._chunks(offset)
            for physical_offset, size, _ in units
            if size > 0 and (size != FILLER_SIZE or physical_offset)
        ]

    def sound_end(self, offset: int) -> int:
        """The first offset from `offset` on whose unit is invalid or does not point beyond all earlier
        units; `end` if all are sound. A filler points to 0 and may stand anywhere.
        """
        last = -1
        for first, units in self._chunks(offset):
            for at, (physical_offset, size, _) in enumerate(units, first):
                if physical_offset > last and size > 0:
                    last = physical_offset
                elif physical_offset or size != FILLER_SIZE:
                    return at
        return self.end

    def _chunks(self, offset: int) -> Iterator[tuple[int, Iterator[tuple[int, int, int]]]]:
        """(offset of the first, fields) of the units from `offset` to the end, many at a time."""
        position, end = offset * UNIT_SIZE, self.end * UNIT_SIZE
        for start, data in self.run.chunks(position, end, UNITS_AT_ONCE * UNIT_SIZE):
            whole = memoryview(data)[: len(data) - len(data) % UNIT_SIZE]
            yield start // UNIT_SIZE, UNIT.iter_unpack(whole)

    def unit(self, offset: int) -> Unit:
        """One unit below the end."""
        units = self.read(offset, 1)
        if not units:
            raise self.run.missing(offset * UNIT_SIZE)
        return units[0]

    def cut(self, end: int) -> None:
        """Forget the units from `end` on: overwritten with zeros, files behind them removed. A first
        file stays where its name tells the next offset.
        """
        position = end * UNIT_SIZE
        self._remove_last_first(self._behind(end))
        data_end = self.run.data_end(position)
        if data_end > position:
            self.run.zero(position, data_end)
        self.use(min(self.start, end), end)

    def _remove_last_first(self, bases: Sequence[int]) -> None:
        """Remove files so that no crash leaves one of them as the queue's first: its name would tell that
        the units before it were deleted, and nobody would make them again.
        """
        self.run.remove_in_turn(bases[::-1])

    def sync(self) -> None:
        """On return all units are on disk."""
        end = self.end * UNIT_SIZE
        if self._synced < end:
            self.run.sync(self._synced, end)
            self._synced = end

    def distrust(self, offset: int) -> None:
        """Units from `offset` on may not be on disk, though they are there: the next `sync` is to
        make sure. For after a crash, of which the machine's memory may still hold what was written.
        """
        position = min(offset, self.end) * UNIT_SIZE
        for base in self.run.bases:
            if base + self.run.file_bytes > position:
                self.run.distrust(base)
        self._synced = min(self._synced, position)

    def drop_outlived(self) -> None:
        """Remove the files that hold only units before `start`, the oldest first; the last file stays.
        Durable on return.
        """
        first = self.start * UNIT_SIZE
        outlived = [base for base in self.run.bases[:-1] if base + self.run.file_bytes <= first]
        self.run.remove_in_turn(outlived)

    def first_at(self, physical_offset: int) -> int:
        """The first offset whose record lies at or behind a physical offset; `end` when none does.

        A unit that is none counts as behind it: after a power cut such units, and good ones behind
        them, may follow those that were synced.
        """
        low, high = max(self.start, self.first_offset), self.end
        middle = low  # where nothing was deleted this is the answer: one read a queue
        while low < high:
            at, unit = self._first_unit(middle, high) or (high - 1, None)
            if unit is not None and (not unit.is_valid or unit.physical_offset >= physical_offset):
                high = at
            else:
                low = at + 1
            middle = (low + high) // 2
        return low

    def _first_unit(self, offset: int, stop: int) -> tuple[int, Unit] | None:
        """The first unit from `offset` on that is no filler, and its offset."""
        for at in range(offset, stop):
            unit = self.unit(at)
            if not unit.is_filler:
                return at, unit
        return None

    def written_end(self) -> int:
        """The offset behind the last unit, by a bisection of the last file that holds one: units
        are written one after another, and the rest of a file is zeros.
        """
        for base in reversed(self.run.bases):
            low, high = base // UNIT_SIZE, (base + self.run.file_bytes) // UNIT_SIZE
            first = low
            while low < high:
                middle = (low + high) // 2
                if self._raw(middle).is_valid:
                    low = middle + 1
                else:
                    high = middle
            if low > first:
                return low
        return self.first_offset

    def _raw(self, offset: int) -> Unit:
        """The unit's bytes as a unit, whether they are one or not, the end not looked at."""
        data = self.run.read(offset * UNIT_SIZE, UNIT_SIZE)
        return Unit._make(UNIT.unpack(data.ljust(UNIT_SIZE, b"\0")))


def settle(queues: Iterable[ConsumeQueue]) -> None:
    """On return the files that `make_room` made for these queues are durable: length and name, and the
    folders up to the store's root.

    The first sync puts what was made before on disk in one commit of a file system's journal, so that
    the others find little to do: making each file durable before the next takes a commit each.
    """
    made = [(queue, queue.unsettled) for queue in queues if queue.unsettled is not None]
    if not made:
        return
    for queue, base in made:
        queue.run.sync(base, base + 1)
    folders = {
        folder: queue.run.files.fs
        for queue, _ in made
        for folder in (queue.directory, *queue.directory.parents[:3])
    }
    for folder, fs in folders.items():
        fs.sync_dir(folder)
    for queue, _ in made:
        queue.unsettled = None
