"""The segments that a partition no longer keeps, and the removal of their files.

Owns the rules by log start, time and size (UnifiedLog.deleteOldSegments), and the files that wait for their removal
(LocalLog.deleteSegmentFiles); must not decide when: the partition does, once no reader can find the segment any more.

    OFFSET.log          -> OFFSET.log.deleted         renamed first, and durably: from then on the log begins later
    OFFSET.index, ...   -> OFFSET.index.deleted, ...  also .timeindex, .txnindex, .snapshot
    *.deleted           removed file.delete.delay.ms later, or by the next start

The files of segments that compaction replaced wait here too (replacement.py names them).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from storage.errors import DiskFull
from storage.files import HandleCache, remove_if_present
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.segment import Segment
from storage.kafka.state.settings import TopicSettings


def given_up(
    segments: Sequence[Segment],
    settings: TopicSettings,
    *,
    now_ms: int,
    start: int,
    end: int,
    log_end: int,
) -> Sequence[Segment]:
    """Return the leading segments that may be deleted, without offsets at or above `end`. The last one ends at
    `log_end`: it may go if it has records, once another takes its place.

    By log start: all records of the segment are below `start`, and another follows. By time: the segment's newest
    record is older than retention.ms. By size: without the segment at least retention.bytes are left. A setting that is
    off deletes nothing.
    """
    limit_ms, limit_bytes = settings.retention_ms, settings.retention_bytes
    excess = sum(segment.size_bytes for segment in segments) - (limit_bytes or 0)
    found: list[Segment] = []
    for segment in segments:
        if min(segment.limit_offset, log_end) > end:
            break
        # Compaction may have emptied an earlier segment: then the time of its file counts.
        if not segment.size_bytes and segment is segments[-1]:
            break
        too_old = limit_ms is not None and now_ms - segment.largest_timestamp_ms() > limit_ms
        excess -= segment.size_bytes
        too_much = limit_bytes is not None and excess >= 0
        if not (too_old or too_much or segment.limit_offset <= start):
            break
        found.append(segment)
    return found


class DeletedCount:
    """The segments that a store has deleted since its start, and their bytes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.segments = 0
        self.size_bytes = 0

    def add(self, doomed: Sequence[Segment]) -> None:
        """Count deleted segments."""
        with self._lock:
            self.segments += len(doomed)
            self.size_bytes += sum(segment.size_bytes for segment in doomed)


class DeletedFiles:
    """The files of a partition's deleted segments, in the order in which they may be removed. Not thread-safe."""

    def __init__(self, files: HandleCache, directory: Path) -> None:
        self._files = files
        self._directory = directory
        # By path, in the order of their times: a file of that name that waits again replaces the one before.
        self._waiting: dict[Path, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def set_aside(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of the first segment, its log first and durably.

        So a crash leaves no hole: the log always continues from its first segment to its last. The next start removes
        index files without a log.
        """
        fs, directory = self._files.fs, self._directory
        self._rename(segment.path, due_ms)
        fs.sync_dir(directory)
        snapshot = directory / segment_name(segment.base_offset, names.SNAPSHOT)
        for path in (*segment.paths()[1:], segment.txn_index.path, snapshot):
            if fs.exists(path):
                self._rename(path, due_ms)

    def _rename(self, path: Path, due_ms: int) -> None:
        fs = self._files.fs
        target = path.with_name(path.name + names.DELETED)
        try:
            fs.rename(path, target)
        except DiskFull:  # a name may need space; a removal frees some
            fs.remove(path)
        else:
            self.add([target], due_ms)
        self._files.forget(path, sync=False)

    def add(self, paths: Sequence[Path], due_ms: int) -> None:
        """Add files that were renamed already."""
        for path in paths:
            self._waiting.pop(path, None)
            self._waiting[path] = due_ms

    def take_due(self, now_ms: int) -> Sequence[Path]:
        """Return the files whose time has come, which no longer wait."""
        found = [path for path, due_ms in self._waiting.items() if due_ms <= now_ms]
        for path in found:
            del self._waiting[path]
        return found


def remove_files(files: HandleCache, paths: Sequence[Path]) -> None:
    """Remove files that were set aside; files that are gone are no error."""
    for path in paths:
        remove_if_present(files.fs, path)
