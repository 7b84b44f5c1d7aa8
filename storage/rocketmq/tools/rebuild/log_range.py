"""The dispatches of a log range for a rebuild, and their staging for the parts that build files.

Owns the walk that every rebuild does, and the staged files of the log ranges; must not build. In a rebuild in parts
each range writes one file in the folder of the rebuild, which is removed at the end. It holds the data of the range's
records, in order:

    queues   the entries of one queue after the other: queue offset, physical offset, size, tags code, 28
             bytes each; the result has the position of each queue's entries
    index    blocks of records that have strings: number of strings, size in bytes (8 bytes each), and
             [(physical offset, store time, strings), ...] as marshal writes it
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, cast

from storage.files import FileSystem
from storage.model import Finding
from storage.rocketmq.format.message import takes_queue_offset
from storage.rocketmq.index.dispatch_request import Dispatch, by_queue, dispatches_of
from storage.rocketmq.index.light_queues import lmq_dispatches
from storage.rocketmq.log.filler_records import is_blank
from storage.rocketmq.log.scan import LogRange
from storage.rocketmq.recovery.store_files import StoreFiles
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.tools.log_tasks import RangeTask, Reached, reached_by, resume
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.snapshot import StoreSnapshot
from storage.rocketmq.tools.verify.due_times import with_stored_times
from storage.rocketmq.tools.verify.queues import Key
from storage.shared.diagnostics import Meter, Notes

STAGED_UNIT: Final = Struct(">qqiq")
BLOCK_HEAD: Final = Struct(">qq")
BLOCK_STRINGS: Final = 1 << 15
UNITS_AT_ONCE: Final = 1 << 16

Strings = tuple[int, int, Sequence[str]]
"""(physical offset, store time in ms, strings) of a record."""


class StagedEntries(NamedTuple):
    """The entries of one queue in a staged file."""

    path: Path
    position: int
    units: int


class LastRecord(NamedTuple):
    """The last record of a range that was not deleted, and its number of strings."""

    physical_offset: int
    store_timestamp_ms: int
    strings: int


@dataclass(slots=True, kw_only=True)
class StagedRange:
    """The result of staging a range; see log_tasks.Result."""

    goes_on_at: int | None
    looked_back: bool
    reached: Reached
    notes: Sequence[Finding]
    path: Path
    runs: Mapping[Key, StagedEntries]
    strings: int
    last: LastRecord | None
    left_out: int  # records of deleted topics
    refused: Sequence[Dispatch]  # records of topics that can have no queue
    begun: Mapping[str, int]  # topics found to be deleted and created again


class DispatchWalk(LogWalk):
    """A walk over a range of the log that yields the dispatches of its records. `opened`: the files of `snapshot`."""

    def __init__(
        self,
        snapshot: StoreSnapshot,
        opened: StoreFiles,
        part: RangeTask,
        notes: Notes,
        *,
        for_queues: bool,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(
            opened.run,
            opened.queues,
            notes,
            start=part.start,
            end=opened.run.limit,
            until=part.until,
            meter=meter,
            clean=snapshot.clean,
        )
        self._snapshot = snapshot
        self._queues = opened.queues
        self._for_queues = for_queues
        self._incarnations = TopicIncarnations(opened.run, opened.queues, snapshot.deleted)
        self.known_gaps = resume(self, part)
        self.left_out = 0  # records of deleted topics
        self.last: Dispatch | None = None  # of the last record that was not deleted

    @property
    def begun(self) -> Mapping[str, int]:
        """The topics found to be deleted and created again; see TopicIncarnations."""
        return self._incarnations.begun

    def dispatches(self) -> Iterator[Sequence[Dispatch]]:
        """Yield the dispatches of records that were not deleted, some at a time; for queues also to LMQ queues."""
        snapshot = self._snapshot
        for log_range in self.log_ranges():
            if isinstance(log_range, Padding):
                continue
            found = self._found(log_range)
            kept = self._incarnations.without(found)
            self.left_out += len(found) - len(kept)
            self.last = kept[-1] if kept else self.last
            if not self._for_queues:
                yield kept
                continue
            if snapshot.delays_ms is None:
                kept = with_stored_times(kept, self._queues, self.notes)
            yield [*kept, *snapshot.live(lmq_dispatches(log_range, self._queues))]

    def _found(self, log_range: LogRange) -> Sequence[Dispatch]:
        found = dispatches_of(
            log_range.data,
            log_range.records,
            log_range.start,
            with_tags=self._snapshot.index_tags,
            delays_ms=self._snapshot.delays_ms,
        )
        self.last_store_timestamp_ms = found[-1].store_timestamp_ms
        for topic, queue_id, queue_offset, at, size, *_, sys_flag, _ in found:
            if takes_queue_offset(sys_flag):
                self.next_offsets[topic, queue_id] = queue_offset + 1
            elif is_blank(topic, sys_flag):  # a bad place that a salvage filled
                self.gaps.append((at, at + size))
        return found


def stage_range(
    snapshot: StoreSnapshot, folder: Path, part: RangeTask, *, index: bool
) -> StagedRange:
    """Stage the queue entries or the index strings of a range; not synced on return. Memory: the range's queue
    entries (28 bytes a record) or a block of strings.
    """
    with snapshot.opened() as opened:
        notes, path = Notes(), folder / f"{part.start:020}"
        walk = DispatchWalk(snapshot, opened, part, notes, for_queues=not index)
        staged = _Strings(snapshot.fs, path) if index else _Units(snapshot.fs, path)
        try:
            for dispatches in walk.dispatches():
                staged.add(dispatches)
            runs, strings = staged.finish()
        finally:
            staged.close()
    last = walk.last
    return StagedRange(
        goes_on_at=walk.goes_on_at,
        looked_back=walk.looked_back,
        reached=reached_by(walk, walk.known_gaps),
        notes=notes.all(),
        path=path,
        runs=runs,
        strings=strings,
        last=None
        if last is None
        else LastRecord(last.physical_offset, last.store_timestamp_ms, len(last.keys)),
        left_out=walk.left_out,
        refused=staged.refused,
        begun=walk.begun,
    )


class _Units:
    """The queue entries of a range, by queue."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self._file = fs.open(path, write=True, create=True)
        self._units: dict[Key, bytearray] = {}
        self.refused: list[Dispatch] = []

    def add(self, dispatches: Sequence[Dispatch]) -> None:
        """Append the entries of records, which come in log order."""
        pack = STAGED_UNIT.pack
        for key, group in by_queue(dispatches, self.refused).items():
            units = self._units.setdefault(key, bytearray())
            for _, _, offset, physical_offset, size, tags_code, _, _, _ in group:
                units += pack(offset, physical_offset, size, tags_code)

    def finish(self) -> tuple[dict[Key, StagedEntries], int]:
        """Write the entries. Return their places by queue, and 0 strings."""
        runs: dict[Key, StagedEntries] = {}
        position = 0
        for key, units in self._units.items():
            self._file.pwrite(bytes(units), position)
            runs[key] = StagedEntries(self.path, position, len(units) // STAGED_UNIT.size)
            position += len(units)
        return runs, 0

    def close(self) -> None:
        self._file.close()


class _Strings:
    """The index strings of a range."""

    refused: Sequence[Dispatch] = ()

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self._file = fs.open(path, write=True, create=True)
        self._file.truncate(0)
        self._position = 0
        self._block: list[Strings] = []
        self._in_block = self._total = 0

    def add(self, dispatches: Sequence[Dispatch]) -> None:
        """Append the strings of records, which come in log order."""
        for dispatch in dispatches:
            if dispatch.keys:
                self._block.append(
                    (dispatch.physical_offset, dispatch.store_timestamp_ms, tuple(dispatch.keys))
                )
                self._in_block += len(dispatch.keys)
        if self._in_block >= BLOCK_STRINGS:
            self._write()

    def _write(self) -> None:
        data = marshal.dumps(self._block)
        self._file.pwrite(BLOCK_HEAD.pack(self._in_block, len(data)) + data, self._position)
        self._position += BLOCK_HEAD.size + len(data)
        self._total += self._in_block
        self._block, self._in_block = [], 0

    def finish(self) -> tuple[dict[Key, StagedEntries], int]:
        """Write the remaining strings. Return no queue entries, and the number of strings."""
        if self._block:
            self._write()
        return {}, self._total

    def close(self) -> None:
        self._file.close()


def staged_units(fs: FileSystem, key: Key, unit_run: StagedEntries) -> Iterator[list[Dispatch]]:
    """Yield the entries of a queue in a staged file as dispatches, some at a time."""
    path, position, units = unit_run
    topic, queue_id = key
    file = fs.open(path)
    try:
        for first in range(0, units, UNITS_AT_ONCE):
            size_bytes = min(UNITS_AT_ONCE, units - first) * STAGED_UNIT.size
            data = file.pread(size_bytes, position + first * STAGED_UNIT.size)
            yield [
                Dispatch(topic, queue_id, offset, physical_offset, size, tags_code, 0, 0, ())
                for offset, physical_offset, size, tags_code in STAGED_UNIT.iter_unpack(data)
            ]
    finally:
        file.close()


def staged_strings(fs: FileSystem, path: Path, skip: int) -> Iterator[tuple[int, list[Dispatch]]]:
    """Yield (number of strings before the block, dispatches) for the blocks of a staged file that end after its first
    `skip` strings.
    """
    file = fs.open(path)
    try:
        position, before = 0, 0
        while head := file.pread(BLOCK_HEAD.size, position):
            strings, size_bytes = BLOCK_HEAD.unpack(head)
            position += BLOCK_HEAD.size
            if before + strings > skip:
                block = cast("list[Strings]", marshal.loads(file.pread(size_bytes, position)))
                yield before, [Dispatch("", 0, 0, at, 0, 0, ms, 0, keys) for at, ms, keys in block]
            position += size_bytes
            before += strings
    finally:
        file.close()
