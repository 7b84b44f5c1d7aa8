"""Segments that repeat batches of other segments: copies under another name, and tails that overlap the next base.

Owns finding batches that another segment holds in equal bytes, and leaving them out of the plan; must not write.
Kafka's broker reads such a log by the base offsets of its segments, and its consumer takes each record once
(LocalLog.read, LogSegments.floorEntry). An overlapping batch with other bytes is left to the scan, which reports it as
a misplaced batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from storage.files import HandleCache
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.index.indexes import ReadsFiles
from storage.kafka.log.log_file import Gap, StoredBatch, good_batches
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.active_indexes import last_indexed


def pass_repeats(indexes: ReadsFiles, files: HandleCache, plan: PartitionPlan) -> None:
    """End each segment before the batches that later segments repeat in equal bytes.

    A segment without other batches is left out, except the first segment. A writable start removes it: otherwise it
    would bring the records back when retention deletes the later segment.
    """
    _pass_copies(files, plan)
    segments = list(plan.segments)
    for at, segment in enumerate(segments[:-1]):
        position = _repeated_from(indexes, files, segment, segments[at + 1 :])
        if position is None:
            continue
        size_bytes = segment.file_bytes - position
        plan.findings.append(
            plan.finding(
                "overlapping-segments",
                segment.path,
                position=position,
                offset=segments[at + 1].base_offset,
                message=f"{size_bytes} bytes of batches that later segments hold too, in equal bytes",
            )
        )
        segment.size_bytes = segment.file_bytes = position
        if not position and at:
            _leave_out(plan, segment)
    for segment, following in pairwise(plan.segments):
        segment.limit_offset = following.base_offset


def _pass_copies(files: HandleCache, plan: PartitionPlan) -> None:
    """Leave out each segment that begins below its own base offset and holds only batches of the segment before it.

    Such a file was copied under a higher name: its first batches do not fit, and the segment before has all of them.
    """
    before: SegmentPlan | None = None
    for segment in list(plan.segments):
        if before is None or not _is_copy(files, segment, before):
            before = segment
            continue
        plan.findings.append(
            plan.finding(
                "overlapping-segments",
                segment.path,
                position=0,
                offset=segment.base_offset,
                message=f"{segment.file_bytes} bytes of batches that {before.path.name} holds too, in equal bytes",
            )
        )
        _leave_out(plan, segment)
        before.limit_offset = segment.limit_offset


def _leave_out(plan: PartitionPlan, segment: SegmentPlan) -> None:
    plan.segments.remove(segment)
    plan.removed += [
        plan.directory / segment_name(segment.base_offset, suffix)
        for suffix in sorted(segment.suffixes - {names.SNAPSHOT})
    ]


def _is_copy(files: HandleCache, segment: SegmentPlan, before: SegmentPlan) -> bool:
    low = before.base_offset
    first = next(segment.items_from(files, low), None)
    if not isinstance(first, StoredBatch) or first.header.base_offset >= segment.base_offset:
        return False
    others = _batches(files, [before])
    for item in segment.items_from(files, low):
        if isinstance(item, Gap):
            return False
        same = next((o for o in others if o.header.base_offset >= item.header.base_offset), None)
        if same is None or _bytes_of(same) != _bytes_of(item):
            return False
    return True


def _repeated_from(
    indexes: ReadsFiles, files: HandleCache, segment: SegmentPlan, later: Sequence[SegmentPlan]
) -> int | None:
    """Return the position from which on `later` segments repeat all batches of a segment; None if they do not."""
    limit_offset = later[0].base_offset
    with files.borrow(segment.path) as file:
        last = last_indexed(indexes, file, segment)
    if not any(
        _reaches(item, limit_offset)
        for item in segment.items_from(files, segment.base_offset, last)
    ):
        return None
    others = _batches(files, later)
    other = next(others, None)
    start: int | None = None
    for item in segment.items_from(files, segment.base_offset):
        if start is None and not _reaches(item, limit_offset):
            continue
        if isinstance(item, Gap):
            return None
        while other is not None and other.header.base_offset < item.header.base_offset:
            other = next(others, None)
        if other is None or _bytes_of(other) != _bytes_of(item):
            return None
        start = item.position if start is None else start
    return start


def _reaches(item: StoredBatch | Gap, offset: int) -> bool:
    return isinstance(item, StoredBatch) and item.header.next_offset > offset


def _batches(files: HandleCache, segments: Sequence[SegmentPlan]) -> Iterator[StoredBatch]:
    for segment in segments:
        yield from good_batches(segment.items_from(files, segment.base_offset))


def _bytes_of(batch: StoredBatch) -> bytes:
    return bytes(batch.data[batch.at : batch.at + batch.header.size_bytes])
