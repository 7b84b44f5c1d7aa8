"""One partition: its segments, its offsets, and the concurrency of appends, flushes and reads.

Owns appending (offsets, epochs, sequences, rolling), publishing and flushing, and the view that
reads get; must not know topics, checkpoints at the root, or other partitions.

There are three locks. `_append_lock` is held by the single writer, also during its IO. `_state_lock` is held briefly.
It guards the state that readers inspect: the segment map and the offsets `_start`, `_next`, `_published`, `_flushed`,
`_guarded`. A reader takes it to choose a segment and does not wait for an append's IO. The exception is the index entry
of an aborted transaction: no reader may see the end of such a transaction without its index entry. `_swap_lock` is held
while compaction replaces files. A read that fails meanwhile waits for it and is made again (`reread`).

    _start <= _published <= _next      reads end at _published
    _flushed <= _next                  all offsets below _flushed are durable
    _guarded                           end of the newest append that must be durable before it is
                                       visible
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from storage.coding.varint import INT64_MAX
from storage.contract import Clock
from storage.errors import (
    Corrupt,
    DiskFull,
    IoFailure,
    NotOffered,
    OffsetOutOfRange,
    RecordTooLarge,
    StoreClosed,
    StoreReadOnly,
    UnknownTopic,
)
from storage.files import Fence, HandleCache, PromptBudget, atomic_write
from storage.kafka.format import checkpoints, names
from storage.kafka.format.compression import codec_id
from storage.kafka.format.names import segment_name
from storage.kafka.format.producer_snapshot import ProducerEntry, encode_snapshot
from storage.kafka.log import encoding, reading
from storage.kafka.log.encoding import BatchRules, Encoded, Stamp
from storage.kafka.log.log_segments import LogSegments
from storage.kafka.log.partition_plan import PartitionPlan
from storage.kafka.log.replacement import CleanedSegment
from storage.kafka.log.retention import DeletedCount, DeletedFiles, given_up, remove_files
from storage.kafka.log.segment import AppendedBatch, Segment
from storage.kafka.state.epochs import LeaderEpochs, OwnEpochs
from storage.kafka.state.producers import LastOfProducer
from storage.kafka.state.settings import TopicSettings
from storage.kafka.state.topics import FIRST_EPOCH
from storage.model import (
    AppendResult,
    BatchPage,
    Bound,
    EpochEnd,
    Isolation,
    OffsetBounds,
    Page,
    ProducerSequence,
    Record,
    RetentionReport,
    TimedOffset,
    TopicPartition,
)
from storage.prompt import BatchView
from storage.shared.sequencing import last_sequence_of
from storage.transactions import PartitionMarker

FILES_OF_APPEND: Final = 1  # the log; the indexes are open only while they are written
MARKER_BYTES: Final = 78  # the size of a marker's batch
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnvironment:
    """The objects and facts that all partitions of a store share."""

    files: HandleCache
    clock: Clock
    fence: Fence
    read_only: bool
    producer_expiration_ms: int
    epochs: OwnEpochs
    deleted: DeletedCount = field(default_factory=DeletedCount)


class Partition:
    """An open partition, built from its recovery plan after the plan has been carried out."""

    def __init__(
        self,
        shared: PartitionEnvironment,
        plan: PartitionPlan,
        segments: Sequence[Segment],
        *,
        created_now: bool = False,
    ) -> None:
        self.partition: TopicPartition = plan.partition
        self.directory: Path = plan.directory
        self.settings: TopicSettings = plan.settings
        self._shared = shared
        self._append_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._swap_lock = threading.Lock()
        self._swaps = 0  # how often compaction has replaced segments
        self._segments = LogSegments(segments)
        self._start = plan.start_offset
        self._next = self._published = self._flushed = self._guarded = plan.next_offset
        self._segments.active.end_offset = plan.next_offset
        self._producers = plan.producers
        self._epochs = plan.epochs
        self._epoch = plan.epochs.latest if created_now else None  # None: the next append sets it
        if not created_now:
            shared.epochs.meet(plan.epochs.latest)
        kept = (o for o in (*plan.snapshots, *plan.snapshot_offsets) if o <= plan.next_offset)
        self._last_snapshot = max(kept, default=0)
        self._appended = False
        self._closed = False
        self._deleted = DeletedFiles(shared.files, plan.directory)
        self._retired = False  # written under `_append_lock`, read by any thread

    @classmethod
    def create(
        cls,
        shared: PartitionEnvironment,
        partition: TopicPartition,
        folder: Path,
        settings: TopicSettings,
        *,
        start_offset: int,
    ) -> Partition:
        """Open a partition whose folder was created just now. Its log begins at `start_offset`."""
        plan = PartitionPlan(
            partition=partition,
            directory=folder,
            settings=settings,
            epochs=LeaderEpochs([(FIRST_EPOCH, start_offset)]),
            start_offset=start_offset,
            next_offset=start_offset,
        )
        segment = Segment(shared.files, folder, start_offset, settings, size_bytes=0)
        return cls(shared, plan, [segment], created_now=True)

    # ---- reading ----

    def bounds(self) -> OffsetBounds:
        """Return the log start, the last stable offset and the published end."""
        with self._state_lock:
            unstable = self._producers.first_unstable_offset(self._published)
            end = self._published
            stable = end if unstable is None else min(unstable, end)
            return OffsetBounds(self._start, max(self._start, stable), end)

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._next

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is durable: the highest possible recovery point."""
        return self._flushed

    @property
    def leader_epoch(self) -> int:
        """The epoch of the newest batch; 0 if no epoch is known."""
        # Without the append lock, since a fetch must not wait for the IO of an append: changed entries are a new list.
        latest = self._epochs.latest
        return 0 if latest is None else latest

    def high_watermark(self) -> int:
        """Return the value for replication-offset-checkpoint: below it all records are visible and durable."""
        with self._state_lock:
            return min(self._published, self._flushed)

    def start_in_segment(self) -> int | None:
        """Return the log start if it is above the first segment's base, else None: the value for
        log-start-offset-checkpoint.
        """
        with self._state_lock:
            return self._start if self._start > self._segments[0].base_offset else None

    def use_settings(self, settings: TopicSettings) -> None:
        """Use these settings from the next append on."""
        with self._append_lock:
            self.settings = settings
            self._segments.active.use_settings(settings)

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id seen in this partition; -1 if there is none."""
        with self._state_lock:  # a concurrent append may add a producer
            return self._producers.highest_id

    def segments(self) -> LogSegments:
        """Return a snapshot of all segments, ascending."""
        with self._state_lock:
            return LogSegments(self._segments)

    def _segment_at(self, offset: int) -> Segment:
        with self._state_lock:
            return self._segments.at(offset)

    def _checked_bounds(self, offset: int) -> OffsetBounds:
        bounds = self.bounds()
        if not bounds.start <= offset <= bounds.end:
            raise OffsetOutOfRange(
                *self.partition, offset=offset, earliest=bounds.start, latest=bounds.end
            )
        return bounds

    def reread(self, read: Callable[[], T]) -> T:
        """Return the result of a read of files. It is made again if it failed because compaction replaced segments."""
        while True:
            swaps = self._swaps
            try:
                return read()
            except (Corrupt, IoFailure):
                with self._swap_lock:
                    if swaps == self._swaps:
                        raise

    def read(self, offset: int, limits: reading.Limits, isolation: Isolation) -> Page:
        return self.reread(lambda: self._read(offset, limits, isolation))

    def _read(self, offset: int, limits: reading.Limits, isolation: Isolation) -> Page:
        bounds = self._checked_bounds(offset)
        committed = isolation is Isolation.READ_COMMITTED
        end = bounds.stable if committed else bounds.end
        if offset >= end:
            return Page((), offset, bounds)

        with self._unless_deleted(offset), self._damage_at(offset):
            records, next_offset = reading.read_records(
                self._segment_at, offset, end, limits, committed=committed
            )
        return Page(records, next_offset, bounds)

    def read_batches(self, offset: int, *, max_bytes: int, isolation: Isolation) -> BatchPage:
        view = self.reread(lambda: self.view_batches(offset, max_bytes, isolation))
        return BatchPage(bytes(view.data), *view[1:])

    def view_batches(
        self, offset: int, max_bytes: int, isolation: Isolation, budget: PromptBudget | None = None
    ) -> BatchView:
        """Read batches once. `budget`: raises WouldWait as `Segment.batches_promptly`."""
        bounds = self._checked_bounds(offset)
        end = bounds.stable if isolation is Isolation.READ_COMMITTED else bounds.end
        with self._unless_deleted(offset), self._damage_at(offset):
            if budget is not None and offset < end and isolation is Isolation.READ_COMMITTED:
                self._segment_at(offset).check_prompt_transactions()
            at = self._segment_at
            data, next_offset = reading.read_bytes(at, offset, end, max_bytes, budget)
            if isolation is Isolation.READ_UNCOMMITTED or not data:
                return BatchView(data, next_offset, bounds)
            aborted = reading.AbortedRanges(self._segment_at, offset, next_offset)
        return BatchView(data, next_offset, bounds, aborted.transactions())

    @contextmanager
    def _damage_at(self, offset: int) -> Iterator[None]:
        """Add topic, partition and offset of the read to a Corrupt error that the body raises."""
        try:
            yield
        except Corrupt as error:
            topic, partition = self.partition
            facts = {"topic": topic, "partition": partition, "offset": offset, **error.facts()}
            raise Corrupt(error.message, **facts) from error

    @contextmanager
    def _unless_deleted(self, offset: int) -> Iterator[None]:
        """Guard a read from an offset: raise OffsetOutOfRange or UnknownTopic if its files were deleted meanwhile."""
        try:
            yield
        except IoFailure:
            self._checked_bounds(offset)
            raise
        finally:
            self._check_not_retired()  # else it may have read files of a newer topic of the same name
        if offset < self._segments[0].base_offset:  # it may have begun in a later segment
            self._checked_bounds(offset)

    def offset_for_time(self, timestamp_ms: int, bound: Bound) -> TimedOffset | None:
        return self.reread(lambda: self._offset_for_time(timestamp_ms, bound))

    def _offset_for_time(self, timestamp_ms: int, bound: Bound) -> TimedOffset | None:
        while True:
            bounds = self.bounds()
            # If segments were deleted meanwhile: try again.
            with suppress(OffsetOutOfRange), self._unless_deleted(bounds.start):
                return self._find_time(timestamp_ms, bound, bounds)

    def _find_time(
        self, timestamp_ms: int, bound: Bound, bounds: OffsetBounds
    ) -> TimedOffset | None:
        start, end = bounds.start, bounds.end
        if bound is Bound.UPPER:
            return reading.find_time_upper(self._segment_at, timestamp_ms, start=start, end=end)
        return reading.find_time(self.segments(), timestamp_ms, start=start, end=end)

    def newest_time(self) -> TimedOffset | None:
        return self.reread(self._newest_time)

    def _newest_time(self) -> TimedOffset | None:
        while True:
            start, _, end = self.bounds()
            with suppress(OffsetOutOfRange), self._unless_deleted(start):
                return reading.find_latest_time(self.segments(), end=end)

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd | None:
        with self._append_lock:  # an append may add an entry
            found = self._epochs.end_of(leader_epoch, self.bounds().end)
        return None if found is None else EpochEnd(*found)

    # ---- appending ----

    def append(
        self,
        records: Sequence[Record],
        *,
        compression: str | None,
        producer: ProducerSequence | None,
        publish: bool,
    ) -> AppendResult:
        with self._append_lock:
            self._check_writable()
            if producer is not None:
                producer = self._producers.numbered(producer)
                last = last_sequence_of(producer.sequence, len(records))
                known = self._find_duplicate(producer, last)
                if known is not None:
                    return known
                self._producers.check(producer)
            mark = self._stamp()
            encoded = self._encoded(records, mark, compression, producer)
            return self._write(encoded, mark, publish=publish)

    def append_promptly(self, records: Sequence[Record]) -> AppendResult | None:
        if codec_id(self.settings.compression):
            return None
        if not self._begin_promptly():
            return None
        try:
            mark = self._stamp()
            return self._write_promptly(self._encoded(records, mark, None, None), mark)
        finally:
            self._append_lock.release()

    def append_batches_promptly(self, data: bytes, rules: BatchRules) -> AppendResult | None:
        if not self._begin_promptly():
            return None
        try:
            new = encoding.taken(data, self.settings, rules)
            known = self._check_sequences(new.batches)
            if known is not None:
                return known
            mark = self._stamp()
            return self._write_promptly(self._stamped(new, mark, rules), mark)
        finally:
            self._append_lock.release()

    def _begin_promptly(self) -> bool:
        """Take the append lock, if an append would only hand bytes to the kernel. Return whether it is taken."""
        files = self._shared.files
        has_room = files.room >= FILES_OF_APPEND or files.is_writable(self._segments.active.path)
        if not has_room or not self._append_lock.acquire(blocking=False):
            return False
        may_append = False
        try:
            self._check_writable()
            may_append = self._epoch is not None  # else the append may write the epochs
        finally:
            if not may_append:
                self._append_lock.release()
        return may_append

    def _write_promptly(self, encoded: Encoded, mark: Stamp) -> AppendResult | None:
        """Append checked batches to the active segment. Return None if they need a new one."""
        active = self._segments.active
        if active.must_roll(encoded.batches, len(encoded.data)):
            return None
        return self._write(encoded, mark, publish=True, segment=active)

    def _encoded(
        self,
        records: Sequence[Record],
        mark: Stamp,
        compression: str | None,
        producer: ProducerSequence | None,
    ) -> Encoded:
        """Check and encode records. Raises RecordTooLarge, UnrepresentableRecord."""
        times_ms = (record.timestamp_ms for record in records)
        encoding.check_times(times_ms, self.settings, now_ms=mark.now_ms)
        encoding.check_keys(records, self.settings)
        return encoding.encode_records(
            records,
            mark,
            compression=compression or self.settings.compression,
            producer=producer,
            limit_bytes=self.settings.max_message_bytes,
        )

    def append_batches(self, data: bytes, rules: BatchRules, *, publish: bool) -> AppendResult:
        new = encoding.taken(data, self.settings, rules)
        with self._append_lock:
            self._check_writable()
            if rules.keep_offsets:
                encoding.check_kept_offsets(new.batches, self._next)
                return self._write(new, None, publish=publish)
            known = self._check_sequences(new.batches)
            if known is not None:
                return known
            mark = self._stamp()
            return self._write(self._stamped(new, mark, rules), mark, publish=publish)

    def _stamped(self, new: Encoded, mark: Stamp, rules: BatchRules) -> Encoded:
        """Check the times and keys of a client's batches, and return the batches with the fields of `mark`."""
        if rules.has_unchecked:
            encoding.check_taken(new, self.settings, now_ms=mark.now_ms)
        return encoding.stamp_batches(new.data, new.batches, mark)

    def append_markers(
        self,
        markers: Sequence[PartitionMarker],
        *,
        publish: bool,
        are_checked: bool = True,
    ) -> None:
        """Append the markers of transactions, in order. `publish` and errors are as in `append`. Those that no
        coordinator has checked are checked first: see ProducerStates.check_end.
        """
        with self._append_lock:
            self._check_writable()
            for marker in () if are_checked else markers:
                self._producers.check_end(marker)
            at_once = max(1, self.settings.segment_bytes // MARKER_BYTES)
            for begin in range(0, len(markers), at_once):
                end = begin + at_once
                mark = self._stamp()
                encoded = encoding.encode_markers(markers[begin:end], now_ms=mark.now_ms)
                stamped = encoding.stamp_batches(encoded.data, encoded.batches, mark)
                self._write(stamped, mark, publish=publish)

    def _check_sequences(self, batches: Sequence[AppendedBatch]) -> AppendResult | None:
        """Check that a producer's batches continue its stored sequence and each other.

        Return the result of the stored batches if all batches are stored already, else None. Raises InvalidBatch,
        FencedProducer, OutOfOrderSequence.
        """
        data = [header for _, header in batches if not header.is_control]
        if all(header.producer_id < 0 for header in data):
            return None
        encoding.check_one_producer(batches)
        known = [self._find_duplicate(encoding.mark_of(h), h.last_sequence) for h in data]
        again = encoding.as_one(known)
        if again is not None:
            return again
        self._producers.check(encoding.mark_of(data[0]))
        return None

    def _find_duplicate(
        self, producer: ProducerSequence, last_sequence: int
    ) -> AppendResult | None:
        batch = self._producers.find_duplicate(
            producer.producer_id,
            epoch=producer.epoch,
            base_sequence=producer.sequence,
            last_sequence=last_sequence,
        )
        if batch is None:
            return None
        offsets = range(batch.base_offset, batch.last_offset + 1)
        return AppendResult(batch.base_offset, batch.last_offset, -1, offsets, duplicate=True)

    def retire(self, retired: bool = True) -> None:
        """Mark the topic as being deleted; False: the deletion failed, and the topic stays.

        While it is marked, appends and reads of files raise UnknownTopic, and retention deletes nothing.
        """
        with self._append_lock:
            self._retired = retired

    def _check_not_retired(self) -> None:
        if self._retired:
            raise UnknownTopic(self.partition.topic)

    def _check_writable(self) -> None:
        self._check_not_retired()
        if self._closed:
            raise StoreClosed(f"{self.directory.parent} is closed")
        if self._shared.read_only:
            raise StoreReadOnly(
                f"{self.directory.parent} is open read-only", path=str(self.directory.parent)
            )
        self._shared.fence.check()

    def _stamp(self) -> Stamp:
        epoch = self._epoch
        if epoch is None:
            with self._shared.fence.guarding():  # a higher epoch is made durable before its use
                epoch = self._shared.epochs.next_after(self._epochs.latest)
        return Stamp(self._next, epoch, self._shared.clock(), self.settings.log_append_time)

    def _write(
        self,
        encoded: Encoded,
        mark: Stamp | None,
        *,
        publish: bool,
        segment: Segment | None = None,
    ) -> AppendResult:
        """Append checked batches to the log; `mark` None: they keep their own offsets. The append lock must be held.
        `segment`: the active segment, if it has room for them.

        Raises RecordTooLarge if they are larger than a segment. On DiskFull none of their bytes stays.
        """
        data, batches = encoded.data, encoded.batches
        encoding.check_span(batches)
        if len(data) > self.settings.segment_bytes:
            raise RecordTooLarge(
                f"the append takes {len(data)} bytes: the limit segment.bytes is "
                f"{self.settings.segment_bytes}",
                size_bytes=len(data),
                limit_bytes=self.settings.segment_bytes,
                index=0,
            )
        with self._shared.fence.guarding():
            self._appended = True  # even if the disk is full: the close cuts what was preallocated
            segment = segment or self._segment_for(data, batches)
            self._note_epochs(batches)
            segment.append(data, batches, encoded.parts)
            self._advance(encoded, segment, publish=publish)
        append_time_ms = -1
        if mark is not None:
            self._epoch = mark.leader_epoch
            append_time_ms = mark.now_ms if mark.log_append_time else -1
        base_offset, next_offset = batches[0].header.base_offset, self._next
        return AppendResult(
            base_offset, next_offset - 1, append_time_ms, range(base_offset, next_offset)
        )

    def _segment_for(self, data: bytes, batches: Sequence[AppendedBatch]) -> Segment:
        active = self._segments.active
        if not active.must_roll(batches, len(data)):
            return active
        return self._roll(max(self._next, batches[0].header.base_offset))

    def _note_epochs(self, batches: Sequence[AppendedBatch]) -> None:
        """Add an entry for each newer leader epoch. It is durable before the batches are written."""
        latest = self._epochs.latest
        for _, header in batches:
            if latest is None or header.leader_epoch > latest:
                break
        else:
            return
        epochs = LeaderEpochs(self._epochs.entries)
        for _, header in batches:
            epochs.assign(header.leader_epoch, header.base_offset)
        self._write_epochs(epochs)
        self._epochs = epochs

    def _write_epochs(self, epochs: LeaderEpochs) -> None:
        data = checkpoints.encode_epochs(epochs.entries)
        atomic_write(self._shared.files.fs, self.directory / names.LEADER_EPOCHS, data)

    def _advance(self, encoded: Encoded, segment: Segment, *, publish: bool) -> None:
        """Update the partition's state after a write, and publish the batches if they may be visible."""
        with self._state_lock:
            for at, header in encoded.batches:
                aborted = self._producers.update(header, encoded.data, at)
                if aborted is not None:
                    segment.txn_index.append(aborted)
            self._next = encoded.next_offset
            if not publish:
                self._guarded = self._next
            elif self._guarded <= self._published:
                self._published = self._next

    def _roll(self, base_offset: int) -> Segment:
        """Finish the active segment durably and open the next segment. The append lock must be held."""
        self._segments.active.finish()
        self._write_snapshot(base_offset)
        segment = Segment.create(self._shared.files, self.directory, base_offset, self.settings)
        self._shared.files.fs.sync_dir(self.directory)
        with self._state_lock:
            self._segments.roll(segment)
            self._flushed = max(self._flushed, self._next)
        return segment

    def _write_snapshot(self, offset: int) -> None:
        """Write the producers' state before `offset` durably, unless its snapshot exists already."""
        if offset <= self._last_snapshot:
            return
        path = self.directory / segment_name(offset, names.SNAPSHOT)
        with self._shared.files.borrow(path, write=True, create=True) as file:
            file.truncate(0)
            file.pwrite(encode_snapshot(self._producers.entries()), 0)
            file.datasync()
        self._last_snapshot = offset

    # ---- durability ----

    def flush(self) -> None:
        """Make every append so far durable and visible. Raises StoreFenced if the sync fails."""
        with self._state_lock:
            target = self._next
            segment = self._segments.active
            flushed = self._flushed >= target
        if not flushed:
            with self._shared.fence.guarding():
                segment.sync()
        with self._state_lock:
            self._flushed = max(self._flushed, target)
            if self._published < target:
                self._published = target
            if self._guarded <= self._published:
                self._published = self._next

    def write_indexes(self) -> None:
        """Write the waiting index entries of the durable batches. On a full disk they wait on."""
        with self._append_lock, suppress(DiskFull):
            if not self._retired and not self._closed:
                self._segments.active.write_indexes(self._flushed)

    def close(self) -> None:
        """Leave the files as after a clean stop: synced, trimmed, with a producer snapshot at the log end.

        Without appends since the start, only rewrite index files that were found damaged.
        """
        with self._append_lock:
            self._closed = True
            for segment in self.segments():
                segment.mend_indexes()
            if not self._appended:
                return
            self._segments.active.finish()
            self._write_snapshot(self._next)
            self._shared.files.fs.sync_dir(self.directory)
            with self._state_lock:
                self._flushed = self._published = self._next
            self._appended = False

    def expire_producers(self, now_ms: int) -> None:
        """Remove producers that have been silent for longer than their expiration time."""
        with self._append_lock, self._state_lock:
            self._producers.expire(now_ms, self._shared.producer_expiration_ms)

    # ---- retention ----

    def enforce_retention(self, now_ms: int) -> RetentionReport:
        """Delete leading segments that the topic's settings no longer keep, and the files that were set aside earlier
        and whose delay is over. If all records go, a new segment is begun first.
        """
        self.remove_deleted(now_ms)
        with self._append_lock:
            doomed = [] if self._retired or self._closed else self._given_up(now_ms)
            self._remove(doomed, now_ms)
        return RetentionReport(
            segments_deleted=len(doomed), bytes_deleted=sum(s.size_bytes for s in doomed)
        )

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files that were set aside earlier and whose delay is over."""
        if self._deleted:
            with self._append_lock:
                due = self._deleted.take_due(now_ms)
            remove_files(self._shared.files, due)

    @property
    def deleted_files(self) -> int:
        """The number of files that wait for their removal."""
        return len(self._deleted)

    def _given_up(self, now_ms: int) -> Sequence[Segment]:
        doomed = given_up(
            self.segments(),
            self.settings,
            now_ms=now_ms,
            start=self._start,
            end=min(self._flushed, self._published),
            log_end=self._next,
        )
        if not doomed or doomed[-1] is not self._segments.active:
            return doomed
        try:
            self._appended = True  # the close trims the new segment
            self._roll(self._next)
        except DiskFull:
            return doomed[:-1]
        return doomed

    def check_deletion(self, before_offset: int) -> OffsetBounds:
        """Return the bounds, if the records below an offset may be deleted; they are flushed then.

        Raises OffsetOutOfRange, NotOffered, StoreReadOnly, StoreFenced, StoreClosed.
        """
        self._check_writable()
        if self.settings.compacts and not self.settings.deletes:
            raise NotOffered(
                f"records of topic {self.partition.topic!r} are not deleted by offset: its cleanup.policy is compact",
                feature="delete-records",
            )
        bounds = self.bounds()
        if not 0 <= before_offset <= bounds.end:
            raise OffsetOutOfRange(
                *self.partition, offset=before_offset, earliest=bounds.start, latest=bounds.end
            )
        if before_offset > self._flushed:
            self.flush()  # after a crash the log must not end below its start
        return bounds

    def delete_records(self, before_offset: int) -> OffsetBounds:
        """Move the log start, which the checkpoint has already, and remove the segments below it."""
        with self._append_lock:
            self._check_not_retired()
            with self._state_lock:
                self._start = max(self._start, before_offset)
            segments = self.segments()
            doomed = [s for s in segments[:-1] if s.limit_offset <= self._start]
            if not doomed:
                self._cut_epochs()
            self._remove(doomed, self._shared.clock())
        return self.bounds()

    def _remove(self, doomed: Sequence[Segment], now_ms: int) -> None:
        """Take leading segments from the readers, then set their files aside. The append lock must be held."""
        for segment in doomed:
            with self._state_lock:
                self._segments.remove(segment)
                self._start = max(self._start, self._segments[0].base_offset)
        if not doomed:
            return
        # Before the files: after a crash no epoch may begin at a deleted offset.
        is_cut = self._cut_epochs()
        for segment in doomed:
            self._deleted.set_aside(segment, now_ms + self.settings.delete_delay_ms)
        if not is_cut:  # the disk is full: the deleted files make room
            remove_files(self._shared.files, self._deleted.take_due(INT64_MAX))
            self._cut_epochs()
        self._shared.deleted.add(doomed)

    def _cut_epochs(self) -> bool:
        """Cut the leader epochs at the log start. Return False on a full disk: the next start cuts them as well."""
        self._epochs.truncate_start(self._start)
        try:
            self._write_epochs(self._epochs)
        except DiskFull:
            return False
        return True

    def producer_entries(self) -> Sequence[ProducerEntry]:
        """Return the state of every active producer."""
        with self._state_lock:
            return self._producers.entries()

    # ---- compaction ----

    def last_of_producers(self) -> Mapping[int, LastOfProducer]:
        """Return the last data offset and epoch of every active producer, by producer id."""
        entries = self.producer_entries()
        return {e.producer_id: LastOfProducer(e.last_offset, e.epoch) for e in entries}

    def has_segments(self, segments: Sequence[Segment]) -> bool:
        """Return whether the partition still consists of these segments, among others."""
        with self._state_lock:
            known = {id(segment) for segment in self._segments}
        return all(id(segment) in known for segment in segments)

    @property
    def retired(self) -> bool:
        """Whether the topic is being deleted, or was."""
        return self._retired

    def replace_segments(self, cleaned: CleanedSegment, old: Sequence[Segment]) -> bool:
        """Replace closed segments by a finished one with the base offset of the first; durable on return. Return False,
        with nothing changed, if one of them was deleted meanwhile, or the partition is closed or no longer compacted.

        Raises StoreFenced, and IoFailure: then the files and the segments here may differ, and only a start recovers.
        """
        with self._append_lock:
            self._shared.fence.check()
            if self._retired or self._closed or not self.settings.compacts:
                return False
            if not self.has_segments(old):
                return False
            with self._swap_lock:
                segment, set_aside = cleaned.swap_in(old)
                replaced = {id(each) for each in old}
                with self._state_lock:
                    kept = [each for each in self._segments if id(each) not in replaced]
                    at = sum(each.base_offset < segment.base_offset for each in kept)
                    self._segments = LogSegments([*kept[:at], segment, *kept[at:]])
                self._swaps += 1
            due_ms = self._shared.clock() + self.settings.delete_delay_ms
            self._deleted.add(set_aside, due_ms)
            return True
