"""Rules for a start of a partition if files name more offsets than its logs contain.

Owns the decision, noted in the plan; must not read logs or write. Six rules:

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage.files import FileSystem
from storage.findings import finding
from storage.kafka.index.indexes import ReadsFiles
from storage.kafka.log.plan import PartitionPlan
from storage.kafka.recovery.evidence import (
    CHECKPOINTS,
    Evidence,
    NamedOffset,
    end_by_index,
    end_in_folder,
    first_offset,
    is_emptied,
    orphan_indexes,
)
from storage.model import Finding, Loss

MISSING: Final = "missing"
"""The reason of a loss with no byte left in the folder."""


def judge_start(plan: PartitionPlan, known: Sequence[Loss], *, read_only: bool) -> None:
    """Compare the start of a listed partition's log with the start that files name. `known`: losses of the partition
    that are reported already.
    """
    first = first_offset(plan)
    if not plan.segments or first is None:
        return
    base_offset = plan.segments[0].base_offset
    lost = base_offset - first.offset
    reported = any(loss.next_offset == base_offset for loss in known)
    if first.offset >= base_offset or reported:
        return
    plan.findings.append(
        finding(
            "log-starts-late",
            plan.segments[0].path,
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            offset=first.offset,
            expected=f"offset {first.offset}",
            found=f"offset {base_offset}",
            message=f"the log begins at offset {base_offset}, and {first}: {lost} offsets are lost",
        )
    )
    if not read_only:  # the start removes the names of these offsets: record the loss now
        plan.losses.append(loss_of(plan, first.offset, base_offset))


def judge_log_start(
    plan: PartitionPlan, *, is_clean: bool, read_only: bool, accept_loss: bool
) -> None:
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
        finding(
            "log-start-beyond-end",
            plan.directory,
            severity="error" if hidden else "warning",
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            offset=start,
            expected=f"at most {end}",
            found=str(start),
            message=f"the log ends at offset {end}, below its log start {start}: "
            + ("its records are hidden" if hidden else "it is empty, and continues at its start"),
        )
    )
    plan.next_offset = start
    if read_only or not hidden:
        return
    if accept_loss or not is_clean or _is_cut(plan):
        plan.losses.append(loss_of(plan, first, start))
        plan.continues_at = start
    else:
        plan.refused = plan.findings[-1]


def judge_end(
    fs: FileSystem,
    plan: PartitionPlan,
    evidence: Evidence,
    *,
    indexes: ReadsFiles,
    is_clean: bool,
    read_only: bool,
    accept_loss: bool,
) -> None:
    """Compare the end of a scanned partition with the offsets that files name, and note the outcome in its plan.

    `indexes` reads index files. `is_clean`: the clean-shutdown marker exists, so no index names an offset that a
    power loss removed from the log.
    """
    log_end = plan.next_offset
    by_index = _highest(*_ends_by_index(indexes, plan))
    certain = by_index if is_clean else None
    named = _highest(
        evidence.end(plan.partition, log_end), end_in_folder(fs, plan, log_end), certain
    )
    behind = named is not None and named.offset > log_end
    emptied = is_emptied(fs, plan)
    cut = _is_cut(plan)
    if not behind and not emptied:
        unflushed = _highest(evidence.unflushed(plan.partition), by_index)
        if unflushed is not None and unflushed.offset > log_end and not cut:
            plan.findings.append(_end_finding(plan, unflushed, "warning", emptied=False))
        elif not is_clean or evidence.end(plan.partition) is None:
            plan.findings += _last_without_log(plan)
        return
    if not cut or emptied:
        plan.findings.append(_end_finding(plan, named, "error", emptied=emptied))
    if read_only:
        return
    if cut or accept_loss:
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
    return finding(
        "segment-without-log",
        path,
        topic=plan.partition.topic,
        partition=plan.partition.partition,
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
    return finding(
        code,
        path,
        severity=severity,
        topic=plan.partition.topic,
        partition=plan.partition.partition,
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
    """Return a loss with no byte left in the folder."""
    return Loss(
        topic=plan.partition.topic,
        partition=plan.partition.partition,
        path=str(plan.directory),
        position=0,
        size_bytes=0,
        first_offset=first_offset,
        next_offset=next_offset,
        reason=MISSING,
    )
