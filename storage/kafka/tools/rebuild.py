"""Rebuild of indexes from the logs: offset, time and transaction index of every segment.

Owns which files are compared, kept aside and replaced, and the wanted content of a segment's index files, by the
engine's own rules. A segment is a part that any process may do: files that differ are written next to the store, and
then put in place. The transaction index depends on the transactions open before the segment; these are guessed as in
verify. Must not write logs. With `write` it holds the store's lock all the time:

1. New bytes are written to `DIR.rebuild-TIME` next to the store.
2. Every file that changes is copied to `DIR.cut-TIME`.
3. The file is replaced in one step: a crash leaves either the old or the new file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from storage.contract import TaskRunner, run_serially
from storage.errors import InvalidArgument, IoFailure
from storage.files import FileSystem, HandleCache, atomic_write, is_missing, write_durably
from storage.findings import finding
from storage.kafka.format import names, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index import indexes
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.evidence import end_by_index
from storage.kafka.state import blocked_paths
from storage.kafka.state.log_dirs import log_directory, refuse_several
from storage.kafka.state.producers import ProducerStates
from storage.kafka.state.root import detect
from storage.kafka.tools.live import steady
from storage.kafka.tools.logs import Log, LogReader, SegmentOutcome, SegmentTask, log_replaced
from storage.kafka.tools.view import View
from storage.model import Finding, RebuildReport, TopicPartition
from storage.shared.diagnostics import Meter, Notes
from storage.shared.recount import check_files

INDEXES: Final = "indexes"
ENTRY_BYTES: Final[Mapping[str, int]] = {
    names.INDEX: offset_index.entry_size,
    names.TIME_INDEX: time_index.entry_size,
    names.TXN_INDEX: txn_index.ENTRY_SIZE,
}


def rebuild_indexes(
    make_view: Callable[[], View], *, write: bool, run: TaskRunner = run_serially
) -> RebuildReport:
    """See SupportsInspect.rebuild. Raises StoreLocked, InvalidArgument without a store to lock, and DamagedStore if a
    folder has the name of a file.
    """
    view = make_view()
    if not write:
        return _Rebuild(view, run, write=False).run()
    refuse_several(view.directory.roots)
    if detect(view.base, view.root) is None:
        raise InvalidArgument(
            f"{view.root} is no log directory: there is nothing to lock, so nothing is written",
            field="write",
        )
    blocked_paths.refuse(log_directory(view.base, view.directory.roots))
    lock = view.base.lock(view.root / names.LOCK)
    try:
        view.close()
        return _Rebuild(make_view(), run, write=True).run()
    finally:
        lock.release()


class _Partition:
    """The segments of one partition, as one view finds them; their results arrive in ascending order.

    `parts` None: files disappeared while they were listed.
    """

    def __init__(
        self, address: TopicPartition, parts: Sequence[tuple[SegmentPlan, RebuildPart]] | None
    ) -> None:
        self.address = address
        self.is_gone = parts is None
        self.segments = parts or ()
        self.built: list[SegmentBuilt] = []
        self._open: Mapping[int, int] = {}  # transactions at the end of the last result's segment

    @property
    def is_done(self) -> bool:
        """Whether the result of every segment has arrived."""
        return len(self.built) == len(self.segments)

    def parts(self) -> Iterator[RebuildPart]:
        """Yield a part for every segment.

        A part includes the open transactions if the results of all parts before it have arrived.
        """
        for number, (_, part) in enumerate(self.segments):
            is_next = number == len(self.built)
            yield replace(part, open_transactions=self._open) if is_next else part

    def take(self, result: SegmentBuilt, again: Callable[[RebuildPart], SegmentBuilt]) -> None:
        """Add the next segment's result; `again` reads the segment once more."""
        _, part = self.segments[len(self.built)]
        if result.transactional and result.opened != self._open:
            result = again(replace(part, open_transactions=self._open))
        if result.transactional:
            self._open = result.left_open
        self.is_gone |= result.is_gone
        self.built.append(result)


class _Rebuild:
    """One pass over the partitions of a view. A partition whose files a running server replaced is looked at again."""

    def __init__(self, view: View, run: TaskRunner, *, write: bool) -> None:
        moment_ms = view.clock()
        self._view = view
        view.start_meter("rebuilding indexes", list(view.folders))
        self._run = run
        self._here = run is run_serially  # then a part reports its own progress
        self._work = partial(build_segment, meter=view.reader.meter if self._here else None)
        self._write = write
        self._files = 0
        self._changed: list[str] = []
        self._kept_dir = view.root.parent / f"{view.root.name}.cut-{moment_ms}"
        self._staged_dir = view.root.parent / f"{view.root.name}.rebuild-{moment_ms}"
        self._partitions: deque[_Partition] = deque()  # not put in place yet, in order
        self._pending: deque[_Partition] = deque()  # of the parts without results

    def run(self) -> RebuildReport:
        """Compare every index file, and with `write` replace each that differs. Return the report."""
        view = self._view
        try:
            for result in self._run(self._work, self._parts()):
                self._take(result)
                self._complete()
            self._complete()
            if self._write and self._changed:
                view.notes.add(self._kept_aside())
            replaced = set(self._changed)  # `changed` names these files: no findings for them
            return RebuildReport(
                what=INDEXES,
                written=self._write,
                files=self._files,
                changed=self._changed,
                findings=[found for found in view.findings() if found.path not in replaced],
            )
        finally:
            view.close()
            if self._write and view.base.exists(self._staged_dir):
                view.base.remove_tree(self._staged_dir)
                view.base.sync_dir(self._staged_dir.parent)

    # ---- parts ---------------------------------------------------------------------------------

    def _parts(self) -> Iterator[RebuildPart]:
        for address in self._view.folders:
            partition = self._begun(self._view, address)
            self._partitions.append(partition)
            for part in partition.parts():
                self._pending.append(partition)
                yield part

    def _begun(self, view: View, address: TopicPartition) -> _Partition:
        """Return a partition with its parts; one without, which `is_gone`, if its files disappear meanwhile."""
        try:
            return _Partition(address, list(self._segments(view, address)))
        except IoFailure as error:
            if not is_missing(error):
                raise
            return _Partition(address, None)

    def _segments(
        self, view: View, address: TopicPartition
    ) -> Iterator[tuple[SegmentPlan, RebuildPart]]:
        compacted = address in view.checkpoints[names.CLEANER_OFFSETS]
        plan = view.plan(address)
        staged = self._staged_dir / plan.directory.name if self._write else None
        for segment in plan.segments:
            if not view.base.exists(segment.path):
                continue  # a segment of a `.swap` set that the next start completes
            if _names_lost_records(view, plan, segment):
                continue  # only this index names the lost records: a start needs it
            # The part has the good batches below the end that recovery leaves.
            part = RebuildPart(
                fs=view.base,
                log=Log.of(segment, plan.partition),
                indexes=view.index_places(segment),
                snapshot=view.snapshot_place(segment),
                interval_bytes=plan.settings.index_interval_bytes,
                compacted=compacted,
                staged=staged,
            )
            yield segment, part

    def _take(self, result: SegmentBuilt) -> None:
        partition = self._pending.popleft()
        segment, part = partition.segments[len(partition.built)]
        if not self._here:
            self._view.reader.meter.add(part.log.size_bytes)
        partition.take(result, self._again)
        if (
            self._write
        ):  # at once: the lock keeps others from changing the store, and a crash costs little
            self._put(segment, part, partition.built[-1])

    def _again(self, part: RebuildPart) -> SegmentBuilt:
        (result,) = self._run(self._work, [part])
        return result

    def _complete(self) -> None:
        """Take the partitions whose results have all arrived."""
        while self._partitions and self._partitions[0].is_done:
            partition = self._partitions.popleft()
            is_changed = partition.is_gone or self._view.is_changed(partition.address)
            if is_changed:
                look = partial(self._looked_again, partition.address)
                again = steady(self._view, partition.address, look, again=True)
                if again is None:
                    continue
                partition = again
            if is_changed or not self._write:
                for place, result in zip(partition.segments, partition.built, strict=True):
                    self._put(*place, result)

    def _looked_again(self, address: TopicPartition, view: View) -> _Partition:
        """Return a partition with all results, as its files are now. Raises `log_replaced`."""
        partition = self._begun(view, address)
        for part in partition.parts():
            partition.take(self._again(part), self._again)
        if partition.is_gone:
            raise log_replaced(view.folders[address])
        return partition

    # ---- putting in place ----------------------------------------------------------------------

    def _put(self, segment: SegmentPlan, part: RebuildPart, result: SegmentBuilt) -> None:
        self._view.notes.add(*result.findings)
        self._files += result.files
        for suffix, staged in result.changed.items():
            path = self._replace(segment, part, suffix, staged)
            if self._write:
                self._recount(path, suffix, result.entries[suffix])

    def _replace(
        self, segment: SegmentPlan, part: RebuildPart, suffix: str, staged: Path | None
    ) -> Path:
        """Note the file as changed. With `write`, keep its old bytes aside, then replace it, both durably.

        Return its path.
        """
        fs = self._view.base
        path = segment.path.with_name(segment_name(segment.base_offset, suffix))
        self._changed.append(str(path))
        if not self._write:
            return path
        if suffix in segment.suffixes:
            kept = self._kept_dir / path.parent.name / path.name
            fs.make_dir(kept.parent)
            atomic_write(fs, kept, fs.read_bytes(part.indexes[suffix]))
        if staged is not None:
            atomic_write(fs, path, fs.read_bytes(staged))
        else:
            fs.remove(path)
            fs.sync_dir(path.parent)
        return path

    def _recount(self, path: Path, suffix: str, reported: int | None) -> None:
        """Read the replaced file, and check that it has the reported number of entries."""
        counted = _count_entries(self._view.base, path, suffix)
        check_files(
            {path: reported},
            {path: counted},
            what="entries",
            advice=f"The logs are unchanged, and the files that were replaced are in {self._kept_dir}",
        )

    def _kept_aside(self) -> Finding:
        return finding("kept-aside", self._kept_dir, message="the files that rebuild replaced")


def _names_lost_records(view: View, plan: PartitionPlan, segment: SegmentPlan) -> bool:
    """Return whether the index of the last segment points past the end of the log."""
    if segment.limit_offset <= plan.batches_end or view.grows(plan):
        return False
    named = end_by_index(view.base, segment, segment.size_bytes)
    return named is not None and named.offset > plan.batches_end


def _count_entries(fs: FileSystem, path: Path, suffix: str) -> int | None:
    """Return the number of entries of an index file, None if the file does not exist."""
    return len(fs.read_bytes(path)) // ENTRY_BYTES[suffix] if fs.exists(path) else None


# ---- one segment ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPart(SegmentTask):
    """One segment to be rebuilt.

    - `compacted`: the log no longer shows which transactions were aborted.
    - `staged`: the folder for new files, created when it is needed; None: compare only.
    """

    interval_bytes: int
    compacted: bool
    staged: Path | None


@dataclass(slots=True, kw_only=True)
class SegmentBuilt(SegmentOutcome):
    """The outcome of one segment.

    - `files`: the number of index files that exist or should exist.
    - `changed`: the files that differ, by suffix: the path of the new bytes. None if the file should not exist, or
      if files are only compared.
    - `entries`: the number of entries that each file should have, None for a file that should not exist.
    - `is_gone`: a file was removed meanwhile; there is no result.
    """

    files: int = 0
    changed: dict[str, Path | None] = field(default_factory=dict)
    entries: dict[str, int | None] = field(default_factory=dict)
    is_gone: bool = False


def build_segment(part: RebuildPart, meter: Meter | None = None) -> SegmentBuilt:
    """Read the good batches of a segment's log, and compare. Memory: its indexes, twice."""
    try:
        return _built(part, meter or Meter())
    except IoFailure as error:
        if not is_missing(error):
            raise
        return SegmentBuilt(is_gone=True)


def _built(part: RebuildPart, meter: Meter) -> SegmentBuilt:
    result = SegmentBuilt(opened=part.opened())
    files, notes = HandleCache(part.fs, 2), Notes()
    reader = LogReader(files, notes)
    reader.meter = meter
    try:
        wanted = _contents(part, reader, result)
    finally:
        files.close(sync=False)
    if part.compacted:
        del wanted[names.TXN_INDEX]
    for suffix, data in wanted.items():
        _compare(part, suffix, data, result)
    result.findings = notes.all()
    return result


def _contents(part: RebuildPart, reader: LogReader, result: SegmentBuilt) -> dict[str, bytes]:
    """Return the wanted bytes of the index files; a `.txnindex` without entries should not exist."""
    aborted: list[AbortedTransaction] = []
    producers = ProducerStates.with_open(result.opened)

    def batches() -> Iterator[tuple[int, BatchHeader]]:
        for batch in reader.batches(part.log):
            header = batch.header
            result.transactional |= header.is_control or header.is_transactional
            ended = producers.update(header, batch.data, batch.at)
            if ended is not None:
                aborted.append(ended)
            yield batch.position, header

    rebuilt = indexes.rebuild_indexes(
        batches(), base_offset=part.log.base_offset, interval_bytes=part.interval_bytes
    )
    result.left_open = producers.open_transactions
    result.entries = {
        names.INDEX: len(rebuilt.offsets),
        names.TIME_INDEX: len(rebuilt.times),
        names.TXN_INDEX: len(aborted) or None,
    }
    return {
        names.INDEX: b"".join(offset_index.encode_entry(*e) for e in rebuilt.offsets),
        names.TIME_INDEX: b"".join(time_index.encode_entry(*e) for e in rebuilt.times),
        names.TXN_INDEX: b"".join(map(txn_index.encode_entry, aborted)),
    }


def _compare(part: RebuildPart, suffix: str, data: bytes, result: SegmentBuilt) -> None:
    stored = part.fs.read_bytes(part.indexes[suffix]) if suffix in part.indexes else None
    absent = suffix == names.TXN_INDEX and not data
    result.files += not (absent and stored is None)
    if stored == (None if absent else data):
        return
    staged: Path | None = None
    if part.staged is not None and not absent:
        staged = part.staged / segment_name(part.log.base_offset, suffix)
        part.fs.make_dir(part.staged)
        write_durably(part.fs, staged, data)
    result.changed[suffix] = staged
