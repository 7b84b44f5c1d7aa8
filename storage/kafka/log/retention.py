"""The segments that a partition no longer keeps, and the removal of their files.

Owns the rules by log start, time and size (UnifiedLog.deleteOldSegments), and removing one segment's files; must not
decide when: the partition does, once no reader can find the segment any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.files import HandleCache, remove_if_present
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.segment import Segment
from storage.kafka.state.settings import TopicSettings


def given_up(
    segments: Sequence[Segment], settings: TopicSettings, *, now_ms: int, start: int, end: int
) -> Sequence[Segment]:
    """Return the leading segments that may be deleted. The last segment and all offsets at or above `end` stay.

    By log start: all records of the segment are below `start`. By time: the segment's newest record is older than
    retention.ms. By size: without the segment at least retention.bytes are left. A setting that is off deletes nothing.
    """
    limit_ms, limit_bytes = settings.retention_ms, settings.retention_bytes
    excess = sum(segment.size_bytes for segment in segments) - (limit_bytes or 0)
    found: list[Segment] = []
    for segment in segments[:-1]:
        if segment.limit_offset > end:
            break
        too_old = limit_ms is not None and now_ms - segment.largest_timestamp_ms() > limit_ms
        excess -= segment.size_bytes
        too_much = limit_bytes is not None and excess >= 0
        if not (too_old or too_much or segment.limit_offset <= start):
            break
        found.append(segment)
    return found


def remove_files(files: HandleCache, directory: Path, segment: Segment) -> None:
    """Remove the files of the first segment, its log first and durably.

    So a crash leaves no hole: the log always continues from its first segment to its last. The next start removes
    index files without a log.
    """
    fs = files.fs
    fs.remove(segment.path)
    fs.sync_dir(directory)
    snapshot = directory / segment_name(segment.base_offset, names.SNAPSHOT)
    paths = (*segment.paths(), segment.txn_index.path, snapshot)
    for path in paths:
        remove_if_present(fs, path)
        files.forget(path, sync=False)
