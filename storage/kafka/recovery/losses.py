"""Lost records: rules for a start if files name more offsets than a log contains, and segments missing between others.

Owns the decisions, noted in the plan; must not write. Six rules for the offsets that files name:

- The log ends below an offset that a file names. If a cut explains this (a torn tail, an accepted loss), the log
  continues at that offset, so no offset is assigned twice. Otherwise a writable start does not serve the partition.
- After an unclean stop only the journal of requests, or an index of the log's end, names that offset: a power loss lost
  records before their flush. A warning reports this, and the log continues at its end.
- Only an index without entries is left of the last segment. A warning reports this after an unclean stop, and also if
  no file outside the folder names an offset of the partition.
- The log ends below the log start of its checkpoint, and has records. After a clean stop a writable start does not
  serve the partition. After an unclean stop, or if a cut explains this, the log continues at the log start, and the
  loss is reported.
- The folder has no log, but files that are written after a log: as in the first rule, whatever offsets they name.
- The log begins above its first offset by the leader epochs. This is reported, and the existing records are served.

A segment that is missing between others is found without reading whole logs: each end is compared with the next base.
(`verify` reads every batch and finds more.) In compacted logs, offsets are missing by design: there only an index
without a log shows a missing segment. Offsets that a salvage or an earlier start reported as lost are not reported
again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final

from storage.files import HandleCache
from storage.findings import finding
from storage.kafka.index.indexes import ReadsFiles
from storage.kafka.log.log_file import StoredBatch
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.active_indexes import last_indexed
from storage.kafka.recovery.evidence import (
    CHECKPOINTS,
    NamedOffset,
    RecoveryContext,
    emptied_segments,
    end_by_index,
    end_in_folder,
    first_offset,
    is_emptied,
    orphan_indexes,
)
from storage.model import Finding, Loss, TopicPartition
from storage.shared.loss_report import is_reported, reported_ranges

MISSING: Final = "missing"
"""The reason of a loss with no byte left in the folder."""


def judge_start(context: RecoveryContext, plan: PartitionPlan) -> None:
    """Compare the start of a listed partition's log with the start that files name."""
    known = context.known_losses.get(plan.partition, ())
    first = first_offset(plan)
    if not plan.segments or first is None:
        return
    base_offset = plan.segments[0].base_offset
    lost = base_offset - first.offset
    reported = any(loss.next_offset == base_offset for loss in known)
    if first.offset >= base_offset or reported:
        return
    plan.findings.append(
        plan.finding(
            "log-starts-late",
            plan.segments[0].path,
            offset=first.offset,
            expected=f"offset {first.offset}",
            found=f"offset {base_offset}",
            message=f"the log begins at offset {base_offset}, and {first}: {lost} offsets are lost",
        )
    )
    if not context.read_only:  # the start removes the names of these offsets: record the loss now
        plan.losses.append(loss_of(plan, first.offset, base_offset))


def judge_log_start(context: RecoveryContext, plan: PartitionPlan) -> None:
    """Compare the end of a scanned partition with the log start of its checkpoint. No log may end below its log start.

    The real broker deletes all segments of such a log (LogLoader.recoverLog). Here the records stay in their files,
    hidden. After an unclean stop a power loss explains the difference: the new log start after a deletion of records
    was flushed, and the end of the log was not.
    """
    start, end = plan.start_offset, plan.next_offset
    if start <= end:
        return
    first = plan.segments[0].base_offset if plan.segments else end
    hidden = any(segment.size_bytes for segment in plan.segments)
    plan.findings.append(
        plan.finding(
            "log-start-beyond-end",
            severity="error" if hidden else "warning",
            offset=start,
            expected=f"at most {end}",
            found=str(start),
            message=f"the log ends at offset {end}, below its log start {start}: "
            + ("its records are hidden" if hidden else "it is empty, and continues at its start"),
        )
    )
    plan.next_offset = start
    if context.read_only or not hidden:
        return
    if context.accept_loss or not context.clean_shutdown or _is_cut(plan):
        plan.losses.append(loss_of(plan, first, start))
        plan.continues_at = start
    else:
        plan.refused = plan.findings[-1]


def judge_end(context: RecoveryContext, plan: PartitionPlan, indexes: ReadsFiles) -> None:
    """Compare the end of a scanned partition with the offsets that files name, and note the outcome in its plan.

    With the clean-shutdown marker no index names an offset that a power loss removed from the log.
    """
    evidence, fs, is_clean = context.evidence, context.fs, context.clean_shutdown
    log_end = plan.next_offset
    by_index = _highest(*_ends_by_index(indexes, plan))
    certain = by_index if is_clean else None
    named = _highest(
        evidence.end(plan.partition, log_end), end_in_folder(fs, plan, log_end), certain
    )
    ends_below = named is not None and named.offset > log_end
    emptied = is_emptied(fs, plan)
    cut = _is_cut(plan)
    if not ends_below and not emptied:
        unflushed = _highest(evidence.unflushed(plan.partition), by_index)
        if unflushed is not None and unflushed.offset > log_end and not cut:
            plan.findings.append(_end_finding(plan, unflushed, "warning", emptied=False))
        elif not is_clean or evidence.end(plan.partition) is None:
            plan.findings += _last_without_log(plan)
        return
    if not cut or emptied:
        plan.findings.append(_end_finding(plan, named, "error", emptied=emptied))
    if context.read_only:
        return
    if cut or context.accept_loss:
        _continue_above(plan, log_end if named is None else max(named.offset, log_end))
    else:
        plan.refused = plan.findings[-1]


def _last_without_log(plan: PartitionPlan) -> Iterator[Finding]:
    """Report index files without a log, of a segment at or after the log end.

    Such files have two possible causes, and no file shows which: a crash right after the files were created, or the
    loss of the segment's log with all its records.
    """
    for path, base_offset in orphan_indexes(plan):
        if base_offset >= plan.next_offset:
            yield without_log_finding(plan, path, base_offset)
            return


def without_log_finding(
    plan: PartitionPlan, path: Path, base_offset: int, *, what: str = "no .log file"
) -> Finding:
    """Return the finding that a segment has an index file, at `path`, and no log or an empty one."""
    return plan.finding(
        "segment-without-log",
        path,
        offset=base_offset,
        message=f"the segment at offset {base_offset} has {what}: its records are lost, if it had any",
    )


def _ends_by_index(indexes: ReadsFiles, plan: PartitionPlan) -> Iterator[NamedOffset | None]:
    """Yield the offsets that indexes name after the good batches of their logs. Segments below the log end are
    skipped: their indexes cannot name such an offset.
    """
    for segment in plan.segments:
        if segment.limit_offset > plan.next_offset:
            yield end_by_index(indexes, segment, segment.size_bytes)
    for removed in plan.removed_segments:
        yield end_by_index(indexes, removed, removed.file_bytes)


def _highest(*named: NamedOffset | None) -> NamedOffset | None:
    return max((n for n in named if n is not None), key=lambda n: n.offset, default=None)


def _is_cut(plan: PartitionPlan) -> bool:
    """Return whether the start cuts the log: this explains a log end below a named offset."""
    return any(loss.size_bytes for loss in plan.losses) or any(
        segment.size_bytes < segment.file_bytes for segment in plan.segments
    )


def _end_finding(
    plan: PartitionPlan, named: NamedOffset | None, severity: str, *, emptied: bool
) -> Finding:
    code, path, message = "log-ends-below-named", plan.directory, ""
    if emptied:
        code = "partition-without-logs"
        message = "" if named is None else f"the folder has no .log file, and {named}"
    elif named is not None:
        path = named.path
        code = "checkpoint-ahead" if path.name in CHECKPOINTS else code
        lost = named.offset - plan.next_offset
        message = f"the log ends at offset {plan.next_offset}, and {named}: {lost} offsets are lost"
    return plan.finding(
        code,
        path,
        severity=severity,
        offset=None if named is None else named.offset,
        expected=f"at most {plan.next_offset}, the end of the log",
        found="no log" if named is None else str(named.offset),
        message=message,
    )


def _continue_above(plan: PartitionPlan, offset: int) -> None:
    """Let the log continue at `offset`, and add the offsets between the log end and `offset` to the losses."""
    if plan.losses and plan.losses[-1].next_offset is None:
        plan.losses[-1] = replace(plan.losses[-1], next_offset=offset)
    else:
        lost_to = max((loss.next_offset or 0 for loss in plan.losses), default=0)
        first = max(plan.next_offset, lost_to)
        if first < offset or not plan.segments:
            plan.losses.append(loss_of(plan, min(first, offset), offset or None))
    if offset > plan.next_offset:
        plan.continues_at = plan.next_offset = offset
    if not plan.segments:
        plan.start_offset = plan.next_offset


def loss_of(plan: PartitionPlan, first_offset: int, next_offset: int | None) -> Loss:
    """Return a loss of the plan's partition with no byte left in the folder."""
    return missing_loss(plan.partition, plan.directory, first_offset, next_offset)


def missing_loss(
    partition: TopicPartition, path: Path, first_offset: int, next_offset: int | None
) -> Loss:
    """Return a loss with no byte left at `path`."""
    return Loss(
        topic=partition.topic,
        partition=partition.partition,
        path=str(path),
        position=0,
        size_bytes=0,
        first_offset=first_offset,
        next_offset=next_offset,
        reason=MISSING,
    )


def is_configured_compacted(configs: Mapping[str, str]) -> bool:
    """Return whether the configs of a topic ask for compaction."""
    return "compact" in configs.get("cleanup.policy", "")


def missing_segments(
    files: HandleCache, plan: PartitionPlan, known_losses: Sequence[Loss], *, cleaned: bool
) -> Iterator[Finding]:
    """Return findings for missing segments: `segments_without_log` if compaction has `cleaned` the partition, else
    `segment_gaps`.
    """
    if cleaned:
        return segments_without_log(files, plan)
    return segment_gaps(files, plan, known_losses)


def losses_without_log(plan: PartitionPlan, findings: Sequence[Finding]) -> Iterator[Loss]:
    """Yield a loss for each finding of `segments_without_log`, up to the next segment."""
    for found in findings:
        if found.code == "segment-without-log" and found.offset is not None:
            at = bisect_right(plan.segments, found.offset, key=attrgetter("base_offset"))
            yield loss_of(plan, found.offset, plan.segments[at].base_offset)


def segment_gaps(
    files: HandleCache, plan: PartitionPlan, known_losses: Sequence[Loss]
) -> Iterator[Finding]:
    """Yield a finding for each range of offsets between two segments that no segment holds.

    If a segment's last batch shows that the log is compacted, yield only `segments_without_log`. `known_losses`: the
    losses of the partition that are already reported.
    """
    segments = plan.segments
    ends = [_last_batch(files, segment) for segment in segments[:-1]]
    if any(batch is not None and is_compacted(batch) for batch in ends):
        yield from segments_without_log(files, plan)
        return
    reported = reported_ranges(known_losses)
    for batch, (before, following) in zip(ends, pairwise(segments), strict=True):
        end = before.base_offset if batch is None else batch.header.next_offset
        if batch is None and before.size_bytes:
            continue  # the end is damaged, and reported as damage
        if end < following.base_offset and not is_reported(reported, end, following.base_offset):
            yield gap_finding(following.path, plan.partition, end, following.base_offset)


def segments_without_log(files: HandleCache, plan: PartitionPlan) -> Iterator[Finding]:
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
        last = _last_batch(files, plan.segments[at - 1])
        if last is None or last.header.next_offset <= base_offset:
            yield without_log_finding(plan, path, base_offset)
    what = "an empty .log file, and entries in this index"
    for path, base_offset in emptied_segments(files.fs, plan):
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


def _last_batch(files: HandleCache, segment: SegmentPlan) -> StoredBatch | None:
    """Return the last good batch of a segment, read from its last index entry on; None if a gap ends the segment."""
    last = None
    with files.borrow(segment.path) as file:
        position = last_indexed(files.fs, file, segment)
    for item in segment.items_from(files, segment.base_offset, position):
        last = item if isinstance(item, StoredBatch) else None
    return last
