"""Verifying one segment: every batch of its log, and its indexes against what the log holds.

Owns the one pass over a log in which batches, records, epochs, offsets and index entries are checked;
must not know other files. What one segment hands to the next is in Progression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, Protocol

from storage.errors import DataError
from storage.kafka.format import names, offset_index, time_index, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.indexes import RebuiltIndexes, rebuild_indexes
from storage.kafka.log_file import Batch, Gap
from storage.kafka.producers import ProducerStates
from storage.kafka.tools.check_indexes import (
    OffsetEntries,
    TimeEntries,
    WrongEntries,
    wrong_transaction,
)
from storage.kafka.tools.logs import Log, LogReader
from storage.model import Finding
from storage.notes import Notes

_NEVER: Final = 1 << 62  # an interval that no log fills: nothing is rebuilt only to be thrown away


class _Format(Protocol):
    """What is needed of the module of an index."""

    ENTRY_SIZE: int

    def decode_entries(self, data: bytes) -> list[tuple[int, int]]: ...
    def leading_entries(self, data: bytes) -> list[tuple[int, int]]: ...


@dataclass(slots=True, kw_only=True)
class Progression:
    """What is known of a partition where one segment ends and the next begins."""

    start_offset: int
    next_offset: int
    epochs: Sequence[tuple[int, int]] | None
    compacted: bool
    interval_bytes: int | None
    producers: ProducerStates = field(default_factory=ProducerStates)
    holes: list[Finding] = field(default_factory=list)
    after_gap: bool = False
    damaged: bool = False
    told_epochs: set[tuple[int, int | None]] = field(default_factory=set)

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch in force at an offset, by the checkpoint."""
        epochs = self.epochs or ()
        at = bisect_right(epochs, offset, key=itemgetter(1)) - 1
        return epochs[at][0] if at >= 0 else None


class LogCheck:
    """One pass over one segment; `raw` holds its index files.

    `open_end`: a running server may be writing here, or a crash has ended it. Then entries may be
    missing, some may be ahead of the log (which was looked at before), and zeros may follow them.
    """

    def __init__(
        self,
        reader: LogReader,
        log: Log,
        state: Progression,
        raw: Mapping[str, bytes],
        *,
        open_end: bool,
    ) -> None:
        self._reader = reader
        self._log = log
        self._state = state
        self._raw = raw
        self._open_end = open_end
        self._notes = Notes()
        self._aborted: list[AbortedTransaction] = []
        self._offsets = OffsetEntries(self._load(names.INDEX), log.base_offset)
        self._times = TimeEntries(self._load(names.TIME_INDEX), log.base_offset)

    def run(self) -> Sequence[Finding]:
        """Read the log and judge; what is wrong with this segment's files."""
        interval_bytes = self._state.interval_bytes
        rebuilt = rebuild_indexes(
            self._good(),
            base_offset=self._log.base_offset,
            interval_bytes=_NEVER if interval_bytes is None else interval_bytes,
        )
        if not self._open_end:
            self._offsets.finish()
            self._times.finish()
        self._judge(names.INDEX, self._offsets.wrong)
        self._judge(names.TIME_INDEX, self._times.wrong)
        if self._times.is_behind and not self._open_end and names.TIME_INDEX in self._raw:
            self._report(
                names.TIME_INDEX,
                "time-index-behind",
                "warning",
                expected=f"a last entry of time {self._times.largest_ms}",
                message="lookups by time may pass over this segment",
            )
        self._compare(rebuilt)
        self._check_transactions()
        return self._notes.all()

    # ---- the log -------------------------------------------------------------------------------

    def _good(self) -> Iterator[tuple[int, BatchHeader]]:
        """Every good batch, checked on the way."""
        for item in self._reader.items(self._log):
            if isinstance(item, Gap):
                self._pass_gap(item)
                continue
            self._check_offsets(item)
            self._check_epoch(item)
            self._reader.records(item, self._log)
            self._offsets.meet(item.position, item.header)
            self._times.meet(item.header)
            ended = self._state.producers.update(item.header, item.data, item.at)
            if ended is not None:
                self._aborted.append(ended)
            yield item.position, item.header

    def _pass_gap(self, gap: Gap) -> None:
        self._offsets.pass_over(gap.position, gap.end)
        self._times.pass_over()
        self._state.after_gap = self._state.damaged = True

    def _check_offsets(self, batch: Batch) -> None:
        header, state = batch.header, self._state
        if header.base_offset > state.next_offset and not state.after_gap:
            finding = self._log.finding(
                "offset-gap",
                "warning",
                position=batch.position,
                offset=state.next_offset,
                expected=f"offset {state.next_offset}",
                found=f"offset {header.base_offset}",
                message=f"{header.base_offset - state.next_offset} offsets are missing",
            )
            state.holes.append(finding)
        if header.has_delete_horizon or header.count <= header.last_offset_delta:
            state.compacted = True
        state.next_offset = header.next_offset
        state.after_gap = False

    def _check_epoch(self, batch: Batch) -> None:
        header, state = batch.header, self._state
        if header.leader_epoch < 0 or state.epochs is None:
            return
        if header.base_offset < state.start_offset:
            return
        wanted = state.epoch_at(header.base_offset)
        pair = header.leader_epoch, wanted
        if wanted != header.leader_epoch and pair not in state.told_epochs:
            state.told_epochs.add(pair)
            finding = self._log.finding(
                "leader-epoch-mismatch",
                "warning",
                position=batch.position,
                offset=header.base_offset,
                expected=f"epoch {wanted}",
                found=f"epoch {header.leader_epoch}",
                message="the batch and the partition's checkpoint of leader epochs disagree",
            )
            self._notes.add(finding)

    # ---- the indexes ---------------------------------------------------------------------------

    def _load(self, suffix: str) -> Sequence[tuple[int, int]]:
        """The entries of an index that make sense."""
        entry_format: _Format = offset_index if suffix == names.INDEX else time_index
        data = self._raw.get(suffix, b"")
        try:
            entries = entry_format.decode_entries(data)
        except DataError as error:
            self._report(suffix, "bad-index", "warning", message=error.message)
            return entry_format.leading_entries(data)
        if len(data) > len(entries) * entry_format.ENTRY_SIZE:
            self._report(
                suffix,
                "index-not-trimmed",
                "info" if self._open_end else "warning",
                position=len(entries) * entry_format.ENTRY_SIZE,
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

    def _compare(self, rebuilt: RebuiltIndexes) -> None:
        """Entries too many or too few mislead nobody; told only where the interval is known."""
        if self._state.interval_bytes is None or self._open_end or self._state.damaged:
            return
        for suffix, entries in ((names.INDEX, rebuilt.offsets), (names.TIME_INDEX, rebuilt.times)):
            stored = self._load(suffix)
            if suffix in self._raw and list(stored) != list(entries):
                self._report(
                    suffix,
                    "index-differs",
                    "info",
                    expected=f"{len(entries)} entries",
                    found=f"{len(stored)} entries",
                    message="a rebuild would give others; these are right as well",
                )

    def _check_transactions(self) -> None:
        data = self._raw.get(names.TXN_INDEX, b"")
        try:
            stored = txn_index.decode_entries(data)
        except DataError as error:
            self._report(names.TXN_INDEX, "bad-index", "warning", message=error.message)
            return
        if self._state.compacted or self._state.damaged:
            return
        start_offset = self._state.start_offset
        wrong = wrong_transaction(stored, self._aborted, start_offset=start_offset)
        if wrong is not None:
            self._report(
                names.TXN_INDEX,
                "wrong-txn-index",
                "warning",
                expected=wrong[0],
                found=wrong[1],
                message="read_committed may show aborted records, or hide committed ones",
            )

    def _report(self, suffix: str, code: str, severity: str, **facts: object) -> None:
        log = self._log
        path = log.path.with_name(segment_name(log.base_offset, suffix))
        self._notes.add(
            Finding(
                code=code,
                severity=severity,
                path=str(path),
                topic=log.topic,
                partition=log.partition,
                **facts,  # type: ignore[arg-type]  # named by the callers
            )
        )
