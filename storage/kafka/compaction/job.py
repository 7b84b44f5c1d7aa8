"""One cleaning of one partition: the keys of its dirty range go into a map, then each group of segments is rewritten.

Owns what becomes of each batch (Kafka's Cleaner and MemoryRecords.filterTo), and the order of the work; must not choose
the partition or the time. It reads closed segments without a lock, so appends and reads continue. Only the swap of a
finished segment takes the partition's locks.

What becomes of a batch:
- It stays byte for byte if all its records stay.
- It is rewritten with the records that stay: offsets, producer fields, sequence and codec stay as they were.
- It goes if no record stays, or if it belongs to an aborted transaction. Its header stays, with a count of 0, if it has
  the last sequence of its producer or ends the range.
- The first time that tombstones stay in it, or that it is a marker without data, it gets a delete horizon: the time
  from which they may go (KIP-534). The horizon replaces the base timestamp.

A batch with a wrong CRC, or one that cannot be decoded, ends the cleaning: the partition stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from storage.coding.varint import INT64_MAX
from storage.errors import DataError, DiskFull, IoFailure
from storage.files import Fence, HandleCache
from storage.kafka.compaction.dirty_range import DirtyRange, group_segments
from storage.kafka.compaction.offset_map import SLOT_BYTES, OffsetMap
from storage.kafka.compaction.record_pass import add_keys, copy_runs, rebase_runs, select
from storage.kafka.compaction.transactions import CleanedTransactions
from storage.kafka.format.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    BatchHeader,
    content_of,
    decode_control,
    decode_header,
    seal,
)
from storage.kafka.format.compression import compress
from storage.kafka.format.record import NO_TIMESTAMP
from storage.kafka.index.indexes import modification_time_ms
from storage.kafka.log.log_file import StoredBatch
from storage.kafka.log.reading import undecodable
from storage.kafka.log.replacement import CleanedSegment
from storage.kafka.log.segment import Segment
from storage.kafka.partition import Partition
from storage.kafka.state.producers import LastOfProducer

STEP_BYTES: Final = 1 << 20
"""The work between two moments at which a caller can pause the cleaning."""


@dataclass(slots=True)
class Counters:
    """What a cleaning has done so far. Records without a key are counted when they are dropped."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0
    keyless_dropped: int = 0


class CleaningAbandoned(Exception):
    """Raised if segments of the range or the topic were deleted meanwhile, or if it is no longer compacted. Nothing is
    lost; a later pass cleans the rest.
    """


class CleaningJob:
    """A cleaning that can be paused. `run` does the work. Once it `is_done`, everything below `end_offset` is clean."""

    def __init__(
        self,
        files: HandleCache,
        fence: Fence,
        partition: Partition,
        dirty: DirtyRange,
        *,
        now_ms: int,
        buffer_bytes: int,
        load_factor: float,
    ) -> None:
        self.partition = partition
        self.counters = Counters()
        self.is_done = False
        self.end_offset = dirty.first_offset
        self._files = files
        self._fence = fence
        self._dirty = dirty
        self._now_ms = now_ms
        self._settings = partition.settings
        # No range has more keys than offsets, so a short range needs no large map.
        offsets = dirty.end_offset - dirty.first_offset + 1
        size_bytes = min(buffer_bytes, int(offsets / load_factor + 1) * SLOT_BYTES)
        self._offsets = OffsetMap(size_bytes, load_factor)
        self._segments: Sequence[Segment] = ()
        self._last_of_producers: dict[int, LastOfProducer] = {}

    def run(self) -> Iterator[int]:
        """Do the work. Yield the number of bytes that were read since the last time, after about STEP_BYTES each.

        Every group of segments that was swapped in is durable. Raises Corrupt (damage), CleaningAbandoned, DiskFull,
        StoreFenced, and IoFailure if a file cannot be read. Then the segments that were not swapped in are as before.
        """
        segments = self.partition.segments()
        self._segments = [s for s in segments if s.base_offset < self._dirty.end_offset]
        try:
            aborted = [entry for segment in segments for entry in segment.txn_index.entries()]
            aborted = [a for a in aborted if a.first_offset < self._dirty.end_offset]
            yield from self._map_keys(
                CleanedTransactions(a for a in aborted if a.last_offset >= self._dirty.first_offset)
            )
            self.end_offset = max(self._offsets.latest_offset + 1, self._dirty.first_offset)
            cleaned = [s for s in self._segments if s.base_offset < self.end_offset]
            transactions = CleanedTransactions(aborted)
            groups = group_segments(
                self._files.fs, cleaned, self._settings, end_offset=self._dirty.end_offset
            )
            for group in groups:
                yield from self._clean(group, transactions)
            self.is_done = True
        except DiskFull:
            raise
        except (DataError, IoFailure) as error:
            raise self._explained(error) from error

    def _explained(self, error: DataError | IoFailure) -> Exception:
        """Return the error to raise for a segment that could not be read: it may have been deleted meanwhile."""
        is_there = not self.partition.retired and self.partition.has_segments(self._segments)
        return error if is_there else CleaningAbandoned()

    # ---- the keys ----

    def _map_keys(self, transactions: CleanedTransactions) -> Iterator[int]:
        """Enter the keys of the dirty range into the map, until the map is full (Cleaner.buildOffsetMap)."""
        first_offset, offsets = self._dirty.first_offset, self._offsets
        unread = 0
        for segment in self._segments:
            if segment.limit_offset <= first_offset:
                continue
            for batch in segment.batches(first_offset, stop_offset=self._dirty.end_offset):
                if not self._map_batch(batch, transactions):
                    yield unread
                    return
                offsets.latest_offset = max(offsets.latest_offset, batch.header.last_offset)
                unread += batch.header.size_bytes
                if unread >= STEP_BYTES:
                    yield unread
                    unread = 0
            offsets.latest_offset = min(segment.limit_offset, self._dirty.end_offset) - 1
        yield unread

    def _map_batch(self, batch: StoredBatch, transactions: CleanedTransactions) -> bool:
        header = batch.header
        try:
            if header.is_control:
                transactions.meet_marker(header, decode_control(batch.data, batch.at))
                return True
            if transactions.meet_data(header):
                return True
            data, start, stop = content_of(batch.data, batch.at, header)
            return add_keys(
                self._offsets,
                data,
                start,
                end=stop,
                count=header.count,
                base_offset=header.base_offset,
                first_offset=self._dirty.first_offset,
            )
        except DataError as error:
            raise undecodable(batch, error) from error

    # ---- the segments ----

    def _clean(self, group: Sequence[Segment], transactions: CleanedTransactions) -> Iterator[int]:
        """Clean a group of segments into one, and swap it in (Cleaner.cleanSegments)."""
        self._last_of_producers = dict(self.partition.last_of_producers())
        with self._writing():
            cleaned = CleanedSegment(
                self._files, self.partition.directory, group[0].base_offset, self._settings
            )
        try:
            unread = 0
            for segment in group:
                for batch in segment.batches(segment.base_offset, stop_offset=INT64_MAX):
                    left = self._filtered(batch, transactions, cleaned)
                    if left is not None:
                        header = (
                            batch.header if isinstance(left, memoryview) else decode_header(left)
                        )
                        with self._writing():
                            cleaned.append(header, left)
                        self.counters.bytes_written += len(left)
                    unread += batch.header.size_bytes
                    self.counters.bytes_read += batch.header.size_bytes
                    if unread >= STEP_BYTES:
                        yield unread
                        unread = 0
            fs = self._files.fs
            with self._writing():
                cleaned.finish(modified_ms=modification_time_ms(fs, group[-1].path))
            with self._fence.guarding():
                if not self.partition.replace_segments(cleaned, group):
                    raise CleaningAbandoned
            self._segments = self._segments[len(group) :]  # the groups are replaced in order
            yield unread
        finally:
            cleaned.discard()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Guard writes of new files: a failure fences the store, unless the folder was deleted with its topic."""
        if self.partition.retired:
            raise CleaningAbandoned
        with self._fence.guarding():
            try:
                yield
            except IoFailure:
                if self.partition.retired:
                    raise CleaningAbandoned from None
                raise

    def _filtered(
        self, batch: StoredBatch, transactions: CleanedTransactions, cleaned: CleanedSegment
    ) -> memoryview | bytes | None:
        """Return what stays of a batch: a view of its own bytes, a new batch, or None."""
        try:
            if batch.header.is_control:
                return self._filtered_marker(batch, transactions, cleaned)
            if transactions.meet_data(batch.header):
                self.counters.records_dropped += batch.header.count
                return self._emptied(batch.header)
            return self._filtered_records(batch)
        except DataError as error:
            raise undecodable(batch, error) from error

    def _filtered_marker(
        self, batch: StoredBatch, transactions: CleanedTransactions, cleaned: CleanedSegment
    ) -> memoryview | bytes | None:
        header = batch.header
        has_no_data, entry = transactions.meet_marker(header, decode_control(batch.data, batch.at))
        if entry is not None:
            cleaned.aborted.append(entry)
        if header.count == 0 or (has_no_data and self._is_past_horizon(header)):
            return self._emptied(header)
        if not has_no_data or header.has_delete_horizon:
            return _whole(batch)
        data, start, stop = content_of(batch.data, batch.at, header)
        return self._with_horizon(
            header, data, [start, stop], count=header.count, latest_ms=header.max_timestamp
        )

    def _filtered_records(self, batch: StoredBatch) -> memoryview | bytes | None:
        header = batch.header
        data, start, stop = content_of(batch.data, batch.at, header)
        found = select(
            self._offsets,
            data,
            start,
            end=stop,
            count=header.count,
            base_offset=header.base_offset,
            base_time_ms=header.base_timestamp,
            drops_tombstones=self._is_past_horizon(header),
        )
        self.counters.records_dropped += header.count - found.kept
        self.counters.keyless_dropped += found.keyless
        if not found.kept:
            return self._emptied(header)
        needs_horizon = found.has_tombstone and not header.has_delete_horizon
        if found.kept == header.count and not needs_horizon:
            return _whole(batch)
        if needs_horizon:
            return self._with_horizon(
                header, data, found.runs, count=found.kept, latest_ms=found.latest_time_ms
            )
        first_ms = header.max_timestamp if header.is_log_append_time else found.first_time_ms
        base_ms = header.base_timestamp if header.has_delete_horizon else first_ms
        return _rewritten(
            header, data, found.runs, base_ms, count=found.kept, latest_ms=found.latest_time_ms
        )

    def _with_horizon(
        self, header: BatchHeader, data: bytes, runs: list[int], *, count: int, latest_ms: int
    ) -> bytes:
        horizon_ms = self._now_ms + self._settings.delete_retention_ms
        marked = header._replace(attributes=header.attributes | DELETE_HORIZON)
        return _rewritten(marked, data, runs, horizon_ms, count=count, latest_ms=latest_ms)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """Return a batch without records if its header has to stay, else None."""
        if header.next_offset != self._dirty.end_offset and not self._is_last_of_producer(header):
            return None
        emptied = header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=NO_TIMESTAMP,
            count=0,
        )
        return seal(emptied, b"")

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether only this batch tells the last sequence of a producer, or its epoch if it has no sequence."""
        last = self._last_of_producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch


def _whole(batch: StoredBatch) -> memoryview:
    return memoryview(batch.data)[batch.at : batch.at + batch.header.size_bytes]


def _rewritten(
    header: BatchHeader, data: bytes, runs: list[int], base_ms: int, *, count: int, latest_ms: int
) -> bytes:
    """Return a batch with the records of the runs of `data`, and with another base timestamp."""
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    if base_ms == header.base_timestamp and append_time_ms is None:
        payload = copy_runs(data, runs)
    else:
        payload = rebase_runs(
            data,
            runs,
            from_base_ms=header.base_timestamp,
            to_base_ms=base_ms,
            append_time_ms=append_time_ms,
        )
    if header.codec:
        payload = compress(header.codec, payload)
    changed = header._replace(
        base_timestamp=base_ms,
        max_timestamp=header.max_timestamp if header.is_log_append_time else latest_ms,
        count=count,
    )
    return seal(changed, payload) + payload
