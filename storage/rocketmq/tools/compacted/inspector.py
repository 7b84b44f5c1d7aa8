"""Files of one queue of a compacted topic as SupportsInspect, without a store around them.

Owns the operations on such a PATH: the folder of the queue's log shows records, its folder or file of entries shows
entries. Must not know how an entry leads to its record. One file of the log is inspected as a commit log's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from storage.contract import Counted, Progress, StoreOptions, no_progress, not_counted
from storage.errors import InvalidArgument
from storage.files import FileSystem, HandleCache
from storage.model import (
    FileCount,
    Finding,
    FindQuery,
    Isolation,
    LossReport,
    OffsetBounds,
    TimedOffset,
    TopicPartition,
)
from storage.rocketmq.format import names
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import SparseEntry
from storage.rocketmq.state.file_listing import unread_findings
from storage.rocketmq.state.root import BACKEND
from storage.rocketmq.tools import dump, search, summary
from storage.rocketmq.tools.compacted.queue import CompactedQueue, bases_in
from storage.rocketmq.tools.compacted.rows import compacted_row, sparse_row
from storage.rocketmq.tools.rows import Row, message_row
from storage.shared.diagnostics import Notes
from storage.shared.inspector import FileInspectorBase

ENTRIES: Final = "compactioncq"


class CompactedPlace(NamedTuple):
    """Files of one queue. `bases`: of the files of entries that PATH names; None if PATH is the folder of the log."""

    path: Path
    compaction: Path
    partition: TopicPartition
    bases: Sequence[int] | None


def place_in(fs: FileSystem, path: Path) -> CompactedPlace | None:
    """Return the place of a folder of a compacted queue, or of a file of its entries; None for any other path."""
    is_dir = fs.is_dir(path, follow=True)
    folder = path.absolute() if is_dir else path.absolute().parent
    parents, queue_id = folder.parents, names.parse_queue_id(folder.name)
    if queue_id is None or len(parents) < 3:
        return None
    kind, compaction = parents[1].name, parents[2]
    partition = TopicPartition(parents[0].name, queue_id)
    if kind == names.COMPACTION_LOG and is_dir:
        return CompactedPlace(path, compaction, partition, None)
    if kind != names.COMPACTION_QUEUE:
        return None
    base = None if is_dir else names.parse_file_name(path.name)
    if base is not None:
        return CompactedPlace(path, compaction, partition, [base])
    return CompactedPlace(path, compaction, partition, bases_in(fs, path)) if is_dir else None


class CompactedInspector(FileInspectorBase):
    """Inspection of a compacted queue; see SupportsInspect."""

    backend = BACKEND

    def __init__(self, fs: FileSystem, place: CompactedPlace, options: StoreOptions) -> None:
        files = HandleCache(fs, options.open_files)
        super().__init__(files, place.path, has_records=place.bases is None)
        self._place = place
        self._queue = CompactedQueue(files, place.compaction, place.partition)
        self._notes = Notes()

    def _entries(self) -> Iterator[SparseEntry]:
        return (entry for _, _, entry in self._queue.entries(self._place.bases))

    def _records(self) -> Iterator[tuple[SparseEntry, Message]]:
        return self._queue.records(self._notes)

    # ---- contents -------------------------------------------------------------------------------

    def summary(self) -> Mapping[str, object]:
        topic, queue_id = self._place.partition
        bounds = self._bounds
        row: Row = {
            "path": str(self._path),
            "backend": self.backend,
            "kind": "folder" if self._files.fs.is_dir(self._path, follow=True) else "file",
            "content": self.dump_kinds()[0] if self._place.bases is not None else "compactionlog",
            "topic": topic,
            "partition": queue_id,
            "sizeBytes": sum(self._files.fs.size(path) for path in self._paths()),
            "records": sum(1 for _ in self._entries()),
            "earliest": bounds.start,
            "latest": bounds.end,
        }
        return row | {"findings": summary.findings(self.findings())}

    def _paths(self) -> Sequence[Path]:
        place = self._place
        if place.bases is not None:
            return [self._queue.queue / names.file_name(base) for base in place.bases]
        folder = self._queue.log
        return [folder / names.file_name(base) for base in bases_in(self._files.fs, folder)]

    def dump_kinds(self) -> Sequence[str]:
        return (dump.RECORDS,) if self._is_log else (ENTRIES,)

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """See SupportsInspect. `topic`, `partition` and `isolation` have no effect: the files are of one queue."""
        dump.check_kind(what, self.dump_kinds())
        if self._is_log:
            return dump.in_runs((compacted_row(*pair), pair[0].size) for pair in self._records())
        place = self._place.partition
        return dump.in_runs((sparse_row(place, entry), 0) for entry in self._entries())

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        self._require_log("find")
        if query.raw:
            raise InvalidArgument("raw needs a store: a log alone has no index", field="raw")
        wanted = search.LogSearch(query)
        found: Iterator[Message] = (m for _, m in self._records() if wanted.matches(m))
        if query.record_id is not None:
            found = search.with_id(found, query.record_id)
        return islice(map(message_row, found), query.limit)

    # ---- offsets -------------------------------------------------------------------------------

    @cached_property
    def _bounds(self) -> OffsetBounds:
        start = end = 0
        for number, entry in enumerate(self._entries()):
            start = entry.queue_offset if number == 0 else start
            end = entry.queue_offset + 1
        return OffsetBounds(start, end, end)

    def partitions(self) -> Sequence[TopicPartition]:
        return (self._place.partition,)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """See SupportsInspect: from the first entry to the last one."""
        return self._bounds

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See SupportsInspect: the first entry with at least that store time."""
        for entry in self._entries():
            if entry.store_timestamp_ms >= timestamp_ms:
                return TimedOffset(entry.queue_offset, entry.store_timestamp_ms)
        return None

    # ---- checking ------------------------------------------------------------------------------

    def verify(
        self, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """See SupportsInspect: every record of the queue is read, also for a file of entries."""
        found = sum(1 for _ in self._records())
        self._notes.add(*self._queue.mismatches())
        topic, queue_id = self._place.partition
        for number, path in enumerate(self._paths()):
            records = found if number == 0 and self._is_log else 0
            size_bytes = self._files.fs.size(path)
            counted(FileCount(str(path), topic, queue_id, records, size_bytes, is_log=self._is_log))
        yield from self.findings()

    def rebuild_kinds(self) -> Sequence[str]:
        return ()

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        """Raise InvalidArgument: a compacted log alone is no commit log."""
        raise InvalidArgument("salvage needs a store or its commit log", field="path")

    def findings(self) -> Sequence[Finding]:
        return [*self._notes.all(), *unread_findings(self._files.fs)]
