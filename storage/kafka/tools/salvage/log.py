"""Copy of the good batches in the logs of one partition, and a report of all other ranges.

Owns the pass over the logs. Every good batch goes into a log of the same base offset, byte for byte; only
a damaged leader epoch is corrected. The bytes and offsets between batches become losses. Must not judge
batches (storage.kafka.log.log_file does). Must not write anything but `.log` files: recovery creates indexes
and snapshots, salvage_files writes the epochs.

    source   | batch | batch | damaged | batch | zeros      offsets  0-9 10-19 (20-29) 30-39
    copy     | batch | batch | batch |                               0-9 10-19         30-39
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from storage.coding.varint import INT64_MAX
from storage.files import File, FileSystem
from storage.kafka.format.batch import HEADER_SIZE, stamp
from storage.kafka.format.names import segment_name
from storage.kafka.log.log_file import Gap, StoredBatch, is_zero
from storage.kafka.recovery.losses import MISSING
from storage.kafka.tools.logs import Log, LogReader, epoch_at
from storage.model import Finding, Loss, TopicPartition

WRITE_BYTES: Final = 1 << 20


def no_end(good_end: int) -> int:
    """Return 0: no index names an end of the log."""
    return 0


def no_growth() -> bool:
    """Return False: the log stays as it is."""
    return False


@dataclass(slots=True, kw_only=True)
class PartitionSource:
    """The facts known of a partition before its logs are read.

    - `began_at`, `known_end`: the first offset and the end that files name; None and 0 if no file names them.
    - `end_by_index`: the end that the indexes of the last log name, by the position after its last good batch.
    - `grows`: whether a server has appended to the last log since it was listed. The bytes at the end of the list may
      then be half a batch, and the indexes may name later offsets.
    - `is_emptied`: it has no log, but files or names prove that it had one.
    - `without_log`: base offsets of segments that have an index and no log.
    """

    address: TopicPartition
    folder: Path
    logs: Sequence[Log]
    start_offset: int
    began_at: int | None = None
    known_end: int = 0
    end_by_index: Callable[[int], int] = no_end
    grows: Callable[[], bool] = no_growth
    is_emptied: bool = False
    epochs: Sequence[tuple[int, int]] = ()
    compacted: bool = False
    without_log: Collection[int] = ()


@dataclass(slots=True, kw_only=True)
class CopiedPartition:
    """The result of the copy of one partition."""

    address: TopicPartition
    next_offset: int = 0  # the next record of its log gets this offset
    kept_end: int = 0  # after the last batch that was kept
    records: int = 0
    kept_bytes: int = 0
    blank_bytes: int = 0
    losses: list[Loss] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class _Placed(NamedTuple):
    """A batch of the copy that has a leader epoch."""

    epoch: int
    base_offset: int
    log: Log
    source_position: int
    position: int


class _Output:
    """A `.log` file that is being written, a megabyte at a time."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.position = 0  # after the bytes added so far
        self._parts: list[bytes] = []
        self._written = 0

    def add(self, data: bytes) -> None:
        """Append bytes. They are written once a megabyte is collected, or by `flush`."""
        self._parts.append(data)
        self.position += len(data)
        if self.position - self._written >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the bytes added so far to the file. They are not yet durable."""
        if self._parts:
            data = b"".join(self._parts)
            self.file.pwrite(data, self._written)
            self._written += len(data)
            self._parts.clear()


def copy_partition(
    fs: FileSystem, reader: LogReader, source: PartitionSource, folder: Path
) -> CopiedPartition:
    """Copy into `folder`. On return the logs' bytes are durable, their directory entries not yet."""
    return _Copy(fs, reader, source, folder).run()


class _Copy:
    """One pass over a partition."""

    def __init__(
        self, fs: FileSystem, reader: LogReader, source: PartitionSource, folder: Path
    ) -> None:
        self._fs = fs
        self._reader = reader
        self._source = source
        self._folder = folder
        self._copied = CopiedPartition(address=source.address)
        self._expected = source.logs[0].base_offset if source.logs else source.start_offset
        self._kept_end = self._expected
        self._good_end = 0  # position after the last good batch of the current log
        self._holes: list[Loss] = []  # missing offsets that no damage explains
        self._compacted = source.compacted
        self._made: list[int] = []
        self._before: _Placed | None = None
        self._last: _Placed | None = None
        self._restamped: list[tuple[_Placed, int]] = []

    def run(self) -> CopiedPartition:
        """Copy the logs and return the result."""
        copied, began_at = self._copied, self._source.began_at
        if self._source.logs and began_at is not None and began_at < self._expected:
            end = self._expected
            self._expected = began_at
            self._lose(self._source.logs[0], 0, end, size_bytes=0, reason=MISSING)
        for log in self._source.logs:
            self._enter(log)
            self._copy_log(log)
        self._judge_epoch(None)
        for placed, epoch in self._restamped:
            self._restamp(placed, epoch)
        self._note_end()
        copied.next_offset = max(self._expected, self._source.start_offset)
        copied.kept_end = self._kept_end
        if copied.next_offset > self._kept_end or not self._made:
            self._make_empty(copied.next_offset)
        if not self._compacted:
            copied.losses += self._holes
        copied.losses.sort(key=lambda loss: (loss.first_offset, loss.position))
        return copied

    # ---- one log -------------------------------------------------------------------------------

    def _enter(self, log: Log) -> None:
        """Begin with a log. If it begins above the end of the log before it, note the offsets between them.

        Either segments are missing there, or compaction removed their records. An index without a log proves the first.
        """
        begin, end = self._expected, log.base_offset
        if any(begin <= base_offset < end for base_offset in self._source.without_log):
            self._lose(log, 0, end, size_bytes=0, reason=MISSING)
        elif begin < end:
            self._miss(log, 0, end)
        if log is self._source.logs[0]:
            self._made.append(log.base_offset)
            self._make_empty(log.base_offset)

    def _copy_log(self, log: Log) -> None:
        path = self._folder / segment_name(log.base_offset)
        output: _Output | None = None
        self._good_end = 0
        try:
            for item in self._reader.items(log):
                if isinstance(item, Gap):
                    self._pass_gap(log, item)
                    continue
                if output is None:
                    output = _Output(self._fs.open(path, write=True, create=True))
                    self._made.append(log.base_offset)
                self._take(log, item, output)
            if output is not None:
                output.flush()
                output.file.datasync()
        finally:
            if output is not None:
                output.file.close()

    def _take(self, log: Log, batch: StoredBatch, output: _Output) -> None:
        header, copied = batch.header, self._copied
        if header.base_offset > self._expected:
            self._miss(log, batch.position, header.base_offset)
        if header.has_delete_horizon or header.count <= header.last_offset_delta:
            self._compacted = True
        if header.leader_epoch >= 0:
            self._judge_epoch(
                _Placed(
                    header.leader_epoch, header.base_offset, log, batch.position, output.position
                )
            )
        self._reader.records(batch, log)  # notes an undecodable batch; it is copied as it is
        output.add(batch.data[batch.at : batch.at + header.size_bytes])
        self._good_end = batch.position + header.size_bytes
        copied.records += 0 if header.is_control else max(header.count, 0)
        copied.kept_bytes += header.size_bytes
        self._expected = self._kept_end = header.log_end

    # ---- losses --------------------------------------------------------------------------------

    def _pass_gap(self, log: Log, gap: Gap) -> None:
        size_bytes = gap.end - gap.position
        following = gap.next_offset
        if following is None:
            following = gap.old_end if log.limit_offset == INT64_MAX else log.limit_offset
        with self._reader.files.borrow(log.path) as file:
            zeros = is_zero(file, position=gap.position, end=gap.end)
        is_unwritten = following is None and self._source.grows()
        if is_unwritten or (zeros and following in (None, self._expected)):
            self._copied.blank_bytes += size_bytes
            return
        self._lose(log, gap.position, following, size_bytes=size_bytes, reason=gap.reason)

    def _lose(
        self, log: Log, position: int, following: int | None, *, size_bytes: int, reason: str
    ) -> None:
        loss = self._loss(log, position, following, size_bytes=size_bytes, reason=reason)
        self._copied.losses.append(loss)
        self._expected = max(self._expected, following or 0)

    def _miss(self, log: Log, position: int, following: int) -> None:
        self._holes.append(self._loss(log, position, following, size_bytes=0, reason=MISSING))
        self._expected = following

    def _loss(
        self, log: Log | None, position: int, following: int | None, *, size_bytes: int, reason: str
    ) -> Loss:
        topic, partition = self._source.address
        return Loss(
            topic=topic,
            partition=partition,
            path=str(self._source.folder if log is None else log.path),
            position=position,
            size_bytes=size_bytes,
            first_offset=self._expected,
            next_offset=following,
            reason=reason,
        )

    def _note_end(self) -> None:
        """Note a loss if checkpoints or indexes name offsets after the last batch. These offsets are not used again.

        A consumer may have seen their records.
        """
        by_index = 0 if self._source.grows() else self._source.end_by_index(self._good_end)
        known_end = max(self._source.known_end, by_index)
        losses = self._copied.losses
        if losses and losses[-1].next_offset is None and known_end >= losses[-1].first_offset:
            losses[-1] = replace(losses[-1], next_offset=known_end)
        elif known_end > self._expected or self._source.is_emptied:
            log = self._source.logs[-1] if self._source.logs else None
            position = 0 if log is None else log.size_bytes
            end = known_end or None
            losses.append(self._loss(log, position, end, size_bytes=0, reason=MISSING))
        self._expected = max(self._expected, known_end)

    # ---- leader epochs -------------------------------------------------------------------------

    def _judge_epoch(self, following: _Placed | None) -> None:
        """Check the epoch of the batch before `following`, and note it for correction if it is damaged.

        The CRC does not cover the epoch. It is damaged if it differs from the checkpoint's and breaks the order of the
        epochs of its neighbours.
        """
        before, last = self._before, self._last
        self._before, self._last = last, following
        if last is None:
            return
        wanted = epoch_at(self._source.epochs, last.base_offset)
        falls = before is not None and last.epoch < before.epoch
        rises = following is not None and last.epoch > following.epoch
        if wanted is not None and last.epoch != wanted and (falls or rises):
            self._restamped.append((last, wanted))
            self._before = last._replace(epoch=wanted)

    def _restamp(self, placed: _Placed, epoch: int) -> None:
        file = self._fs.open(self._folder / segment_name(placed.log.base_offset), write=True)
        try:
            head = bytearray(file.pread(HEADER_SIZE, placed.position))
            stamp(head, 0, base_offset=placed.base_offset, leader_epoch=epoch)
            file.pwrite(bytes(head), placed.position)
            file.datasync()
        finally:
            file.close()
        finding = placed.log.finding(
            "leader-epoch-mismatch",
            "warning",
            position=placed.source_position,
            offset=placed.base_offset,
            expected=f"epoch {epoch}",
            found=f"epoch {placed.epoch}",
            message="the batch has the epoch of the partition's checkpoint in the new store",
        )
        self._copied.findings.append(finding)

    # ---- files ---------------------------------------------------------------------------------

    def _make_empty(self, base_offset: int) -> None:
        file = self._fs.open(self._folder / segment_name(base_offset), write=True, create=True)
        try:
            file.datasync()
        finally:
            file.close()
