"""Single files as SupportsInspect: a commit log (one file or a folder), files of a queue, an index file, a
checkpoint or a config file. They are decoded as stored, without a store around them.

Owns the operations for each kind of file; must not read other files. Damaged parts become findings, good
parts are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from storage.contract import Clock, Counted, Progress, StoreOptions, no_progress, not_counted
from storage.errors import InvalidArgument, InvalidConfig
from storage.files import FileSystem, HandleCache
from storage.findings import finding
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
from storage.rocketmq.format.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, file_size
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.key_index_file import KeyIndexFile
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.index.sizes import DEFAULTS, infer_sizes
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.scan import LogRange
from storage.rocketmq.state.file_listing import unread_findings
from storage.rocketmq.state.root import BACKEND
from storage.rocketmq.state.settings import Sizes, parse_store_settings
from storage.rocketmq.tools import dump, search, summary
from storage.rocketmq.tools.dump import COMMIT_LOG, CONSUME_QUEUE, INDEX_FILE, RECORDS
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.path_kind import Alone
from storage.rocketmq.tools.rebuild import rebuild
from storage.rocketmq.tools.rows import Row, message_row
from storage.rocketmq.tools.salvage.salvage import Salvage
from storage.rocketmq.tools.unrecovered import UnrecoveredFiles
from storage.rocketmq.tools.verify.index import BEGIN, IndexCheck
from storage.rocketmq.tools.verify.index_file import check_index_file
from storage.rocketmq.tools.verify.queues import QueueContext
from storage.rocketmq.tools.verify.record_check import RecordCheck, note_tail
from storage.shared.diagnostics import Meter, Notes, Tallies
from storage.shared.inspector import FileInspectorBase

_NOWHERE: Final = TopicPartition("", 0)
_EVERYWHERE: Final = 1 << 62


class _FileWalk(LogWalk):
    """A walk that finally reports the bytes after the last good record, because no start will report them."""

    def log_ranges(self) -> Iterator[LogRange | Padding]:
        yield from super().log_ranges()
        note_tail(self, self.notes)


class FileInspector(FileInspectorBase):
    """Inspection of files of one kind; see SupportsInspect."""

    backend = BACKEND

    def __init__(
        self, fs: FileSystem, place: Alone, options: StoreOptions, *, clock: Clock
    ) -> None:
        files = HandleCache(fs, options.open_files)
        super().__init__(files, place.path, has_records=place.kind == COMMIT_LOG)
        self._fs = fs
        self._clock = clock
        self._place = place
        self._options = options
        self._notes = Notes()

    # ---- the files -----------------------------------------------------------------------------

    @cached_property
    def _run(self) -> FileSequence:
        """All files of the folder, as one run; `_span` is the part of it that PATH names."""
        path, bases = self._place.path, self._place.bases
        folder = path if self._fs.is_dir(path, follow=True) else path.parent
        settings = parse_store_settings(self._options.settings)
        set_bytes = settings.commit_log_bytes if self._is_log else settings.consume_queue_bytes
        file_bytes = set_bytes or self._fs.size(folder / names.file_name(bases[0]))
        run = FileSequence(self._files, folder, max(file_bytes, 1), kind=self._place.kind)
        run.load()
        return run

    @property
    def _span(self) -> tuple[int, int]:
        """The positions [start, end) in the run of the files that PATH names."""
        bases = self._place.bases
        return bases[0], bases[-1] + self._run.file_bytes

    def _walk(self, what: str = "", progress: Progress = no_progress) -> LogWalk:
        start, end = self._span
        no_queues = QueueTable(self._files, self._place.path, UNIT_SIZE)
        meter = Meter(progress, what, end - start)
        return _FileWalk(self._run, no_queues, self._notes, start=start, end=end, meter=meter)

    @cached_property
    def _units(self) -> tuple[ConsumeQueue, int, int]:
        """The queue, and the offsets [first, stop) of the entries in these files."""
        run = self._run
        units = ConsumeQueue(self._files, run.directory, run.file_bytes)
        units.run.load()
        start, end = self._span
        stop = -(-min(run.data_end(start), end) // UNIT_SIZE)
        units.use(start // UNIT_SIZE, stop)
        return units, start // UNIT_SIZE, stop

    @cached_property
    def _index(self) -> KeyIndexFile:
        """The index file. Raises InvalidConfig if its sizes are unknown."""
        path = self._place.path
        settings = parse_store_settings(self._options.settings)
        size_bytes = self._fs.size(path)
        default = DEFAULT_SLOTS, DEFAULT_ENTRIES
        if settings.index_slots and settings.index_entries:
            sizes: tuple[int, int] | None = settings.index_slots, settings.index_entries
        else:
            sizes = infer_sizes(self._fs, path.parent)
        if sizes is None and size_bytes == file_size(*default):
            sizes = default
        if sizes is None:
            raise InvalidConfig(
                f"{path}: {size_bytes} bytes do not tell how many slots and entries it has: set "
                "maxHashSlotNum and maxIndexNum as they were when it was written",
                name="maxIndexNum",
                value=None,
            )
        return KeyIndexFile(self._files, path, slots=sizes[0], entries=sizes[1])

    # ---- contents -------------------------------------------------------------------------------

    def summary(self) -> Mapping[str, object]:
        place = self._place
        is_dir = self._fs.is_dir(place.path, follow=True)
        row: Row = {
            "path": str(place.path),
            "backend": self.backend,
            "kind": "folder" if is_dir else "file",
            "content": place.kind,
            "topic": place.topic,
            "partition": place.queue_id,
            "sizeBytes": None if is_dir else self._fs.size(place.path),
        }
        row |= self._content_summary()
        return row | {"findings": summary.findings(self.findings())}

    def _content_summary(self) -> Row:
        kind = self._place.kind
        if kind == COMMIT_LOG:
            return self._log_summary()
        if kind == CONSUME_QUEUE:
            _, first, stop = self._units
            return {"earliest": first, "latest": stop}
        if kind == INDEX_FILE:
            header = self._index.header
            return {
                "beginTimestamp": header.begin_timestamp_ms,
                "endTimestamp": header.end_timestamp_ms,
                "beginPhyOffset": header.begin_physical_offset,
                "endPhyOffset": header.end_physical_offset,
                "entries": header.index_count - 1,
            }
        return {"entries": len(self._small_file()["entries"])}

    def _log_summary(self) -> Row:
        walk = self._walk()
        records = 0
        first_ms: int | None = None
        for placed in walk.records():
            records += 1
            first_ms = placed.message.store_timestamp_ms if first_ms is None else first_ms
        return {
            "records": records,
            "minPhyOffset": self._span[0],
            "maxPhyOffset": walk.position,
            "firstTimestamp": first_ms,
            "maxTimestamp": walk.last_store_timestamp_ms if records else None,
        }

    def _small_file(self) -> Row:
        return dump.small_file_row(self._fs, self._place.path, self._notes)

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """See SupportsInspect. `topic` and `partition` select records of a log; for other files they are ignored."""
        dump.check_kind(what, self.dump_kinds())
        if what == RECORDS:
            return dump.in_runs(
                (message_row(message, physical_offset=at), message.size)
                for at, message, *_ in self._walk().records()
                if topic in (None, message.topic) and partition in (None, message.queue_id)
            )
        if what == COMMIT_LOG:
            everything = topic is None and partition is None
            return dump.log_runs(
                self._walk(), None if everything else self._meant(topic, partition)
            )
        if what == CONSUME_QUEUE:
            units, first, stop = self._units
            place = self._place
            return dump.unit_runs(units, first, stop, (place.topic, place.queue_id))
        if what == INDEX_FILE:
            file = self._index
            return iter([[dump.index_file_row(self._files, file.path, file.slots, file.entries)]])
        return iter([[self._small_file()]])

    def _meant(self, topic: str | None, partition: int | None) -> Sequence[TopicPartition]:
        return [
            address
            for address in self.partitions()
            if topic in (None, address.topic) and partition in (None, address.partition)
        ]

    def dump_kinds(self) -> Sequence[str]:
        return (RECORDS, COMMIT_LOG) if self._is_log else (self._place.kind,)

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        """See SupportsInspect. Raises InvalidArgument for a query that needs an index or a store."""
        self._require_log("find")
        if query.raw:
            raise InvalidArgument("raw needs a store: a log alone has no index", field="raw")
        wanted = search.LogSearch(query)
        in_log = search.in_log(self._walk(), wanted)
        found: Iterator[Message] = (message for _, message in in_log)
        if query.record_id is not None:
            found = search.with_id(found, query.record_id)
        return islice(map(message_row, found), query.limit)

    # ---- offsets -------------------------------------------------------------------------------

    @cached_property
    def _bounds(self) -> Mapping[TopicPartition, OffsetBounds]:
        """First and next offset of every queue that has records in the log."""
        found: dict[TopicPartition, OffsetBounds] = {}
        for placed in self._walk().records():
            message = placed.message
            if message.in_queue:
                address = TopicPartition(message.topic, message.queue_id)
                end = message.queue_offset + 1
                before = found.get(address)
                start = message.queue_offset if before is None else before.start
                found[address] = OffsetBounds(start, end, end)
        return dict(sorted(found.items()))

    def partitions(self) -> Sequence[TopicPartition]:
        """See SupportsInspect: for a log, the queues that have records; for queue files, the queue named by the
        folders.
        """
        if self._is_log:
            return tuple(self._bounds)
        topic, queue_id = self._place.topic, self._place.queue_id
        return (_NOWHERE if topic is None else TopicPartition(topic, queue_id or 0),)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """See SupportsInspect: from the first good record to the last good record."""
        if self._place.kind == CONSUME_QUEUE:
            _, first, stop = self._units
            return OffsetBounds(first, stop, stop)
        self._require_log("offsets")
        return self._bounds[partition]

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See SupportsInspect: the first record in the log with at least that store time."""
        self._require_log("offsets")
        for placed in self._walk().records():
            message = placed.message
            ours = (message.topic, message.queue_id) == partition and message.in_queue
            if ours and message.store_timestamp_ms >= timestamp_ms:
                return TimedOffset(message.queue_offset, message.store_timestamp_ms)
        return None

    # ---- checking ------------------------------------------------------------------------------

    def verify(
        self, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        tallies = Tallies()
        kind, entries = self._place.kind, Counter[int]()
        if kind == COMMIT_LOG:
            walk = self._walk("verifying", progress)
            check = RecordCheck(walk, tallies)
            for placed in walk.records():
                check.meet(placed)
                entries[self._run.base_of(placed.physical_offset) or 0] += 1
        elif kind == CONSUME_QUEUE:
            entries = self._check_units(tallies)
        elif kind == INDEX_FILE:
            nothing_known = QueueContext(_EVERYWHERE, None, lambda start, end: False)
            file = self._index
            index = IndexCheck([file], nothing_known, BEGIN, directory=file.path.parent)
            index.finish(_EVERYWHERE)
            tallies.merge(index.tallies)
            of_slots, entries[0] = check_index_file(file)
            tallies.merge(of_slots)
        else:
            self._small_file()
        for count in self._counts(entries):
            counted(count)
        yield from self.findings()
        yield from tallies.all()

    def _counts(self, entries: Mapping[int, int]) -> Iterator[FileCount]:
        """Yield every file that was read. `entries`: the number of entries by base offset of the file."""
        place = self._place
        address = (place.topic, None if place.topic is None else place.queue_id)
        files = {0: place.path}
        if place.kind in (COMMIT_LOG, CONSUME_QUEUE):
            files = {base: self._run.path(base) for base in place.bases}
        for base, path in files.items():
            size_bytes = self._fs.size(path)
            number = entries.get(base, 0)
            yield FileCount(str(path), *address, number, size_bytes, is_log=self._is_log)

    def _check_units(self, tallies: Tallies) -> Counter[int]:
        """Check that each queue entry is valid by itself. Return the number of entries by file."""
        units, first, stop = self._units
        entries = Counter[int]()
        for offset, unit in units.entries(first, stop):
            if not unit.is_valid:
                found = f"{unit.size} bytes at {unit.physical_offset}"
                tallies.add(self._bad_unit(units, offset, found))
            entries[units.run.base_of(offset * UNIT_SIZE) or 0] += 1
        return entries

    def _bad_unit(self, units: ConsumeQueue, offset: int, found: str) -> Finding:
        path, position = units.run.place_of(offset * UNIT_SIZE)
        return finding(
            "bad-unit",
            path,
            position=position,
            topic=self._place.topic,
            partition=self._place.queue_id,
            offset=offset,
            found=found,
            message="the queue entry is not valid: its position or size is impossible",
        )

    def rebuild_kinds(self) -> Sequence[str]:
        return rebuild.KINDS

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        """See SupportsInspect. Raises InvalidArgument if the files' names are no positions in one log. The sizes of
        queue and index files are those that are set, or RocketMQ's defaults.
        """
        self._require_log("salvage")
        start, end = self._span
        if not self._run.is_whole or self._run.base_of(start) is None:
            raise InvalidArgument(
                f"{self._place.path}: the name and length of its files fit no place in one log: "
                "set mappedFileSizeCommitLog",
                field="path",
            )
        settings = parse_store_settings(self._options.settings)
        sizes = Sizes(
            commit_log_bytes=self._run.file_bytes,
            consume_queue_bytes=settings.consume_queue_bytes or DEFAULTS.consume_queue_bytes,
            index_slots=settings.index_slots or DEFAULTS.index_slots,
            index_entries=settings.index_entries or DEFAULTS.index_entries,
        )
        options = replace(self._options, progress=progress)
        queues = QueueTable(self._files, self._place.path, UNIT_SIZE)
        source = UnrecoveredFiles(
            files=self._files, run=self._run, queues=queues, start=start, end=end, clean=False
        )
        path = self._place.path.absolute()
        return Salvage(source, sizes, options, path=path, directory=None, clock=self._clock).run(
            target
        )

    def findings(self) -> Sequence[Finding]:
        return [*self._notes.all(), *unread_findings(self._files.fs)]
