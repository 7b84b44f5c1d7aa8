"""Rebuilding in parts: stage the queue entries or index strings of a log range for the parts that build files.

Owns the staged files of the log ranges; must not build. Each range writes one file in the folder of the rebuild, which
is removed at the end. It holds the data of the range's records, in order:

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
from storage.rocketmq.index.dispatch import Dispatch, by_queue, dispatches_of
from storage.rocketmq.index.light_queues import lmq_dispatches
from storage.rocketmq.log.filler_records import is_blank
from storage.rocketmq.log.scan import Stretch
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.tools.log_tasks import Reached, StretchPart, reached_by, resume
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.snapshot import Opened, Picture
from storage.rocketmq.tools.verify.due_times import as_told
from storage.rocketmq.tools.verify.queues import Key
from storage.shared.diagnostics import Notes

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
class StagedStretch:
    """The result of staging a range; see stretches.Result."""

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
    begun: Mapping[str, int]  # topics found to be deleted and created again, see Lives


class DispatchWalk(LogWalk):
    """A walk over the log that converts records to dispatches."""

    def dispatches(
        self, stretch: Stretch, *, with_tags: bool, delays_ms: Sequence[int] | None
    ) -> Sequence[Dispatch]:
        """Return the dispatches of the records of a `Stretch`."""
        found = dispatches_of(
            stretch.data,
            stretch.records,
            stretch.start,
            with_tags=with_tags,
            delays_ms=delays_ms,
        )
        self.last_store_timestamp_ms = found[-1].store_timestamp_ms
        for topic, queue_id, queue_offset, at, size, *_, sys_flag, _ in found:
            if takes_queue_offset(sys_flag):
                self.next_offsets[topic, queue_id] = queue_offset + 1
            elif is_blank(topic, sys_flag):  # a bad place that a salvage filled
                self.gaps.append((at, at + size))
        return found


def stage_stretch(
    picture: Picture, folder: Path, part: StretchPart, *, index: bool
) -> StagedStretch:
    """Stage the queue entries or the index strings of a range; not synced on return. Memory: the range's queue
    entries (28 bytes a record) or a block of strings.
    """
    with picture.opened() as opened:
        path = folder / f"{part.start:020}"
        staged = _Strings(picture.fs, path) if index else _Units(picture.fs, path)
        try:
            return _stage(picture, part, opened, staged)
        finally:
            staged.close()


def _stage(
    picture: Picture, part: StretchPart, opened: Opened, staged: _Strings | _Units
) -> StagedStretch:
    notes, log = Notes(), opened.run
    walk = DispatchWalk(
        log,
        opened.queues,
        notes,
        start=part.start,
        end=log.limit,
        until=part.until,
        clean=picture.clean,
    )
    known_gaps = resume(walk, part)
    lives = TopicIncarnations(log, opened.queues, picture.deleted)
    last: LastRecord | None = None
    left_out = 0
    for stretch in walk.stretches():
        if isinstance(stretch, Padding):
            continue
        found = walk.dispatches(stretch, with_tags=picture.index_tags, delays_ms=picture.delays_ms)
        kept = lives.without(found)
        left_out += len(found) - len(kept)
        if isinstance(staged, _Units):
            if picture.delays_ms is None:
                kept = as_told(kept, opened.queues, notes)
            staged.add(kept)
            staged.add(picture.live(lmq_dispatches(stretch, opened.queues)))
        else:
            staged.add(kept)
        if kept:
            latest = kept[-1]
            last = LastRecord(latest.physical_offset, latest.store_timestamp_ms, len(latest.keys))
    runs, strings = staged.finish()
    return StagedStretch(
        goes_on_at=walk.goes_on_at,
        looked_back=walk.looked_back,
        reached=reached_by(walk, known_gaps),
        notes=notes.all(),
        path=staged.path,
        runs=runs,
        strings=strings,
        last=last,
        left_out=left_out,
        refused=staged.refused,
        begun=lives.begun,
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
