"""The content of a partition's folder by file name: segments, snapshots, and index files without a log.

Owns turning a folder into the segments of a plan; must not judge the content of a log, with one
exception: it checks whether an empty log's base offset is inside the offset range of the log before it.
"""

from __future__ import annotations

from itertools import pairwise

from storage.files import FileSystem, HandleCache
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.log_file import StoredBatch, walk
from storage.kafka.log.plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.evidence import INDEX_SUFFIXES


def list_files(fs: FileSystem, files: HandleCache, plan: PartitionPlan) -> None:
    """Add the segments, snapshots and orphan index files of the plan's folder to the plan, by file name."""
    suffixes: dict[int, set[str]] = {}
    for name in fs.list_dir(plan.directory):
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
        size_bytes = fs.size(path)
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
            with files.borrow(before.path) as file:
                good = walk(file, position=0, end=before.file_bytes, next_offset=before.base_offset)
                reached = (
                    item.header.next_offset for item in good if isinstance(item, StoredBatch)
                )
                stray = any(offset > segment.base_offset for offset in reached)
            if stray:
                plan.segments.remove(segment)
                plan.removed_segments.append(segment)
                continue
        before = segment
