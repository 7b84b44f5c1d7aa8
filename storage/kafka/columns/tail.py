"""A partition that another process may be writing: examined once, then followed as it grows.

Owns the segments and ends of one partition as a reader of its files sees them; must not write, and knows no other
partition. It begins with the state that recovery would leave (a plan of `storage.kafka.recovery.examine` that is not
carried out) and goes on with the good batches after it. So a refresh reads only new bytes, and one file size for each
segment.

    known:  0.log  4711.log |  new: more of 4711.log, 9000.log ...

The known state must be unchanged, else the partition has to be opened again:
- Sealed segments keep their size. Only the oldest segments may be deleted.
- The last known batch is at its position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import Corrupt, DataError, IoFailure
from storage.files import FileSystem, HandleCache, is_missing
from storage.kafka.format import names
from storage.kafka.format.batch import HEADER_SIZE, BatchHeader, decode_header
from storage.kafka.log.log_file import StoredBatch, walk
from storage.kafka.log.log_segments import LogSegments
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.log.reading import find_time, skip_to_time
from storage.kafka.log.segment import Segment
from storage.model import Finding, OffsetBounds, TimedOffset, TopicPartition

OPEN_FILES: Final = 4

LOST_ENDS: Final = frozenset(
    {"checkpoint-ahead", "log-ends-below-named", "log-start-beyond-end", "partition-without-logs"}
)
"""Codes of findings which report that records are lost at the end of a log, or that the whole log is lost."""

Sizes = Mapping[int, int]
"""Sizes of the `.log` files in a partition's folder in bytes, by base offset."""


class KnownBatch(NamedTuple):
    """A batch that a refresh compares, to check that the log is the same."""

    path: Path
    position: int
    header: BatchHeader


def log_sizes(fs: FileSystem, folder: Path) -> Sizes:
    """Return the sizes of the log files in a folder. A file deleted meanwhile is left out. Raises IoFailure."""
    found: dict[int, int] = {}
    for name in fs.list_dir(folder):
        parsed = names.parse_segment_name(name)
        if parsed is not None and parsed[1] == names.LOG:
            try:
                found[parsed[0]] = fs.size(folder / name)
            except IoFailure as error:
                if not is_missing(error):
                    raise
    return found


class FollowedPartition:
    """A followed partition. Not thread-safe: for one thread at a time."""

    def __init__(
        self,
        fs: FileSystem,
        plan: PartitionPlan,
        sizes: Sizes,
        *,
        origin: Callable[[Path], Path | None],
    ) -> None:
        """Build the segments of a plan. `sizes` were read before the plan was made. `origin` maps a path in the plan
        to the path of the file on disk.
        """
        self.partition: TopicPartition = plan.partition
        self._fs = fs
        self._files = HandleCache(fs, OPEN_FILES)
        self._directory = plan.directory
        self._settings = plan.settings
        self._start = plan.start_offset
        self._next = plan.next_offset
        self._batches_end = plan.batches_end  # where the next batch may begin
        self._producers = plan.producers
        self._sizes = sizes
        self.segments = LogSegments(
            self._known_segment(segment, origin) for segment in plan.segments
        )
        self.lost_ends: Sequence[Finding] = [
            found
            for found in plan.findings
            if found.code in LOST_ENDS and found.severity == "error"
        ]
        # Not settled: a start would cut, rename or leave out a segment. If anything changes, a start has done it.
        self._is_settled = not (
            plan.removed_segments
            or self.lost_ends  # the lost files may be restored
            or {segment.base_offset for segment in self.segments} != sizes.keys()
            or any(loss.next_offset is not None for loss in plan.losses)
            or any(segment.path.suffix != names.LOG for segment in self.segments)
        )
        self._mark = self._last_batch()

    def _known_segment(
        self, planned: SegmentPlan, origin: Callable[[Path], Path | None]
    ) -> Segment:
        segment = Segment(
            self._files,
            self._directory,
            planned.base_offset,
            self._settings,
            size_bytes=planned.size_bytes,
            has_txn_index=names.TXN_INDEX in planned.suffixes,
        )
        segment.path = origin(segment.path) or segment.path
        if planned.indexes is not None:
            segment.offset_index.hold(planned.indexes.offsets)
            segment.time_index.hold(planned.indexes.times)
        for index in segment.offset_index, segment.time_index:
            if index.held is not None:
                continue
            if index.path.suffix in planned.suffixes:
                index.path = origin(index.path) or index.path
            else:
                index.hold(())
        if planned.aborted is not None:
            segment.txn_index.hold(planned.aborted)
        elif names.TXN_INDEX in planned.suffixes:
            segment.txn_index.path = origin(segment.txn_index.path) or segment.txn_index.path
        return segment

    def _last_batch(self) -> KnownBatch | None:
        """Return the last batch of the last segment; None if that segment has no batch."""
        if not self.segments or not self.segments.active.size_bytes:
            return None
        found = self.segments.active.batches(self._batches_end - 1, stop_offset=self._batches_end)
        with closing(found), suppress(Corrupt):  # type: ignore[type-var]  # a generator
            for batch in found:
                return KnownBatch(batch.path, batch.position, batch.header)
        return None

    # ---- known state ---------------------------------------------------------------------------

    def bounds(self) -> OffsetBounds:
        unstable = self._producers.first_unstable_offset(self._next)
        stable = self._next if unstable is None else min(unstable, self._next)
        return OffsetBounds(self._start, max(self._start, stable), self._next)

    def file_bytes(self, segment: Segment) -> int | None:
        """Return the size of a log to which no more is appended; None for the last one, or if the log is no plain
        file.
        """
        if segment is self.segments.active or not self._is_settled:
            return None
        return self._sizes.get(segment.base_offset)

    def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        return find_time(self.segments, timestamp_ms, start=self._start, end=self._next)

    def offset_before_time(self, timestamp_ms: int) -> int:
        return skip_to_time(self.segments, timestamp_ms, start=self._start, end=self._next)

    def close(self) -> None:
        """Close all open files."""
        self._files.close(sync=False)

    # ---- refresh -------------------------------------------------------------------------------

    def refresh(self, log_start_offset: int) -> bool:
        """Read the changes since the last refresh; return False if the partition has to be opened again.

        `log_start_offset`: the partition's offset in the log-start-offset-checkpoint. Raises IoFailure.
        """
        sizes = log_sizes(self._fs, self._directory)
        if not self._is_settled:  # segments and files may differ in their names: allow no change
            if sizes != self._sizes or not self._is_still_there():
                return False
        elif not self._is_intact(sizes):
            return False
        else:
            self._drop_deleted(sizes)
            last = self.segments.active.base_offset if self.segments else -1
            for base_offset in sorted(base for base in sizes if base > last):
                self._read_on()
                self._roll(base_offset)
            self._read_on()
            self._sizes = sizes
        first = self.segments[0].base_offset if self.segments else 0
        self._start = max(self._start, log_start_offset, first)
        self._next = max(self._next, self._start)
        return True

    def _is_intact(self, sizes: Sizes) -> bool:
        """Return whether the known segments are unchanged, except that the oldest are deleted and the last one grew."""
        if not self.segments:
            return True
        active = self.segments.active
        if active.base_offset not in sizes or sizes[active.base_offset] < active.size_bytes:
            return False
        first = min(sizes)
        known = {base: size for base, size in self._sizes.items() if base >= first}
        known.pop(active.base_offset, None)
        if any(sizes.get(base) != size for base, size in known.items()):
            return False
        if any(base < active.base_offset for base in sizes.keys() - self._sizes.keys()):
            return False
        return self._is_still_there()

    def _is_still_there(self) -> bool:
        """Return whether the last known batch is still at its position."""
        mark = self._mark
        if mark is None:
            return True
        try:
            file = self._fs.open(mark.path)
        except IoFailure as error:
            if is_missing(error):
                return False
            raise
        try:
            return decode_header(file.pread(HEADER_SIZE, mark.position)) == mark.header
        except DataError:
            return False
        finally:
            file.close()

    def _drop_deleted(self, sizes: Sizes) -> None:
        for segment in list(self.segments):
            if segment.base_offset not in sizes:
                self.segments.remove(segment)
                for path in (*segment.paths(), segment.txn_index.path):
                    self._files.forget(path, sync=False)

    def _roll(self, base_offset: int) -> None:
        """Begin the segment at `base_offset`; the files of the segment before are complete now. Bytes of its log that
        are no good batch are damage, and a read of them reports it.
        """
        if self.segments:
            sealed = self.segments.active
            sealed.size_bytes = self._fs.size(sealed.path)
            sealed.offset_index.release()
            sealed.time_index.release()
        segment = Segment(self._files, self._directory, base_offset, self._settings, size_bytes=0)
        segment.offset_index.hold(())
        segment.time_index.hold(())
        self.segments.roll(segment)

    def _read_on(self) -> None:
        """Read the good batches after the known end of the last segment."""
        if not self.segments:
            return
        segment = self.segments.active
        if self._fs.size(segment.path) < segment.size_bytes + HEADER_SIZE:
            return
        self._files.forget(segment.path, sync=False)  # an empty log may have been replaced
        file = self._fs.open(segment.path)
        try:
            for item in walk(
                file,
                position=segment.size_bytes,
                end=file.data_end(segment.size_bytes),
                next_offset=max(self._batches_end, segment.base_offset),
            ):
                if isinstance(item, StoredBatch):
                    self._take(segment, item)
        finally:
            file.close()

    def _take(self, segment: Segment, batch: StoredBatch) -> None:
        segment.observe(batch.header, batch.position)
        aborted = self._producers.update(batch.header, batch.data, batch.at)
        if aborted is not None:
            segment.txn_index.hold([*segment.txn_index.entries(), aborted])
        self._batches_end = batch.header.next_offset
        self._next = max(self._next, batch.header.log_end)
        self._mark = KnownBatch(batch.path, batch.position, batch.header)
