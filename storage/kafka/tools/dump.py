"""The contents of an opened partition as rows: its records, its batches, the entries of its files.

Owns the walk over a partition's files and the rules which records are left out (control records,
records before the log start, aborted transactions); must not know the shape of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from storage.errors import DataError, InvalidArgument, IoFailure
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.batch import HEADER_SIZE, decode_header
from storage.kafka.format.names import parse_segment_name
from storage.kafka.log.log_file import Gap, StoredBatch, good_batches
from storage.kafka.log.reading import AbortedRanges
from storage.kafka.log.segment import Segment
from storage.kafka.recovery.losses import is_compacted, segments_without_log
from storage.kafka.state.producers import ProducerStates
from storage.kafka.state.root import bad_partition_metadata, bad_root_file
from storage.kafka.tools.live import steady_runs
from storage.kafka.tools.logs import Log, LogReader, hole
from storage.kafka.tools.rows import (
    OFFSET_FILES,
    PARTITION_FILES,
    ROOT_FILES,
    ReadEntries,
    Row,
    batch_row,
    checkpoint_entries,
    index_entries,
    record_rows,
)
from storage.kafka.tools.view import View
from storage.model import Finding, Isolation, TopicPartition
from storage.shared.loss_report import is_reported

RECORDS: Final = "records"
BATCHES: Final = "batches"
CHECKPOINTS: Final = "checkpoints"
FILE_KINDS: Final[Mapping[str, str]] = {
    "index": names.INDEX,
    "timeindex": names.TIME_INDEX,
    "txnindex": names.TXN_INDEX,
    "snapshot": names.SNAPSHOT,
}
LAST_OFFSETS: Final[Mapping[str, str]] = {RECORDS: "offset", BATCHES: "lastOffset"}
"""The kinds of rows that logs give, and the field with the last offset of such a row."""
KINDS: Final = (RECORDS, BATCHES, *FILE_KINDS, CHECKPOINTS)

RUN_BYTES: Final = 1 << 18
"""Approximate number of log bytes in one run of rows: large writes, little memory."""

Runs = Iterator[list[Row]]
Hidden = Callable[[StoredBatch], bool]


class HoleWatch:
    """A reader of a partition's batches in order, as LogReader, that also finds holes between them."""

    def __init__(self, view: View, address: TopicPartition) -> None:
        self._view = view
        self._address = address
        self._reported = view.reported_losses(address)
        self._is_compacted = address in view.checkpoints[names.CLEANER_OFFSETS]
        self._next_offset: int | None = None
        self._holes: list[Finding] = []

    def items(self, log: Log) -> Iterator[StoredBatch | Gap]:
        """Yield every good batch of the next log, and the damaged ranges between them."""
        for item in self._view.reader.items(log):
            self._meet(log, item)
            yield item

    def batches(self, log: Log) -> Iterator[StoredBatch]:
        """Yield every good batch of the next log."""
        return good_batches(self.items(log))

    def _meet(self, log: Log, item: StoredBatch | Gap) -> None:
        if isinstance(item, Gap):
            self._next_offset = None
            return
        header, expected = item.header, self._next_offset
        found = header.base_offset
        if (
            expected is not None
            and found > expected
            and not is_reported(self._reported, expected, found)
        ):
            self._holes.append(hole(log, item.position, expected=expected, found=found))
        if is_compacted(item):
            self._is_compacted = True
        self._next_offset = header.next_offset

    def finish(self) -> None:
        """Note the findings that depend on all logs: holes, or for a compacted log the segments without a log."""
        view, plan = self._view, self._view.plan(self._address)
        if self._is_compacted:
            view.notes.add(*segments_without_log(view.files, plan))
        else:
            view.notes.add(*self._holes)


def check_kind(what: str, kinds: Sequence[str]) -> None:
    """Raise InvalidArgument unless `kinds` contains this kind of dump."""
    if what not in kinds:
        raise InvalidArgument(
            f"dump: {what!r} is not offered here, choose one of {', '.join(kinds)}", field="what"
        )


def partition_rows(view: View, address: TopicPartition, what: str, isolation: Isolation) -> Runs:
    """Yield the rows of one kind of a partition, in runs. A running server may replace logs meanwhile."""
    if what in LAST_OFFSETS:
        rows = partial(_log_rows, address=address, what=what, isolation=isolation)
        yield from steady_runs(view, address, rows, LAST_OFFSETS[what])
        return
    try:
        if what == CHECKPOINTS:
            yield from _folder_rows(view, address)
        else:
            yield from _index_rows(view, address, FILE_KINDS[what])
    except IoFailure as error:
        view.note_gone(address, error)


def _log_rows(
    view: View, start: int, *, address: TopicPartition, what: str, isolation: Isolation
) -> Runs:
    """Yield the records or batches of a partition from an offset on, in runs."""
    if what == RECORDS:
        bounds = view.partition(address).bounds()
        committed = isolation is Isolation.READ_COMMITTED
        end = bounds.stable if committed else bounds.end
        hidden = _aborted(view, address, bounds.start, end) if committed else None
        return record_runs(
            view.reader,
            view.logs(address),
            start=max(bounds.start, start),
            end=end,
            hidden=hidden,
            holes=HoleWatch(view, address),
        )
    return batch_runs(view.reader, view.logs(address), HoleWatch(view, address), start=start)


# ---- logs ----------------------------------------------------------------------------------------


def record_runs(
    reader: LogReader,
    parts: Sequence[Log],
    *,
    start: int,
    end: int,
    hidden: Hidden | None = None,
    holes: HoleWatch | None = None,
) -> Runs:
    """Yield the records at offsets [start, end), in runs; bad ranges and hidden batches are left out."""
    run: list[Row] = []
    size_bytes = 0
    next_offset = start  # a record below it is dropped, as Kafka's consumer drops it
    for log in parts:
        if log.base_offset >= end:
            break
        for batch in (holes or reader).batches(log):
            header = batch.header
            if header.base_offset >= end:
                break
            if header.is_control or header.next_offset <= start or (hidden and hidden(batch)):
                continue
            found = reader.records(batch, log)
            if header.base_offset < next_offset:
                found = [record for record in found if record[0] >= next_offset]
            next_offset = found[-1][0] + 1 if found else next_offset
            run += record_rows(log.topic, log.partition, header, found)
            size_bytes += header.size_bytes
            if size_bytes >= RUN_BYTES:
                yield run
                run, size_bytes = [], 0
    if run:
        yield run
    if holes is not None:
        holes.finish()


def _aborted(view: View, address: TopicPartition, start: int, end: int) -> Hidden:
    """Return a function that is true for the batches that a read_committed reader must not see."""
    segments = view.partition(address).segments()
    _find_unindexed(view, address, segments)
    return AbortedRanges(segments.at, start, end).hides


def _find_unindexed(view: View, address: TopicPartition, segments: Sequence[Segment]) -> None:
    """Collect from the logs the aborted transactions of segments without a transaction index.

    A segment without aborts has no such index. If an index was deleted, only the log shows the difference. The broker
    does not read the log for that; a dump reads the log anyway.
    """
    if all(segment.txn_index.entries() for segment in segments):
        return
    producers = ProducerStates()
    for segment, log in zip(segments, view.logs(address), strict=True):
        ended = [
            producers.update(batch.header, batch.data, batch.at)
            for batch in view.reader.unnoted_batches(log)
            if batch.header.is_transactional
        ]
        if not segment.txn_index.entries():
            segment.txn_index.hold([entry for entry in ended if entry is not None])


def batch_runs(
    reader: LogReader, parts: Sequence[Log], holes: HoleWatch | None = None, *, start: int = 0
) -> Runs:
    """Yield every batch of these logs that reaches `start`, in runs; bad batches too if their header can be read."""
    for log in parts:
        place = {"topic": log.topic, "partition": log.partition, "file": log.path.name}
        run: list[Row] = []
        for item in (holes or reader).items(log):
            if isinstance(item, StoredBatch):
                if item.header.last_offset >= start:
                    run.append(place | batch_row(item.header, item.position, valid=True))
            else:
                run += [place | row for row in _bad_batches(reader, log, item)]
            if len(run) >= 1000:
                yield run
                run = []
        if run:
            yield run
    if holes is not None:
        holes.finish()


def _bad_batches(reader: LogReader, log: Log, gap: Gap) -> Iterator[Row]:
    """Yield rows for the headers in a gap, as long as the size in each leads to another readable header."""
    with reader.files.borrow(log.path) as file:
        position = gap.position
        while position < gap.end:
            try:
                header = decode_header(file.pread(HEADER_SIZE, position), 0)
            except DataError:
                return
            yield batch_row(header, position, valid=False)
            position += header.size_bytes


# ---- files ---------------------------------------------------------------------------------------


def file_row(topic: str | None, partition: int | None, path: Path, entries: ReadEntries) -> Row:
    """Return the row of one file with its entries."""
    return {
        "topic": topic,
        "partition": partition,
        "file": path.name,
        "entries": entries.entries,
    }


def file_finding(topic: str | None, partition: int | None, path: Path, error: DataError) -> Finding:
    """Return the finding for a small file that is damaged."""
    if path.name == names.PARTITION_METADATA:
        return bad_partition_metadata(path, error)
    if path.name in ROOT_FILES:
        return bad_root_file(path, error)
    if path.name == names.LEADER_EPOCHS:
        code = "bad-leader-epochs"
    else:
        code = "bad-snapshot" if names.SNAPSHOT in path.name else "bad-index"
    return finding(code, path, topic=topic, partition=partition, message=error.message)


def _index_rows(view: View, address: TopicPartition, suffix: str) -> Runs:
    """Yield one row for each file of one kind that is not empty.

    After a clean stop this includes files that the next start would remove: they exist and are intact.
    """
    folder = view.folders[address]
    view.partition(address)
    after = set(view.fs.list_dir(folder))
    before = set(view.base.list_dir(folder)) if view.clean else set()
    for name in sorted(after | before):
        parsed = parse_segment_name(name)
        if parsed is None or parsed[1] != suffix:
            continue
        path = folder / name
        data = (view.fs if name in after else view.base).read_bytes(path)
        if data:
            entries = index_entries(suffix, data, parsed[0])
            yield [_noted_row(view, address, path, entries)]


def _folder_rows(view: View, address: TopicPartition) -> Runs:
    folder = view.folders[address]
    view.partition(address)
    for name in PARTITION_FILES:
        path = folder / name
        if view.fs.exists(path):
            entries = checkpoint_entries(name, view.fs.read_bytes(path))
            yield [_noted_row(view, address, path, entries)]


def root_rows(view: View, addresses: Sequence[TopicPartition], *, everything: bool) -> Runs:
    """Yield the files at the root, or (not `everything`) the entries of its checkpoints for these partitions."""
    for name in ROOT_FILES if everything else OFFSET_FILES:
        for path in [root / name for root in view.directory.roots]:
            if view.fs.exists(path):
                yield [_root_row(view, path, None if everything else addresses)]


def _root_row(view: View, path: Path, only: Sequence[TopicPartition] | None) -> Row:
    entries = checkpoint_entries(path.name, view.fs.read_bytes(path))
    if entries.error is not None:
        view.notes.add(file_finding(None, None, path, entries.error))
    if only is not None:
        lines = [e for e in entries.entries if (e["topic"], e["partition"]) in only]
        entries = ReadEntries(lines, None)
    return file_row(None, None, path, entries)


def _noted_row(view: View, address: TopicPartition, path: Path, entries: ReadEntries) -> Row:
    if entries.error is not None:
        view.notes.add(file_finding(*address, path, entries.error))
    return file_row(*address, path, entries)
