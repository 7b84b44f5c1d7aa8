"""Segments that are missing between others, found without reading the logs: each end against the next base.

Owns the quick look of a start and of `inspect`; `verify` reads every batch and knows more. In logs that compaction has
been at, offsets are missing by design: there only an index without a log names a missing segment. Offsets that a
salvage or an earlier start reported as lost are no news.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from storage.files import FileSystem, HandleCache
from storage.findings import finding
from storage.kafka.active_indexes import last_indexed
from storage.kafka.evidence import orphan_indexes
from storage.kafka.log_file import Batch, walk
from storage.kafka.lost_offsets import loss_of, without_log_finding
from storage.kafka.plan import PartitionPlan, SegmentPlan
from storage.kept import is_reported, reported_ranges
from storage.model import Finding, Loss


def is_configured_compacted(configs: Mapping[str, str]) -> bool:
    """Whether the configs of a topic ask for compaction."""
    return "compact" in configs.get("cleanup.policy", "")


def missing_segments(
    fs: FileSystem,
    files: HandleCache,
    plan: PartitionPlan,
    known_losses: Sequence[Loss],
    *,
    cleaned: bool,
) -> Iterator[Finding]:
    """Report what shows that segments are missing: `segments_without_log` of a partition that is `cleaned` by
    compaction, else `segment_gaps`.
    """
    if cleaned:
        return segments_without_log(fs, files, plan)
    return segment_gaps(fs, files, plan, known_losses)


def losses_without_log(plan: PartitionPlan, findings: Sequence[Finding]) -> Iterator[Loss]:
    """Return the losses of `segments_without_log`: each up to the next segment."""
    for found in findings:
        if found.code == "segment-without-log" and found.offset is not None:
            at = bisect_left(plan.segments, found.offset, key=attrgetter("base_offset"))
            yield loss_of(plan, found.offset, plan.segments[at].base_offset)


def segment_gaps(
    fs: FileSystem, files: HandleCache, plan: PartitionPlan, known_losses: Sequence[Loss]
) -> Iterator[Finding]:
    """Report the offsets between two segments of a partition that no segment holds. Where a last batch shows that
    compaction has been at the log, only `segments_without_log`. `known_losses`: those of the partition.
    """
    segments = plan.segments
    ends = [_last_batch(fs, files, segment) for segment in segments[:-1]]
    if any(batch is not None and is_compacted(batch) for batch in ends):
        yield from segments_without_log(fs, files, plan)
        return
    reported = reported_ranges(known_losses)
    for batch, (before, following) in zip(ends, pairwise(segments), strict=True):
        end = before.base_offset if batch is None else batch.header.next_offset
        if batch is None and before.size_bytes:
            continue  # damaged, and reported as such
        if end < following.base_offset and not is_reported(reported, end, following.base_offset):
            yield gap_finding(following.path, plan.partition, end, following.base_offset)


def segments_without_log(
    fs: FileSystem, files: HandleCache, plan: PartitionPlan
) -> Iterator[Finding]:
    """Report the segments between two others that have an index and no log, unless the segment before reaches over
    them: compaction makes one segment of several, and removes their files one after another.
    """
    told: set[int] = set()
    for path, base_offset in orphan_indexes(plan):
        at = bisect_left(plan.segments, base_offset, key=attrgetter("base_offset"))
        if base_offset in told or not 0 < at < len(plan.segments):
            continue
        told.add(base_offset)
        last = _last_batch(fs, files, plan.segments[at - 1])
        if last is None or last.header.next_offset <= base_offset:
            yield without_log_finding(plan, path, base_offset)


def is_compacted(batch: Batch) -> bool:
    """Whether compaction has been at a batch."""
    header = batch.header
    return header.has_delete_horizon or header.count <= header.last_offset_delta


def gap_finding(
    path: Path,
    address: tuple[str | None, int | None],
    expected: int,
    found: int,
    *,
    position: int = 0,
    severity: str = "error",
) -> Finding:
    """Offsets are missing in front of a batch. `path`: the log that the batch is in."""
    return finding(
        "offset-gap",
        path,
        severity=severity,
        position=position,
        topic=address[0],
        partition=address[1],
        offset=expected,
        expected=f"offset {expected}",
        found=f"offset {found}",
        message=f"{found - expected} offsets are missing",
    )


def _last_batch(fs: FileSystem, files: HandleCache, segment: SegmentPlan) -> Batch | None:
    """The last good batch of a segment, read from its last index entry on."""
    last = None
    with files.borrow(segment.path) as file:
        for item in walk(
            file,
            position=last_indexed(fs, file, segment),
            end=segment.file_bytes,
            next_offset=segment.base_offset,
        ):
            last = item if isinstance(item, Batch) else None
    return last
