"""SupportsInspect for a single file, decoded without the files around it.

Owns the facts that names give: kind and base offset from the file's name, topic and partition from the
folder's name; must not read other files. Damage becomes a finding, intact data is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from storage.coding.varint import INT64_MAX
from storage.contract import Clock, Counted, Progress, StoreOptions, no_progress, not_counted
from storage.errors import InvalidArgument
from storage.files import FileSystem, HandleCache
from storage.kafka.format import names
from storage.kafka.format.messages.records import DECODED_TOPICS
from storage.kafka.recovery.misnamed import alone_finding, begin_alone
from storage.kafka.state.file_listing import unread_findings
from storage.kafka.state.root import BACKEND
from storage.kafka.tools import dump, search, summary
from storage.kafka.tools.dump import BATCHES, CHECKPOINTS, FILE_KINDS, RECORDS
from storage.kafka.tools.internal_topics import DECODED, log_runs
from storage.kafka.tools.logs import Log, LogReader
from storage.kafka.tools.rebuild import INDEXES
from storage.kafka.tools.rows import (
    PARTITION_FILES,
    ROOT_FILES,
    ReadEntries,
    Row,
    checkpoint_entries,
    index_entries,
)
from storage.kafka.tools.salvage.salvage import UNNAMED, salvage
from storage.kafka.tools.view import View
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
from storage.shared.diagnostics import Notes
from storage.shared.inspector import FileInspectorBase

_NOWHERE = TopicPartition("", 0)


class FileInspector(FileInspectorBase):
    """An inspector of one file; see SupportsInspect."""

    backend = BACKEND
    rebuild_needs = "a store or a partition directory"

    def __init__(self, fs: FileSystem, path: Path, options: StoreOptions, *, clock: Clock) -> None:
        """`path` has a name that `classify` knows."""
        kind, base_offset = classify(path.name) or (CHECKPOINTS, 0)
        super().__init__(HandleCache(fs, 1), path, has_records=kind == RECORDS)
        self._options = options
        self._clock = clock
        self._fs = fs
        self._kind = kind
        self._address = names.partition_of_dir(path.absolute().parent.name)
        self._reader = LogReader(self._files, Notes())
        topic, partition = self._place
        self._log = Log(
            path=path,
            base_offset=base_offset,
            size_bytes=fs.size(path),
            topic=topic,
            partition=partition,
        )
        if self._is_log:
            self._note_name()

    def _note_name(self) -> None:
        """Correct the base offset of a log that begins below its name, and note the finding."""
        named = self._log.base_offset
        with self._files.borrow(self._path) as file:
            begin = begin_alone(file, named)
        if begin < named:
            self._log = replace(self._log, base_offset=begin)
            self._reader.notes.add(alone_finding(self._path, self._place, begin))

    @property
    def _place(self) -> tuple[str | None, int | None]:
        return (None, None) if self._address is None else self._address

    # ---- contents ------------------------------------------------------------------------------

    def summary(self) -> Mapping[str, object]:
        topic, partition = self._place
        row: Row = {
            "path": str(self._path),
            "backend": self.backend,
            "kind": "file",
            "content": "log" if self._is_log else self._kind,
            "topic": topic,
            "partition": partition,
            "sizeBytes": self._log.size_bytes,
        }
        row |= self._log_summary() if self._is_log else {"entries": len(self._entries().entries)}
        return row | {"findings": summary.findings(self.findings())}

    def _log_summary(self) -> Row:
        count = records = 0
        first: int | None = None
        largest_ms = -1
        next_offset = self._log.base_offset
        for batch in self._reader.batches(self._log):
            count += 1
            records += max(batch.header.count, 0)
            first = batch.header.base_offset if first is None else first
            largest_ms = max(largest_ms, batch.header.max_timestamp)
            next_offset = batch.header.next_offset
        return {
            "batches": count,
            "records": records,
            "earliest": next_offset if first is None else first,
            "latest": next_offset,
            "maxTimestamp": largest_ms if count else None,
        }

    def _entries(self) -> ReadEntries:
        data = self._fs.read_bytes(self._path)
        if self._kind == CHECKPOINTS:
            found = checkpoint_entries(self._path.name, data)
        else:
            found = index_entries(FILE_KINDS[self._kind], data, self._log.base_offset)
        if found.error is not None:
            self._reader.notes.add(dump.file_finding(*self._place, self._path, found.error))
        return found

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """See SupportsInspect. `topic` and `partition` have no meaning for a file and are ignored."""
        dump.check_kind(what, self.dump_kinds())
        if isolation is Isolation.READ_COMMITTED and what == RECORDS:
            raise InvalidArgument(
                "read_committed needs the partition's directory: one file does not tell what was "
                "aborted",
                field="isolation",
            )
        if what == RECORDS:
            return dump.record_runs(self._reader, [self._log], start=0, end=INT64_MAX)
        if what == DECODED:
            return log_runs(self._reader, self._log, self._decoded_topic(), start=0, end=INT64_MAX)
        if what == BATCHES:
            return dump.batch_runs(self._reader, [self._log])
        return iter([[dump.file_row(*self._place, self._path, self._entries())]])

    def dump_kinds(self) -> Sequence[str]:
        if names.is_metadata_snapshot(self._path.name):
            return (DECODED, RECORDS, BATCHES)
        return (RECORDS, BATCHES, DECODED) if self._is_log else (self._kind,)

    def _decoded_topic(self) -> str:
        topic, _ = self._place
        if names.is_metadata_snapshot(self._path.name):
            return names.CLUSTER_METADATA_TOPIC
        if topic in DECODED_TOPICS:
            return str(topic)
        raise InvalidArgument(
            f"{DECODED}: {self._path} is not in a folder of {', '.join(sorted(DECODED_TOPICS))}",
            field="what",
        )

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        """See SupportsInspect. The topic and partition of an id are ignored."""
        self._require_log("find")
        wanted = search.LogSearch(query)
        found = search.in_log(self._reader, self._log, wanted)
        return (row for _, row in zip(range(query.limit), found, strict=False))

    # ---- offsets -------------------------------------------------------------------------------

    def partitions(self) -> Sequence[TopicPartition]:
        """See SupportsInspect: the partition of the folder's name."""
        return (self._address or _NOWHERE,)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """See SupportsInspect: from the first good batch to the last one."""
        self._require_log("offsets")
        row = self._log_summary()
        return OffsetBounds(row["earliest"], row["latest"], row["latest"])

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See SupportsInspect: the first record of that time or later in the file."""
        self._require_log("offsets")
        for batch in self._reader.batches(self._log):
            if batch.header.max_timestamp < timestamp_ms:
                continue
            for offset, time_ms, *_ in self._reader.records(batch, self._log):
                if time_ms >= timestamp_ms:
                    return TimedOffset(offset, time_ms, batch.header.leader_epoch)
        return None

    # ---- checking ------------------------------------------------------------------------------

    def verify(
        self, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        records = 0
        if self._is_log:
            for batch in self._reader.batches(self._log):
                records += len(self._reader.records(batch, self._log))
        else:
            records = len(self._entries().entries)
        size_bytes, is_log = self._log.size_bytes, self._is_log
        counted(FileCount(str(self._path), *self._place, records, size_bytes, is_log=is_log))
        yield from self.findings()

    def rebuild_kinds(self) -> Sequence[str]:
        return (INDEXES,)

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        """See SupportsInspect. Topic and partition come from the folder's name."""
        self._require_log("salvage")
        path = self._path.absolute()
        address = self._address or UNNAMED
        options = replace(self._options, progress=progress)
        only = (address, path.parent)
        view = View(path.parent.parent, options, fs=self._fs, clock=self._clock, only=only)
        try:
            return salvage(view, target, whole=False, only=path)
        finally:
            view.close()

    def findings(self) -> Sequence[Finding]:
        return [*self._reader.notes.all(), *unread_findings(self._fs)]


def classify(name: str) -> tuple[str, int] | None:
    """Return (kind of dump, base offset) by a file's name; None if the name is unknown.

    A log or index with any other stem is accepted too (base offset 0), and so are temporary and deleted
    files (LEFTOVER_SUFFIXES).
    """
    if name in ROOT_FILES or name in PARTITION_FILES:
        return CHECKPOINTS, 0
    if names.is_metadata_snapshot(name):
        return RECORDS, 0
    parsed = names.parse_segment_name(name)
    stem = name
    for suffix in names.LEFTOVER_SUFFIXES:
        stem = stem.removesuffix(suffix)
    base_offset = 0 if parsed is None else parsed[0]
    if stem.endswith(names.LOG):
        return RECORDS, base_offset
    for kind, suffix in FILE_KINDS.items():
        if stem.endswith(suffix):
            return kind, base_offset
    return None
