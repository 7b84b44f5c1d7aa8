"""The walk of a rebuild over a log range, and the staging of its entries and strings for the parts that build files.

Owns the walk that every rebuild does, and the staged files of the log ranges; must not build. In a rebuild in parts
each range writes one file in the folder of the rebuild, which is removed at the end. It holds the data of the range's
records, in order:

    queues   the entries of one queue after the other, in runs: queue offset of the first, number of entries (8 bytes
             each), and the entries; the result has the position of each queue's runs
    index    the strings as record_pass.py draws them, without the notes of records that have none
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from storage.files import FileSystem
from storage.model import Finding
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.light_queues import lmq_dispatches
from storage.rocketmq.index.queue_runs import joined, runs_of
from storage.rocketmq.index.record_pass import (
    NOTHING,
    STRING_SIZE,
    EntryRun,
    Passed,
    QueueRuns,
    RecordPass,
)
from storage.rocketmq.log.filler_records import is_blank
from storage.rocketmq.recovery.store_files import StoreFiles
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.tools.log_tasks import RangeTask, Reached, reached_by, resume
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.snapshot import StoreSnapshot
from storage.rocketmq.tools.verify.due_times import stored_code
from storage.rocketmq.tools.verify.queues import Key
from storage.shared.diagnostics import Meter, Notes

RUN_HEAD: Final = Struct(">qq")
READ_BYTES: Final = 4 << 20  # longer than a run, which holds the entries of some log ranges
STAGED_BYTES: Final = 1 << 20
TOGETHER: Final = 1 << 14  # records whose entries are yielded together, about
_NO_STRING: Final = 0xFF  # first byte of the note of a record without strings


class StagedEntries(NamedTuple):
    """The entries of one queue in a staged file."""

    path: Path
    position: int
    size_bytes: int
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
    """A walk over a range of the log that yields the entries or the strings of its records. `opened`: the files of
    `snapshot`. It is the pass's own rules: which records were deleted, and the stored delivery times.
    """

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
        self._pass = RecordPass(
            self,
            with_tags=snapshot.index_tags,
            delays_ms=snapshot.delays_ms,
            batch_topics=opened.queues.batch_topics,
            queues_from=0 if for_queues else NOTHING,
            strings_from=NOTHING if for_queues else 0,
        )

    @property
    def begun(self) -> Mapping[str, int]:
        """The topics found to be deleted and created again; see TopicIncarnations."""
        return self._incarnations.begun

    @property
    def left_out(self) -> int:
        """The number of records of deleted topics."""
        return self._pass.left_out

    @property
    def last(self) -> LastRecord | None:
        """The last record that was not deleted."""
        done = self._pass
        if done.last_alive_offset < 0:
            return None
        return LastRecord(done.last_alive_offset, done.last_alive_time_ms, done.last_alive_strings)

    def passes(self) -> Iterator[Passed]:
        """Yield the entries of records that were not deleted, LMQ queues included, or their strings; some records at a
        time.
        """
        record_pass = self._pass
        in_lmqs: list[Dispatch] = []
        for log_range in self.log_ranges():
            if isinstance(log_range, Padding):
                continue
            record_pass.take(log_range.data, 0, log_range.size_bytes, log_range.start)
            if self._for_queues and record_pass.has_rare:
                in_lmqs += self._snapshot.live(lmq_dispatches(log_range, self._queues))
            if record_pass.records >= TOGETHER:
                yield self._taken(in_lmqs)
                in_lmqs = []
        yield self._taken(in_lmqs)

    def _taken(self, in_lmqs: Sequence[Dispatch]) -> Passed:
        self.settle()
        passed = self._pass.taken()
        if in_lmqs:
            passed = passed._replace(queues=joined([passed.queues, runs_of(in_lmqs)]))
        return passed

    def settle(self) -> None:
        """See LogWalk."""
        record_pass = self._pass
        if not record_pass.records:
            return
        self.last_store_timestamp_ms = record_pass.last_time_ms
        for topic, queue_id, following in record_pass.next_offsets():
            self.next_offsets[topic, queue_id] = following
        for dispatch in record_pass.unqueued:
            if is_blank(dispatch.topic, dispatch.sys_flag):  # a bad place that a salvage filled
                at = dispatch.physical_offset
                self.gaps.append((at, at + dispatch.size))
        record_pass.unqueued.clear()

    # ---- the rules of the pass ----

    def alive_from(self, topic: str, queue_id: int) -> int:
        """See TopicIncarnations."""
        return self._incarnations.alive_from(topic, queue_id)

    def is_over(self, dispatch: Dispatch) -> bool:
        """See TopicIncarnations."""
        return self._incarnations.is_over(dispatch)

    def code_of(self, dispatch: Dispatch) -> int:
        """Return the delivery time that the store's entry has, if no delay levels were given."""
        if self._snapshot.delays_ms is not None or not self._for_queues:
            return dispatch.tags_code
        return stored_code(dispatch, self._queues, self.notes)


def stage_range(
    snapshot: StoreSnapshot, folder: Path, part: RangeTask, *, index: bool
) -> StagedRange:
    """Stage the queue entries or the index strings of a range; not synced on return. Memory: the range's queue
    entries (20 bytes a record) or a block of strings.
    """
    with snapshot.opened() as opened:
        notes, path = Notes(), folder / f"{part.start:020}"
        walk = DispatchWalk(snapshot, opened, part, notes, for_queues=not index)
        staged = _Strings(snapshot.fs, path) if index else _Units(snapshot.fs, path)
        try:
            for passed in walk.passes():
                staged.add(passed)
            runs, strings = staged.finish()
        finally:
            staged.close()
    return StagedRange(
        goes_on_at=walk.goes_on_at,
        looked_back=walk.looked_back,
        reached=reached_by(walk, walk.known_gaps),
        notes=notes.all(),
        path=path,
        runs=runs,
        strings=strings,
        last=walk.last,
        left_out=walk.left_out,
        refused=staged.refused,
        begun=walk.begun,
    )


class _Units:
    """The queue entries of a range, by queue."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self._file = fs.open(path, write=True, create=True)
        self._runs: dict[Key, bytearray] = {}
        self._counts: dict[Key, int] = {}
        self.refused: list[Dispatch] = []

    def add(self, passed: Passed) -> None:
        """Append the entries of records, which come in log order."""
        self.refused += passed.refused
        for topic, queue_id, runs in passed.queues:
            key = topic, queue_id
            staged = self._runs.setdefault(key, bytearray())
            for queue_offset, units in runs:
                count = len(units) // UNIT_SIZE
                staged += RUN_HEAD.pack(queue_offset, count)
                staged += units
                self._counts[key] = self._counts.get(key, 0) + count

    def finish(self) -> tuple[dict[Key, StagedEntries], int]:
        """Write the entries. Return their places by queue, and 0 strings."""
        found: dict[Key, StagedEntries] = {}
        position = 0
        for key, staged in self._runs.items():
            self._file.pwrite(bytes(staged), position)
            found[key] = StagedEntries(self.path, position, len(staged), self._counts[key])
            position += len(staged)
        return found, 0

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
        self._block = bytearray()

    def add(self, passed: Passed) -> None:
        """Append the strings of records, which come in log order."""
        self._block += only_strings(passed.strings)
        if len(self._block) >= STAGED_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.pwrite(bytes(self._block), self._position)
        self._position += len(self._block)
        self._block.clear()

    def finish(self) -> tuple[dict[Key, StagedEntries], int]:
        """Write the remaining strings. Return no queue entries, and the number of strings."""
        if self._block:
            self._write()
        return {}, self._position // STRING_SIZE

    def close(self) -> None:
        self._file.close()


def only_strings(strings: bytes) -> bytes:
    """Return the strings without the notes of records that have none."""
    if _NO_STRING not in strings[::STRING_SIZE]:
        return strings
    rows = (strings[at : at + STRING_SIZE] for at in range(0, len(strings), STRING_SIZE))
    return b"".join(row for row in rows if row[0] != _NO_STRING)


def staged_entries(fs: FileSystem, key: Key, staged: StagedEntries) -> Iterator[QueueRuns]:
    """Yield the entries of a queue in a staged file, some at a time."""
    file = fs.open(staged.path)
    try:
        position, end = staged.position, staged.position + staged.size_bytes
        while position < end:
            data = file.pread(min(READ_BYTES, end - position), position)
            runs, size_bytes = _whole_runs(data)
            yield QueueRuns(*key, runs)
            position += size_bytes
    finally:
        file.close()


def _whole_runs(data: bytes) -> tuple[list[EntryRun], int]:
    """Return the runs that are complete in the data, and their length."""
    runs: list[EntryRun] = []
    position = 0
    while position + RUN_HEAD.size <= len(data):
        queue_offset, count = RUN_HEAD.unpack_from(data, position)
        start = position + RUN_HEAD.size
        stop = start + count * UNIT_SIZE
        if stop > len(data):
            break
        runs.append(EntryRun(queue_offset, data[start:stop]))
        position = stop
    return runs, position


def staged_strings(fs: FileSystem, path: Path, skip: int) -> Iterator[bytes]:
    """Yield the strings in a staged file after the first `skip`, some at a time."""
    file = fs.open(path)
    try:
        position = skip * STRING_SIZE
        while data := file.pread(STAGED_BYTES // STRING_SIZE * STRING_SIZE, position):
            yield data
            position += len(data)
    finally:
        file.close()
