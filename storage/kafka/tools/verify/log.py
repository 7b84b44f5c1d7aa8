"""Verification of one segment: every batch of its log, and its indexes against the log's content.

Owns the single pass over a log that checks batches, records, epochs, offsets and index entries; must
not know other files. A segment is a part that any process may check. Results that depend on earlier
segments are kept apart, and `verify` judges them. Only the open transactions must be known
before the pass. They are guessed from the snapshot that the broker writes where a segment begins.

An index written across restarts holds other entries than a rebuild would give. So an entry counts as wrong only if it
misleads a reader:

- offset index: the batch that starts at the entry's position does not end with the entry's offset;
- time index: no batch ends with the entry's offset, or its time is not the largest up to that batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Unpack

from storage.errors import DataError, IoFailure
from storage.files import HandleCache, is_missing
from storage.findings import FindingFacts, finding
from storage.kafka.format import names, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.format.record import NO_TIMESTAMP
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index.indexes import RebuiltIndexes, rebuild_indexes
from storage.kafka.log.log_file import Gap, StoredBatch
from storage.kafka.log.offset_overflow import first_overflow, overflow_finding
from storage.kafka.state.producers import ProducerStates
from storage.kafka.tools.logs import LogReader, SegmentOutcome, SegmentTask, epoch_at, hole
from storage.model import Finding
from storage.shared.diagnostics import Meter, Notes
from storage.shared.loss_report import is_reported

# An interval that no log fills: rebuild_indexes collects no entries that would be unused.
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart(SegmentTask):
    """One segment to be checked.

    - `epochs`: the partition's checkpoint of leader epochs.
    - `left_behind`: ranges of offsets that are known to be missing.
    - `open_end`: a running server may be writing here, or a crash ended the log. Then index entries may be missing,
      some may be ahead of the log (its size was read earlier), and zeros may follow them.
    """

    start_offset: int
    epochs: Sequence[tuple[int, int]] | None
    interval_bytes: int | None
    left_behind: Sequence[range]
    open_end: bool


class FirstBatch(NamedTuple):
    """The first batch of a log."""

    position: int
    base_offset: int


@dataclass(slots=True, kw_only=True)
class SegmentResult(SegmentOutcome):
    """The findings of one segment, and the facts that the partition has to judge.

    `first` is None if a bad range comes first, `next_offset` if there is no good batch. `epochs` maps
    each (epoch of a batch, epoch wanted) that disagree to a finding.
    """

    if_undamaged: Sequence[Finding] = ()
    if_all_is_there: Sequence[Finding] = ()  # neither damaged nor compacted so far
    holes: list[Finding] = field(default_factory=list)
    epochs: dict[tuple[int, int | None], Finding] = field(default_factory=dict)
    first: FirstBatch | None = None
    next_offset: int | None = None
    after_gap: bool = False
    damaged: bool = False
    compacted: bool = False
    is_gone: bool = False  # a file was removed meanwhile
    records: int = 0


def check_segment(part: SegmentPart, meter: Meter | None = None) -> SegmentResult:
    """Read one segment. Memory: its index files, and one window of its log. Raises IoFailure, but not for a file that
    was removed meanwhile: the result says so.
    """
    files = HandleCache(part.fs, 2)
    try:
        return LogCheck(part, files, meter or Meter()).run()
    except IoFailure as error:
        if not is_missing(error):
            raise
        return SegmentResult(is_gone=True)
    finally:
        files.close(sync=False)


class LogCheck:
    """One pass over one segment."""

    def __init__(self, part: SegmentPart, files: HandleCache, meter: Meter) -> None:
        self._part = part
        self._log = log = part.log
        self._met = Notes()  # bad ranges
        self._notes = Notes()
        self._reader = LogReader(files, self._met)
        self._reader.meter = meter
        self._raw = {suffix: part.fs.read_bytes(path) for suffix, path in part.indexes.items()}
        self._aborted: list[AbortedTransaction] = []
        self._overflows = False
        self._offsets = OffsetEntries(self._load(names.INDEX), log.base_offset)
        self._times = TimeEntries(self._load(names.TIME_INDEX), log.base_offset)
        self._result = SegmentResult(opened=part.opened())
        self._producers = ProducerStates.with_open(self._result.opened)

    def run(self) -> SegmentResult:
        """Read the log, judge its indexes and return the result."""
        part, result = self._part, self._result
        rebuilt = rebuild_indexes(
            self._good(),
            base_offset=self._log.base_offset,
            interval_bytes=_NEVER if part.interval_bytes is None else part.interval_bytes,
        )
        self._judge_entries()
        result.if_undamaged = [*self._compare(rebuilt)]
        result.if_all_is_there = [*self._check_transactions()]
        result.findings = [*self._met.all(), *self._notes.all()]
        result.left_open = self._producers.open_transactions
        return result

    def _judge_entries(self) -> None:
        open_end = self._part.open_end
        if not open_end:
            self._offsets.finish()
            self._times.finish()
        self._judge(names.INDEX, self._offsets.wrong)
        self._judge(names.TIME_INDEX, self._times.wrong)
        if self._times.is_behind and not open_end and names.TIME_INDEX in self._raw:
            self._report(
                names.TIME_INDEX,
                "time-index-behind",
                "warning",
                expected=f"a last entry of time {self._times.largest_ms}",
                message="lookups by time may pass over this segment",
            )

    # ---- the log -------------------------------------------------------------------------------

    def _good(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of every good batch, checked on the way."""
        result = self._result
        for item in self._reader.items(self._log):
            if isinstance(item, Gap):
                self._pass_gap(item)
                continue
            header = item.header
            self._check_offsets(item)
            self._check_reach(item)
            self._check_epoch(item)
            result.records += len(self._reader.records(item, self._log))
            self._offsets.meet(item.position, header)
            self._times.meet(header)
            result.transactional |= header.is_control or header.is_transactional
            ended = self._producers.update(header, item.data, item.at)
            if ended is not None:
                self._aborted.append(ended)
            yield item.position, header

    def _pass_gap(self, gap: Gap) -> None:
        self._offsets.pass_over(gap.position, gap.end)
        self._times.pass_over()
        self._result.after_gap = self._result.damaged = True

    def _check_offsets(self, batch: StoredBatch) -> None:
        header, result = batch.header, self._result
        expected, found = result.next_offset, header.base_offset
        if expected is None and not result.after_gap:
            result.first = FirstBatch(batch.position, found)
        elif (
            expected is not None
            and found > expected
            and not result.after_gap
            and not is_reported(self._part.left_behind, expected, found)
        ):
            result.holes.append(hole(self._log, batch.position, expected=expected, found=found))
        if header.has_delete_horizon or header.count <= header.last_offset_delta:
            result.compacted = True
        result.next_offset = header.log_end
        result.after_gap = False

    def _check_reach(self, batch: StoredBatch) -> None:
        """Report, once for each segment, offsets that are too far from its base offset."""
        header, log = batch.header, self._log
        far = first_overflow([(batch.position, header)], log.base_offset)
        if far is not None and not self._overflows:
            self._overflows = True
            self._notes.add(overflow_finding(log.path, (log.topic, log.partition), *far))

    def _check_epoch(self, batch: StoredBatch) -> None:
        header, part = batch.header, self._part
        if header.leader_epoch < 0 or part.epochs is None:
            return
        if header.base_offset < part.start_offset:
            return
        wanted = epoch_at(part.epochs, header.base_offset)
        pair = header.leader_epoch, wanted
        if wanted != header.leader_epoch and pair not in self._result.epochs:
            self._result.epochs[pair] = self._log.finding(
                "leader-epoch-mismatch",
                "warning",
                position=batch.position,
                offset=header.base_offset,
                expected="no epoch" if wanted is None else f"epoch {wanted}",
                found=f"epoch {header.leader_epoch}",
                message="the batch and the partition's checkpoint of leader epochs disagree",
            )

    # ---- the indexes ---------------------------------------------------------------------------

    def _load(self, suffix: str) -> Sequence[tuple[int, int]]:
        """Return the valid entries of an index; report damage and zeros after the entries."""
        entry_format = offset_index if suffix == names.INDEX else time_index
        data = self._raw.get(suffix, b"")
        try:
            entries = entry_format.decode_entries(data)
        except DataError as error:
            self._report(suffix, "bad-index", "warning", message=error.message)
            return entry_format.leading_entries(data)
        if len(data) > len(entries) * entry_format.entry_size:
            self._report(
                suffix,
                "index-not-trimmed",
                "info" if self._part.open_end else "warning",
                position=len(entries) * entry_format.entry_size,
                message="zeros follow the entries",
            )
        return entries

    def _judge(self, suffix: str, wrong: WrongEntries) -> None:
        if wrong.count:
            self._report(
                suffix,
                "wrong-index-entry",
                "warning",
                position=wrong.position,
                expected=wrong.expected,
                found=wrong.found,
                message=f"{wrong.count} entries are wrong, the first of them here",
            )

    def _compare(self, rebuilt: RebuiltIndexes) -> Iterator[Finding]:
        """Report an index with other entries than a rebuild gives, if the index interval is known and not `open_end`.

        Missing or additional entries do not mislead a reader, so the finding is information only.
        """
        if self._part.interval_bytes is None or self._part.open_end:
            return
        for suffix, entries in ((names.INDEX, rebuilt.offsets), (names.TIME_INDEX, rebuilt.times)):
            stored = self._load(suffix)
            if suffix in self._raw and list(stored) != list(entries):
                yield self._finding(
                    suffix,
                    "index-differs",
                    "info",
                    expected=f"{len(entries)} entries",
                    found=f"{len(stored)} entries",
                    message="a rebuild gives other entries; these are right too",
                )

    def _check_transactions(self) -> Iterator[Finding]:
        data = self._raw.get(names.TXN_INDEX, b"")
        try:
            stored = txn_index.decode_entries(data)
        except DataError as error:
            self._report(names.TXN_INDEX, "bad-index", "warning", message=error.message)
            return
        wrong = wrong_transaction(stored, self._aborted, start_offset=self._part.start_offset)
        if wrong is not None:
            yield self._finding(
                names.TXN_INDEX,
                "wrong-txn-index",
                "warning",
                expected=wrong[0],
                found=wrong[1],
                message="read_committed may show aborted records, or hide committed ones",
            )

    def _report(self, suffix: str, code: str, severity: str, **facts: Unpack[FindingFacts]) -> None:
        self._notes.add(self._finding(suffix, code, severity, **facts))

    def _finding(
        self, suffix: str, code: str, severity: str, **facts: Unpack[FindingFacts]
    ) -> Finding:
        log = self._log
        path = log.path.with_name(segment_name(log.base_offset, suffix))
        return finding(
            code, path, severity=severity, topic=log.topic, partition=log.partition, **facts
        )


# ---- entries of an index -------------------------------------------------------------------------


class WrongEntries:
    """The number of wrong entries of a file, and the first wrong entry."""

    def __init__(self, size_bytes: int) -> None:
        self.count = 0
        self.position: int | None = None
        self.expected = ""
        self.found = ""
        self._size_bytes = size_bytes

    def add(self, index: int, expected: str, found: object) -> None:
        """Add a wrong entry: the `index`-th entry of the file."""
        if not self.count:
            self.position = index * self._size_bytes
            self.expected, self.found = expected, str(found)
        self.count += 1


class OffsetEntries:
    """The entries of an `.index`, compared with the batches of its log in order."""

    def __init__(self, entries: Sequence[tuple[int, int]], base_offset: int) -> None:
        self.wrong = WrongEntries(offset_index.entry_size)
        self._entries = entries
        self._base_offset = base_offset
        self._at = 0

    def meet(self, position: int, header: BatchHeader) -> None:
        """Compare the entries with a good batch."""
        self._refuse_before(position)
        if self._at < len(self._entries) and self._entries[self._at][1] == position:
            offset = self._base_offset + self._entries[self._at][0]
            if offset != header.last_offset:
                self.wrong.add(self._at, f"offset {header.last_offset}", offset)
            self._at += 1

    def pass_over(self, position: int, end: int) -> None:
        """Skip a bad range: entries that point into it cannot be judged."""
        self._refuse_before(position)
        while self._at < len(self._entries) and self._entries[self._at][1] < end:
            self._at += 1

    def finish(self) -> None:
        """Handle the end of the log: entries that are left point at no batch."""
        self._refuse_before(None)

    def _refuse_before(self, position: int | None) -> None:
        while self._at < len(self._entries):
            found = self._entries[self._at][1]
            if position is not None and found >= position:
                return
            self.wrong.add(self._at, "the position of a batch", found)
            self._at += 1


class TimeEntries:
    """The entries of a `.timeindex`, compared with the batches of its log in order."""

    def __init__(self, entries: Sequence[tuple[int, int]], base_offset: int) -> None:
        self.wrong = WrongEntries(time_index.entry_size)
        self.largest_ms = NO_TIMESTAMP
        self.blind = False
        self._entries = entries
        self._base_offset = base_offset
        self._at = 0

    @property
    def is_behind(self) -> bool:
        """Whether the last entry's time, which lookups use, is below the largest time of the log."""
        last_ms = self._entries[-1][0] if self._entries else NO_TIMESTAMP
        return not self.blind and not self.wrong.count and last_ms < self.largest_ms

    def meet(self, header: BatchHeader) -> None:
        """Compare the entries with a good batch."""
        reached_ms = max(self.largest_ms, header.max_timestamp)
        rises, self.largest_ms = reached_ms > self.largest_ms, reached_ms
        if self.blind:
            return
        self._refuse_before(header.last_offset)
        if self._at < len(self._entries):
            time_ms, relative_offset = self._entries[self._at]
            if self._base_offset + relative_offset == header.last_offset:
                if time_ms != reached_ms or not rises:
                    self.wrong.add(self._at, f"time {reached_ms}, first reached there", time_ms)
                self._at += 1

    def pass_over(self) -> None:
        """Skip a bad range: after it the largest time is unknown, and no entry is judged."""
        self.blind = True

    def finish(self) -> None:
        """Handle the end of the log: entries that are left belong to no batch."""
        if not self.blind:
            self._refuse_before(None)

    def _refuse_before(self, offset: int | None) -> None:
        while self._at < len(self._entries):
            found = self._base_offset + self._entries[self._at][1]
            if offset is not None and found >= offset:
                return
            self.wrong.add(self._at, "the last offset of a batch", found)
            self._at += 1


def wrong_transaction(
    stored: Sequence[AbortedTransaction],
    rebuilt: Sequence[AbortedTransaction],
    *,
    start_offset: int,
) -> tuple[str, str] | None:
    """Return (expected, found) for the first entry of a `.txnindex` that differs from the log.

    Only the file knows transactions that began before the log start. They may have lowered the last
    stable offset of other entries.
    """
    by_marker = {entry.last_offset: entry for entry in stored}
    for entry in rebuilt:
        found = by_marker.pop(entry.last_offset, None)
        if found is None or not _is_same(found, entry, start_offset):
            return str(tuple(entry)), "no entry" if found is None else str(tuple(found))
    for entry in by_marker.values():
        if entry.first_offset >= start_offset:
            return "no entry", str(tuple(entry))
    return None


def _is_same(found: AbortedTransaction, entry: AbortedTransaction, start_offset: int) -> bool:
    if start_offset == 0:
        return found == entry
    return found.producer_id == entry.producer_id and found.first_offset <= entry.first_offset
