"""The segments of a partition by the names of their files, and segments with a wrong name: a file was renamed, and its
name differs from the base offset of its batches.

Owns turning a folder into the segments of a plan; finding segments with a wrong name by their first and last batches,
and renaming their files to the right names, on a view or in a writable start. Must not judge batches, and must not
change a segment if its name may be right.

A log may begin above its name, because of compaction or missing records. So a name is wrong only if
- the log begins below its name: the real broker does not open such a partition (its recovery treats the offsets as an
  overflow), or
- another segment ends above this name, but before the log begins: the broker opens the partition. It finds a segment
  by name, and misses records of the other segment, or whole segments if the order of the names is wrong.

A base offset may be corrupt too, because no CRC covers it. So a second fact has to prove where a log begins: its second
batch or, if it has only one batch, the end of the segment before. If the index counts from the name, the name is right.

    names    0.log | 4.log | 7.log           0.log | 2.log | 4.log
    offsets  0-3   | 4-7   | 8-9             0-3   | 8-9   | 4-7
    right    0.log | 4.log | 8.log           0.log | 8.log | 4.log
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from storage.errors import DataError
from storage.files import File, FileSystem, HandleCache
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.batch import HEADER_SIZE, BatchHeader, decode_header
from storage.kafka.format.names import segment_name
from storage.kafka.format.producer_snapshot import decode_snapshot
from storage.kafka.format.sparse_index import offset_index
from storage.kafka.log.log_file import StoredBatch, good_batches, walk
from storage.kafka.log.partition_plan import PartitionPlan, Rename, SegmentPlan
from storage.kafka.recovery.evidence import INDEX_SUFFIXES, orphan_indexes
from storage.model import Finding


def list_segments(files: HandleCache, plan: PartitionPlan) -> None:
    """List the files of a partition's folder in the plan, after renaming the files of segments with a wrong name.

    `files` belong to a view: a writable start has to carry out the plan's `renames` on the disk. A segment keeps its
    wrong name if another segment has the right name.
    """
    fs = files.fs
    _list_files(files, plan)
    wrong = list(_Names(files, plan).wrong())
    waiting = wrong
    while waiting:
        blocked = [
            one for one in waiting if fs.exists(plan.directory / segment_name(one.base_offset))
        ]
        for one in waiting:
            if one not in blocked:
                renames = list(_renames(fs, plan, one))
                carry_out(files, renames)
                plan.renames += renames
        if len(blocked) == len(waiting):
            break
        waiting = blocked
    plan.findings += [_finding(plan, one, is_blocked=one in waiting) for one in wrong]
    if plan.renames:
        plan.segments.clear()
        plan.snapshot_offsets.clear()
        plan.removed.clear()
        plan.removed_segments.clear()
        _list_files(files, plan)


def carry_out(files: HandleCache, renames: Sequence[Rename]) -> None:
    """Rename the files; durable on return. The log of a segment is renamed last. So after a crash in between, the
    next start finds the segment again.
    """
    for source, target in renames:
        files.forget(source, sync=False)
        files.fs.rename(source, target)
    for folder in {target.parent for _, target in renames}:
        files.fs.sync_dir(folder)


def begin_alone(file: File, named: int) -> int:
    """Return the offset at which a single log file begins: below its name only if its first two batches prove this.

    `named`: the offset in the file's name.
    """
    items = islice(walk(file, position=0, end=file.size(), next_offset=0), 2)
    headers = [batch.header for batch in good_batches(items)]
    if len(headers) < 2 or headers[1].base_offset != headers[0].next_offset:
        return named
    return min(headers[0].base_offset, named)


def alone_finding(path: Path, address: tuple[str | None, int | None], begin: int) -> Finding:
    """Return the finding of a single log file that begins below its name."""
    right = segment_name(begin)
    return finding(
        "misnamed-segment",
        path,
        severity="error",
        topic=address[0],
        partition=address[1],
        offset=begin,
        expected=right,
        found=path.name,
        message=f"the file was renamed: by its batches its name is {right}",
    )


def _list_files(files: HandleCache, plan: PartitionPlan) -> None:
    """Add the segments, snapshots and orphan index files of the plan's folder to the plan, by file name."""
    suffixes: dict[int, set[str]] = {}
    for name in files.fs.list_dir(plan.directory):
        parsed = names.parse_segment_name(name)
        if parsed is not None and parsed[1] in names.SEGMENT_SUFFIXES:
            suffixes.setdefault(parsed[0], set()).add(parsed[1])
    for base_offset, found in sorted(suffixes.items()):
        if names.SNAPSHOT in found:
            plan.snapshot_offsets.add(base_offset)
        if names.LOG not in found:
            orphans = [s for s in INDEX_SUFFIXES if s in found]
            plan.removed += [plan.directory / segment_name(base_offset, s) for s in orphans]
            continue
        path = plan.directory / segment_name(base_offset, names.LOG)
        size_bytes = files.fs.size(path)
        plan.segments.append(
            SegmentPlan(
                base_offset=base_offset,
                path=path,
                size_bytes=size_bytes,
                file_bytes=size_bytes,
                suffixes=found,
            )
        )
    _drop_stray_empty(files, plan)
    for segment, following in pairwise(plan.segments):
        segment.limit_offset = following.base_offset


def _drop_stray_empty(files: HandleCache, plan: PartitionPlan) -> None:
    """Drop each empty log inside the offset range of the log before it, because it would hide the rest of that log."""
    before: SegmentPlan | None = None
    for segment in list(plan.segments):
        if before is not None and not segment.size_bytes:
            good = good_batches(before.items_from(files, before.base_offset))
            if any(batch.header.next_offset > segment.base_offset for batch in good):
                plan.segments.remove(segment)
                plan.removed_segments.append(segment)
                continue
        before = segment


class _WrongName(NamedTuple):
    """A segment with a wrong name, and the base offset of its right name. `hides_others`: the broker searches this
    segment for all records of the segment before it.
    """

    segment: SegmentPlan
    base_offset: int
    hides_others: bool


@dataclass(slots=True)
class _Seen:
    """A segment, the header of its first batch, and the base offset that its index counts from, if that is known."""

    segment: SegmentPlan
    first: BatchHeader
    # that base offset, and the position of the last entry's batch
    indexed: tuple[int, int] | None = None

    @property
    def begin(self) -> int:
        return self.first.base_offset


class _Names:
    """The segments of one partition, in the order of their batches."""

    def __init__(self, files: HandleCache, plan: PartitionPlan) -> None:
        self._files = files
        self._plan = plan
        self._found: Sequence[_Seen] = ()

    def wrong(self) -> Iterator[_WrongName]:
        """Yield the segments with a wrong name, in the order of their batches."""
        segments = [segment for segment in self._plan.segments if segment.size_bytes]
        found = [_Seen(s, first) for s in segments if (first := self._first(s)) is not None]
        if all(seen.begin == seen.segment.base_offset for seen in found):
            return
        begins = Counter(seen.begin for seen in found)
        found.sort(key=lambda seen: seen.begin)
        self._found = found
        for at, seen in enumerate(found):
            before = found[at - 1] if at else None
            following = found[at + 1] if at + 1 < len(found) else None
            if seen.begin != seen.segment.base_offset and begins[seen.begin] == 1:
                base_offset = self._right_name(before, seen, following)
                if base_offset is not None and base_offset != seen.segment.base_offset:
                    hides = before is not None and seen.segment.base_offset <= before.begin
                    yield _WrongName(seen.segment, base_offset, hides)

    def _right_name(self, before: _Seen | None, seen: _Seen, following: _Seen | None) -> int | None:
        """Return the right base offset of a segment with a wrong name; None if the name may be right, or if something
        other than the name is wrong.
        """
        named, begin = seen.segment.base_offset, seen.begin
        end_before = self._end(before) if before is not None else 0
        if end_before is None or end_before > begin:
            return None
        if begin > named and (before is None or end_before <= named):
            return None
        first, end = next(self._batches(seen), None), self._end(seen)
        if first is None or first.position or end is None:
            return None
        if following is not None and end > following.begin:
            return None
        indexed = None if seen.indexed is None else seen.indexed[0]
        if indexed == named or not self._is_proved(before, end_before, seen):
            return None
        orphans = (base for _, base in orphan_indexes(self._plan))
        likely = [*([] if indexed is None else [indexed]), *orphans, begin]
        return next(base for base in likely if end_before <= base <= begin)

    def _is_proved(self, before: _Seen | None, end_before: int, seen: _Seen) -> bool:
        """Return whether a second fact, apart from its first batch's base offset, proves where a log begins.

        The second batch decides, if there is a second batch. A single batch is proved by the end of the segment before
        it, except if its name fits, or if it begins below its name: the log would then end lower.
        """
        items = list(islice(seen.segment.items_from(self._files, seen.begin), 2))
        if len(items) == 2:
            second = items[1]
            return (
                isinstance(second, StoredBatch)
                and second.header.base_offset == seen.first.next_offset
            )
        if seen.begin < seen.segment.base_offset or self._name_fits(seen):
            return False
        return before is not None and end_before == seen.begin

    def _name_fits(self, seen: _Seen) -> bool:
        """Return whether the name of a segment with one batch fits its neighbours: with offsets counted from the name,
        the batch follows the segment before, or reaches the next segment.
        """
        named = seen.segment.base_offset
        reached = named + seen.first.next_offset - seen.begin
        ends = (self._end(other) for other in self._found if other.segment.limit_offset == named)
        return seen.segment.limit_offset == reached or named in ends

    # ---- files ---------------------------------------------------------------------------------

    def _first(self, segment: SegmentPlan) -> BatchHeader | None:
        with self._files.borrow(segment.path) as file, suppress(DataError):
            return decode_header(file.pread(HEADER_SIZE, 0))
        return None

    def _end(self, seen: _Seen) -> int | None:
        """Return the offset after the last batch of a log; None if no good batch is found."""
        self._read_index(seen)
        position = seen.indexed[1] if seen.indexed else 0
        end = None
        for batch in self._batches(seen, position):
            end = batch.header.next_offset
        return end

    def _batches(self, seen: _Seen, position: int = 0) -> Iterator[StoredBatch]:
        return good_batches(seen.segment.items_from(self._files, seen.begin, position))

    def _read_index(self, seen: _Seen) -> None:
        """Derive the base offset that the offset index counts from, by its last entry and the batch of that entry."""
        segment = seen.segment
        if seen.indexed is not None or names.INDEX not in segment.suffixes:
            return
        data = self._files.fs.read_bytes(segment.path.with_suffix(names.INDEX))
        entries = offset_index.leading_entries(data)
        if entries:
            relative_offset, position = entries[-1]
            with self._files.borrow(segment.path) as file, suppress(DataError):
                header = decode_header(file.pread(HEADER_SIZE, position))
                base_offset = header.last_offset - relative_offset
                is_likely = base_offset <= seen.begin < header.base_offset
                if is_likely or base_offset == segment.base_offset:
                    seen.indexed = base_offset, position


def _renames(fs: FileSystem, plan: PartitionPlan, wrong: _WrongName) -> Iterator[Rename]:
    """Yield the renames of a segment's files, its log last. A file stays if another file has the right name."""
    segment = wrong.segment
    suffixes = [*INDEX_SUFFIXES, names.SNAPSHOT, names.LOG]
    for suffix in suffixes:
        source = plan.directory / segment_name(segment.base_offset, suffix)
        target = plan.directory / segment_name(wrong.base_offset, suffix)
        if suffix not in segment.suffixes or fs.exists(target):
            continue
        if suffix != names.SNAPSHOT or _is_snapshot_of(fs, source, wrong):
            yield Rename(source, target)


def _is_snapshot_of(fs: FileSystem, path: Path, wrong: _WrongName) -> bool:
    """Return whether a snapshot with the wrong name belongs to the right name.

    Its last offset must be below the right name: a snapshot has only batches before its name. If the wrong name is too
    low, the last offset must also be at or above the wrong name.
    """
    try:
        entries = decode_snapshot(fs.read_bytes(path))
    except DataError:
        return False
    last = max((entry.last_offset for entry in entries), default=-1)
    if wrong.base_offset < wrong.segment.base_offset:
        return last < wrong.base_offset
    return wrong.segment.base_offset <= last < wrong.base_offset


def _finding(plan: PartitionPlan, wrong: _WrongName, *, is_blocked: bool) -> Finding:
    right = segment_name(wrong.base_offset)
    is_high = wrong.base_offset < wrong.segment.base_offset
    done = "which another segment has" if is_blocked else "and a writable start renames it"
    return plan.finding(
        "misnamed-segment",
        wrong.segment.path,
        severity="error" if is_high or is_blocked or wrong.hides_others else "warning",
        offset=wrong.base_offset,
        expected=right,
        found=wrong.segment.path.name,
        message=f"the file was renamed: by its batches its name is {right}, {done}",
    )
