"""Segments that are missing between others, found without reading whole logs: each end is compared with the next base.

Owns the quick check of a start and of `inspect`; must not write. `verify` reads every batch and finds more. In
compacted logs, offsets are missing by design: there only an index without a log shows a missing segment. Offsets that a
salvage or an earlier start reported as lost are not reported again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from storage.files import FileSystem, HandleCache
from storage.findings import finding
from storage.kafka.log.log_file import StoredBatch, walk
from storage.kafka.log.plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.active_indexes import last_indexed
from storage.kafka.recovery.evidence import emptied_segments, orphan_indexes
from storage.kafka.recovery.lost_offsets import loss_of, without_log_finding
from storage.model import Finding, Loss
from storage.shared.loss_report import is_reported, reported_ranges


def is_configured_compacted(configs: Mapping[str, str]) -> bool:
    """Return whether the configs of a topic ask for compaction."""
    return "compact" in configs.get("cleanup.policy", "")


def missing_segments(
    fs: FileSystem,
    files: HandleCache,
    plan: PartitionPlan,
    known_losses: Sequence[Loss],
    *,
    cleaned: bool,
) -> Iterator[Finding]:
    """Return findings for missing segments: `segments_without_log` if compaction has `cleaned` the partition, else
    `segment_gaps`.
    """
    if cleaned:
        return segments_without_log(fs, files, plan)
    return segment_gaps(fs, files, plan, known_losses)


def losses_without_log(plan: PartitionPlan, findings: Sequence[Finding]) -> Iterator[Loss]:
    """Yield a loss for each finding of `segments_without_log`, up to the next segment."""
    for found in findings:
        if found.code == "segment-without-log" and found.offset is not None:
            at = bisect_right(plan.segments, found.offset, key=attrgetter("base_offset"))
            yield loss_of(plan, found.offset, plan.segments[at].base_offset)


def segment_gaps(
    fs: FileSystem, files: HandleCache, plan: PartitionPlan, known_losses: Sequence[Loss]
) -> Iterator[Finding]:
    """Yield a finding for each range of offsets between two segments that no segment holds.

    If a segment's last batch shows that the log is compacted, yield only `segments_without_log`. `known_losses`: the
    losses of the partition that are already reported.
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
            continue  # the end is damaged, and reported as damage
        if end < following.base_offset and not is_reported(reported, end, following.base_offset):
            yield gap_finding(following.path, plan.partition, end, following.base_offset)


def segments_without_log(
    fs: FileSystem, files: HandleCache, plan: PartitionPlan
) -> Iterator[Finding]:
    """Yield a finding for each segment before the last that has an index, and an empty log or none.

    A segment without a log is reported between two others, and not within the offsets of the segment before it:
    compaction makes one segment of several, and removes their files one after another.
    """
    reported: set[int] = set()
    for path, base_offset in orphan_indexes(plan):
        at = bisect_left(plan.segments, base_offset, key=attrgetter("base_offset"))
        if base_offset in reported or not 0 < at < len(plan.segments):
            continue
        reported.add(base_offset)
        last = _last_batch(fs, files, plan.segments[at - 1])
        if last is None or last.header.next_offset <= base_offset:
            yield without_log_finding(plan, path, base_offset)
    what = "an empty .log file, and entries in this index"
    for path, base_offset in emptied_segments(fs, plan):
        yield without_log_finding(plan, path, base_offset, what=what)


def is_compacted(batch: StoredBatch) -> bool:
    """Return whether compaction has rewritten a batch."""
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
    """Return the finding that offsets are missing before a batch. `path`: the log that contains the batch."""
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


def _last_batch(fs: FileSystem, files: HandleCache, segment: SegmentPlan) -> StoredBatch | None:
    """Return the last good batch of a segment, read from its last index entry on; None if a gap ends the segment."""
    last = None
    with files.borrow(segment.path) as file:
        for item in walk(
            file,
            position=last_indexed(fs, file, segment),
            end=segment.file_bytes,
            next_offset=segment.base_offset,
        ):
            last = item if isinstance(item, StoredBatch) else None
    return last
