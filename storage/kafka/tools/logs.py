"""The walk over `.log` files for the tools: every good batch, and a finding for every bad range.

Owns the names of bad ranges that are not repaired, and the list of findings; must not write, and must
not know partitions: a log may be a segment of an opened partition or a single file.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final, Unpack

from storage.coding.varint import INT64_MAX
from storage.errors import Corrupt, DataError, IoFailure
from storage.files import File, FileSystem, HandleCache
from storage.findings import FindingFacts, finding
from storage.kafka.format import producer_snapshot
from storage.kafka.format.batch import KNOWN_ATTRIBUTES, decode_control
from storage.kafka.format.compression import CODECS
from storage.kafka.format.record import DecodedRecord
from storage.kafka.log.log_file import (
    MISPLACED,
    OLD_FORMAT,
    Gap,
    StoredBatch,
    end_of,
    good_batches,
    is_zero,
    walk,
)
from storage.kafka.log.partition_plan import SegmentPlan
from storage.kafka.log.reading import decoded
from storage.kafka.log.segment import Segment
from storage.kafka.recovery.losses import gap_finding as offset_gap
from storage.kafka.state.producers import open_transactions
from storage.model import Finding, TopicPartition
from storage.shared.diagnostics import Meter, Notes

CONTROL_TYPES: Final = range(7)
"""The types of control records: 0 abort, 1 commit, the others are the controller's (ControlRecordType)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The first `size_bytes` bytes of a `.log` file; topic and partition are None if unknown.

    Findings name the file as `path`. `stored_at` is the file with the bytes: another path if a start
    would rename the file.
    """

    path: Path
    base_offset: int
    size_bytes: int
    topic: str | None = None
    partition: int | None = None
    limit_offset: int = INT64_MAX
    stored_at: Path | None = None

    @classmethod
    def of(
        cls, segment: Segment | SegmentPlan, address: TopicPartition, *, whole: bool = False
    ) -> Log:
        """Return the log of a segment; with `whole` also the bytes that a start would cut."""
        size_bytes = segment.size_bytes
        if whole and isinstance(segment, SegmentPlan):
            size_bytes = segment.file_bytes
        return cls(
            path=segment.path,
            base_offset=segment.base_offset,
            size_bytes=size_bytes,
            topic=address.topic,
            partition=address.partition,
            limit_offset=segment.limit_offset,
        )

    def finding(self, code: str, severity: str, **facts: Unpack[FindingFacts]) -> Finding:
        """Return a finding in this file; the facts are Finding's own fields."""
        return finding(
            code, self.path, severity=severity, topic=self.topic, partition=self.partition, **facts
        )


def log_replaced(path: Path) -> IoFailure:
    """Return the error for a log that a running server replaced or removed while it was read, as of a missing file:
    look at the partition again.
    """
    return IoFailure(
        f"{path}: a running server replaced or removed the file while it was read: run it again",
        path=str(path),
        operation="read",
        errno=errno.ENOENT,
    )


class LogReader:
    """A reader of logs, batch by batch. Errors in the logs go into `notes`.

    `is_replaced`: returns whether a log is no longer the file that was listed. Then a read raises `log_replaced`, at
    the latest at the end of the log, and notes no gap of it.
    """

    def __init__(
        self,
        files: HandleCache,
        notes: Notes,
        is_replaced: Callable[[Log], bool] = lambda _: False,
    ) -> None:
        self.files = files
        self.notes = notes
        self._is_replaced = is_replaced
        self.meter = Meter()
        self._odd: set[tuple[str, str]] = set()  # (path, code) of the findings that were noted

    def items(self, log: Log) -> Iterator[StoredBatch | Gap]:
        """Yield every good batch of a log, and the gaps between them. Each gap is noted as a finding."""
        add = self.meter.add
        reached = log.base_offset
        with self._opened(log) as file:
            for item in _walk(file, log):
                if isinstance(item, StoredBatch):
                    add(item.header.size_bytes)
                else:
                    self._check(log)
                    add(item.end - item.position)
                    self.notes.add(gap_finding(log, item, file, offset=reached))
                reached = max(reached, end_of(item) or 0)
                yield item

    def batches(self, log: Log) -> Iterator[StoredBatch]:
        """Yield every good batch of a log."""
        return good_batches(self.items(log))

    def unnoted_batches(self, log: Log) -> Iterator[StoredBatch]:
        """Yield every good batch of a log that is read again: its gaps are not noted, its bytes are not counted."""
        with self._opened(log) as file:
            yield from good_batches(_walk(file, log))

    @contextmanager
    def _opened(self, log: Log) -> Iterator[File]:
        """Open a log for one read of it. Raises `log_replaced`."""
        try:
            with self.files.borrow(log.stored_at or log.path) as file:
                yield file
        except IoFailure:
            self._check(log)
            raise
        self._check(log)

    def _check(self, log: Log) -> None:
        if self._is_replaced(log):
            raise log_replaced(log.path)

    def records(self, batch: StoredBatch, log: Log) -> Sequence[DecodedRecord]:
        """Return the records of a good batch; none if it cannot be decoded. Note unusual fields once a log."""
        try:
            found = decoded(batch)
        except Corrupt as error:
            self.notes.add(undecodable(batch, log, error))
            found = ()
        else:
            for odd in _oddities(batch, found, log):
                if (odd.path, odd.code) not in self._odd:
                    self._odd.add((odd.path, odd.code))
                    self.notes.add(odd)
        return found


def _walk(file: File, log: Log) -> Iterator[StoredBatch | Gap]:
    return walk(
        file,
        position=0,
        end=log.size_bytes,
        next_offset=log.base_offset,
        limit_offset=log.limit_offset,
    )


def _oddities(batch: StoredBatch, found: Sequence[DecodedRecord], log: Log) -> Iterator[Finding]:
    """Yield findings for fields that no known version writes. The batch's records are served nevertheless."""
    header = batch.header

    def odd(code: str, expected: str, found: str, severity: str = "warning") -> Finding:
        return log.finding(
            code,
            severity,
            position=batch.position,
            offset=header.base_offset,
            expected=expected,
            found=found,
        )

    unknown = header.attributes & 0xFFFF & ~KNOWN_ATTRIBUTES
    if unknown:
        yield odd("unknown-attributes", "bits 0 to 6", f"bits {unknown:#06x}", "info")
    highest = found[-1][0] if found else header.base_offset
    is_too_many = header.count > header.last_offset_delta + 1 or len(found) < header.count
    if is_too_many or highest > header.last_offset:
        yield odd(
            "unusual-offsets",
            f"{header.count} records with offsets up to {header.last_offset}",
            f"{len(found)} with offsets up to {highest}",
        )
    if header.is_control and found:
        with suppress(DataError):
            marker = decode_control(batch.data, batch.at)
            if marker is not None and marker.type not in CONTROL_TYPES:
                yield odd("unknown-control-type", "type 0 to 6", f"type {marker.type}")


def undecodable(batch: StoredBatch, log: Log, error: Corrupt) -> Finding:
    """Return the finding for a batch with a correct CRC that cannot be decoded into records."""
    if batch.header.codec >= len(CODECS):
        code = "unknown-codec"
    else:
        code = "trailing-bytes" if error.facts().get("trailing_bytes") else "undecodable-batch"
    return log.finding(
        code,
        "error",
        position=batch.position,
        offset=batch.header.base_offset,
        expected="records",
        found=error.message,
        message=f"{batch.header.size_bytes} bytes with a good CRC that cannot be decoded",
    )


def gap_finding(log: Log, gap: Gap, file: File, *, offset: int) -> Finding:
    """Return the finding for a gap: damage if good batches follow, else a tail; or messages of an old format.

    `offset`: the offset after the good batches before the gap.
    """
    size_bytes = gap.end - gap.position
    if gap.old_end is not None:
        code, severity = OLD_FORMAT, "error"
        message = f"{size_bytes} bytes with messages of format v0 or v1, which is not supported"
    elif gap.misplaced:
        code, severity = MISPLACED, "error"
        message = f"{size_bytes} bytes that begin with, or hold, whole batches whose offsets do not fit here"
    elif gap.next_offset is not None or log.limit_offset != INT64_MAX:
        code, severity = "damaged-batch", "error"
        message = f"{size_bytes} damaged bytes, and good batches follow"
    elif is_zero(file, position=gap.position, end=gap.end):
        code, severity = "zero-tail", "warning"
        message = f"{size_bytes} bytes of zeros after the last good batch"
    else:
        code, severity = "torn-tail", "warning"
        message = f"{size_bytes} bytes after the last good batch"
    return log.finding(
        code,
        severity,
        position=gap.position,
        offset=offset,
        expected=gap.expected,
        found=gap.found,
        message=message,
    )


def hole(log: Log, position: int, *, expected: int, found: int) -> Finding:
    """Return the finding for offsets missing before a batch; an error if a whole segment is lost, else a warning."""
    return offset_gap(
        log.path,
        (log.topic, log.partition),
        expected,
        found,
        position=position,
        severity="error" if log.base_offset > expected else "warning",
    )


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    """Return the leader epoch in force at an offset, by a checkpoint's entries; None before the first entry."""
    at = bisect_right(epochs, offset, key=itemgetter(1)) - 1
    return epochs[at][0] if at >= 0 else None


# ---- one segment as a task -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """One segment that any process may read. Picklable.

    - `indexes`: the paths with the bytes of its index files, by suffix.
    - `open_transactions`: the transactions open where the segment begins, as first offsets by producer id; None: they
      are guessed from `snapshot`, the producer snapshot that the broker writes there.
    """

    fs: FileSystem
    log: Log
    indexes: Mapping[str, Path]
    snapshot: Path | None
    open_transactions: Mapping[int, int] | None = None

    def opened(self) -> Mapping[int, int]:
        """Return the open transactions, known or guessed; none if the snapshot is missing or damaged."""
        if self.open_transactions is not None:
            return self.open_transactions
        if self.snapshot is None:
            return {}
        try:
            data = self.fs.read_bytes(self.snapshot)
            return open_transactions(producer_snapshot.decode_snapshot(data))
        except DataError:
            return {}


@dataclass(slots=True, kw_only=True)
class SegmentOutcome:
    """The findings of one segment, and the transactions open before and after it.

    `transactional`: the transactions open before the segment mattered; the outcome is then valid for `opened`. If that
    was a wrong guess, the segment is read again.
    """

    findings: Sequence[Finding] = ()
    transactional: bool = False
    opened: Mapping[int, int] = field(default_factory=dict)
    left_open: Mapping[int, int] = field(default_factory=dict)
