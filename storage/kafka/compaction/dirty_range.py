"""The part of a partition's log that compaction may clean, and which segments it cleans together.

Owns the rules of Kafka's LogCleanerManager (cleanableOffsets, calculateCleanableBytes, maxCompactionDelay) and of
Cleaner.groupSegmentsBySize; must not read a log or change a file.

    | clean           | dirty                                  | not yet                            |
    start             first dirty offset                       end: the first segment that
                      (cleaner-offset-checkpoint)              - takes appends, or
                                                               - has an open transaction or unpublished records, or
                                                               - is younger than min.compaction.lag.ms
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.coding.varint import INT32_MAX
from storage.files import FileSystem
from storage.kafka.index.indexes import SparseIndex
from storage.kafka.log.log_segments import LogSegments
from storage.kafka.log.segment import Segment
from storage.kafka.partition import Partition
from storage.kafka.state.settings import TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyRange:
    """The range [`first_offset`, `end_offset`) of a log that can be cleaned, and the sizes of the segments around it.

    `is_overdue`: max.compaction.lag.ms has passed for a record of it.
    """

    first_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The dirty part of all bytes that can be cleaned; 0 for an empty log."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


def dirty_range(partition: Partition, checkpoint: int | None, now_ms: int) -> DirtyRange:
    """Return the dirty range of a partition. `checkpoint`: the offset up to which it was cleaned; None if it never was,
    or if the offset is outside the log.
    """
    segments, bounds, settings = partition.segments(), partition.bounds(), partition.settings
    if checkpoint is None or not bounds.start <= checkpoint <= partition.next_offset:
        checkpoint = bounds.start
    stop = min(bounds.stable, segments.active.base_offset)
    dirty = _closed_from(segments, checkpoint)
    if settings.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - settings.min_compaction_lag_ms
        young = (s.base_offset for s in dirty if s.largest_timestamp_ms() > youngest_ms)
        stop = min(next(young, stop), stop)
    stop = max(stop, checkpoint)
    uncleanable = _closed_from(segments, stop)
    end_offset = uncleanable[0].base_offset if uncleanable else segments.active.base_offset
    return DirtyRange(
        first_offset=checkpoint,
        end_offset=end_offset,
        clean_bytes=sum(s.size_bytes for s in segments if s.base_offset < checkpoint),
        dirty_bytes=sum(
            s.size_bytes
            for s in _closed_from(segments, min(checkpoint, end_offset))
            if s.base_offset < end_offset
        ),
        is_overdue=_is_overdue(dirty, now_ms - settings.max_compaction_lag_ms),
    )


def _closed_from(segments: LogSegments, offset: int) -> Sequence[Segment]:
    """Return the segments that take no appends, from the segment that contains `offset` on."""
    return [s for s in segments[:-1] if s.limit_offset > offset]


def _is_overdue(dirty: Sequence[Segment], oldest_ms: int) -> bool:
    return oldest_ms > 0 and any(0 < s.first_timestamp_ms < oldest_ms for s in dirty)


def group_segments(
    fs: FileSystem, segments: Sequence[Segment], settings: TopicSettings, *, end_offset: int
) -> Sequence[Sequence[Segment]]:
    """Return the segments in groups, each of which is cleaned into one segment.

    A group has at most segment.bytes of log, segment.index.bytes of each index, and offsets that an index entry can
    hold, unless it is a single segment. `end_offset`: of the range that is cleaned.
    """
    limits = settings.segment_bytes, settings.segment_index_bytes, settings.segment_index_bytes
    groups: list[list[Segment]] = []
    sizes = [0, 0, 0]
    for number, segment in enumerate(segments):
        more = [
            segment.size_bytes,
            _file_bytes(fs, segment.offset_index),
            _file_bytes(fs, segment.time_index),
        ]
        following = segments[number + 1] if number + 1 < len(segments) else None
        last_offset = (end_offset if following is None else following.base_offset) - 1
        joined = [size + added for size, added in zip(sizes, more, strict=True)]
        if (
            groups
            and all(size <= limit for size, limit in zip(joined, limits, strict=True))
            and (segment.size_bytes == 0 or last_offset - groups[-1][0].base_offset <= INT32_MAX)
        ):
            groups[-1].append(segment)
            sizes = joined
        else:
            groups.append([segment])
            sizes = more
    return groups


def _file_bytes(fs: FileSystem, index: SparseIndex) -> int:
    """Return the size of the index file of a closed segment."""
    return fs.size(index.path) if fs.exists(index.path) else 0
