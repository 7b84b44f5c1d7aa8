"""Reading one partition's segments: pages of records, raw batches, lookups by time.

Owns the conversion of batches to records, the hiding of batches under read_committed, and the broker's rule for times;
must not write, and must not know which offsets are published. The caller passes the end of the visible offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from storage.coding.varint import INT64_MAX
from storage.errors import Corrupt, DataError
from storage.files import PromptBudget
from storage.kafka.format.batch import decode_records
from storage.kafka.format.record import NO_TIMESTAMP, DecodedRecord, Part
from storage.kafka.log.log_file import StoredBatch
from storage.kafka.log.segment import Segment
from storage.model import AbortedTransaction, Header, StoredRecord, TimedOffset

TAGS_HEADER: Final = "TAGS"
KEYS_HEADER: Final = "KEYS"
SMALL_BATCH: Final = 16  # records
MAX_UNUSED_BYTES: Final = 64 << 10  # that an answer may keep in memory to avoid a copy
SegmentAt = Callable[[int], Segment]


class Limits(NamedTuple):
    """The limits of a page. Bytes count keys, values and headers."""

    max_records: int
    max_bytes: int


def batches_from(
    segment_at: SegmentAt,
    offset: int,
    end: int,
    *,
    max_bytes: int | None = None,
    budget: PromptBudget | None = None,
) -> Iterator[StoredBatch]:
    """Yield good batches of the whole partition that hold or follow `offset`, with base offset < `end`.

    With `max_bytes`, end in the first segment that has more batches than fit. Raises Corrupt at a gap, unless all
    wanted batches are after it. `budget`, only with `max_bytes`: see `Segment.batches_promptly`.
    """
    while offset < end:
        segment = segment_at(offset)
        read_to = segment.size_bytes
        if budget is not None and max_bytes is not None:
            batches = segment.batches_promptly(
                offset, stop_offset=end, max_bytes=max_bytes, budget=budget
            )
        else:
            batches = segment.batches(offset, stop_offset=end, max_bytes=max_bytes)
        for batch in batches:
            yield batch
            offset = batch.header.next_offset
            read_to = batch.position + batch.header.size_bytes
        if segment.limit_offset == INT64_MAX or (max_bytes and read_to < segment.size_bytes):
            return
        offset = max(offset, segment.limit_offset)


class Reading(NamedTuple):
    """Records, and the offset to continue from."""

    records: list[StoredRecord]
    next_offset: int


def read_records(
    segment_at: SegmentAt, offset: int, end: int, limits: Limits, *, committed: bool
) -> Reading:
    """Return records in [offset, end) up to the limits, at least one; never control records.

    `committed`: records of aborted transactions are left out too. A gap ends the page, or raises Corrupt if no batch
    precedes it. Offsets rise across batches too: as in Kafka's consumer, a record at or below the offset of the record
    before it is dropped.
    """
    records: list[StoredRecord] = []
    next_offset = offset
    left_bytes = limits.max_bytes
    aborted = AbortedRanges(segment_at, offset, end) if committed else None
    try:
        for batch in batches_from(segment_at, offset, end):
            if batch.header.is_control or (aborted is not None and aborted.hides(batch)):
                next_offset = max(next_offset, batch.header.next_offset)
                continue
            last_offset = batch.header.last_offset
            is_first = True
            part = _part(batch, next_offset, limits.max_records - len(records), left_bytes)
            for record in stored_records(batch, part):
                key, value = record.key, record.value
                left_bytes -= (len(key) if key else 0) + (len(value) if value else 0)
                if record.headers:
                    left_bytes -= _headers_bytes(record.headers)
                # A record after its batch's last offset can be found only through that offset: a page keeps both.
                if (
                    records
                    and (left_bytes < 0 or len(records) >= limits.max_records)
                    and (is_first or record.offset <= last_offset)
                ):
                    return Reading(records, min(record.offset, last_offset))
                records.append(record)
                is_first = False
            next_offset = max(batch.header.next_offset, records[-1].offset + 1 if records else 0)
    except Corrupt:
        if next_offset == offset:
            raise
        return Reading(records, next_offset)
    return Reading(records, max(next_offset, end))


def _part(batch: StoredBatch, offset: int, max_records: int, max_bytes: int) -> Part | None:
    """Return the part of a batch that a page needs; None for the whole of a small batch: the choice would cost more."""
    if batch.header.count <= SMALL_BATCH and batch.header.base_offset >= offset:
        return None
    return Part(offset, max_records, max_bytes)


def read_bytes(
    segment_at: SegmentAt, offset: int, end: int, max_bytes: int, budget: PromptBudget | None = None
) -> tuple[bytes | bytearray, int]:
    """Return whole batches, as they are on disk, and the offset to continue from.

    The first batch holds `offset` or is the next batch. The batches have at most `max_bytes`, but there is at least
    one batch. A gap after the first batch ends them; a gap before it raises Corrupt. There is no copy of
    the bytes if nearly all that was read is returned. `budget`: raises WouldWait as `Segment.batches_promptly`.
    """
    parts: list[memoryview] = []
    read = b""  # the read of the newest batches, which are read[start:stop]
    start = stop = 0
    left_bytes = max_bytes
    next_offset = offset
    try:
        for batch in batches_from(segment_at, offset, end, max_bytes=max_bytes, budget=budget):
            size_bytes = batch.header.size_bytes
            left_bytes -= size_bytes
            if stop and left_bytes < 0:
                break
            if batch.data is not read or batch.at != stop:
                if stop:
                    parts.append(memoryview(read)[start:stop])
                read, start = batch.data, batch.at
            stop = batch.at + size_bytes
            next_offset = batch.header.next_offset
    except Corrupt:
        if not stop:
            raise
    # If the last batch has more records than its header has offsets, no batch follows, though the log ends later.
    next_offset = next_offset if stop else max(offset, end)
    if parts:
        return b"".join((*parts, memoryview(read)[start:stop])), next_offset
    return _part_of(read, start, stop), next_offset


def _part_of(read: bytes | bytearray, start: int, stop: int) -> bytes | bytearray:
    """Return read[start:stop]. A bytearray, which nothing else uses, is cut in place if few bytes of it are unused."""
    unused_bytes = len(read) - (stop - start)
    if not unused_bytes:
        return read
    if isinstance(read, bytearray) and unused_bytes <= MAX_UNUSED_BYTES:
        del read[stop:]
        del read[:start]
        return read
    return bytes(memoryview(read)[start:stop])


def _headers_bytes(headers: Sequence[Header]) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


def decoded(batch: StoredBatch, part: Part | None = None) -> Sequence[DecodedRecord]:
    """Return the records of a batch as the codec decodes them. With `part`, some that a page does not need are missing.

    A right CRC does not make the records valid. Raises Corrupt with the offset where good data continues.
    """
    try:
        return decode_records(batch.data, batch.at, header=batch.header, part=part)
    except DataError as error:
        raise undecodable(batch, error) from error


def undecodable(batch: StoredBatch, error: DataError) -> Corrupt:
    """Return the error for a batch with a right CRC and with records that cannot be decoded."""
    return Corrupt(
        f"{batch.path}: batch at position {batch.position} cannot be decoded: {error.message}",
        kind="records",
        path=str(batch.path),
        position=batch.position,
        next_good_offset=batch.header.next_offset,
        trailing_bytes=error.facts().get("trailing_bytes", 0),
    )


def stored_records(batch: StoredBatch, part: Part | None = None) -> Iterator[StoredRecord]:
    """Yield the records of a data batch; with `part`, some that a page does not need are left out. Tag and lookup keys
    come from the headers TAGS and KEYS.
    """
    kind = "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"
    for offset, timestamp_ms, key, value, headers in decoded(batch, part):
        tag, lookup_keys = _lookups(headers) if headers else (None, ())
        yield StoredRecord(
            offset, timestamp_ms, key, value, headers, kind, tag, lookup_keys, offset
        )


def _lookups(headers: Sequence[Header]) -> tuple[str | None, Sequence[str]]:
    tag: str | None = None
    keys: Sequence[str] = ()
    for name, value in headers:
        if value is not None and name == TAGS_HEADER:
            tag = value.decode("utf-8", "replace")
        elif value is not None and name == KEYS_HEADER:
            keys = tuple(value.decode("utf-8", "replace").split())
    return tag, keys


class AbortedRanges:
    """The ranges of aborted transactions in [offset, end), from the segments' transaction indexes.

    A data batch is hidden if an entry of its producer covers it: first offset <= base offset <= the marker's offset.
    As in UnifiedLog.collectAbortedTransactions, the search ends at the first entry with a last stable offset at or
    above `end`. Every transaction that ends later began at or after that offset.
    """

    def __init__(self, segment_at: SegmentAt, offset: int, end: int) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        at = offset
        while offset < end:
            segment = segment_at(at)
            for entry in segment.txn_index.entries():
                if entry.last_offset >= offset and entry.first_offset < end:
                    ranges = self._ranges.setdefault(entry.producer_id, [])
                    ranges.append((entry.first_offset, entry.last_offset))
                if entry.last_stable_offset >= end:
                    return
            at = segment.limit_offset
            if at == INT64_MAX:
                return

    def transactions(self) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions, by first offset."""
        found = (
            AbortedTransaction(producer_id, first)
            for producer_id, ranges in self._ranges.items()
            for first, _ in ranges
        )
        return sorted(found, key=lambda aborted: aborted.first_offset)

    def hides(self, batch: StoredBatch) -> bool:
        """Return whether read_committed must hide this batch."""
        header = batch.header
        if not header.is_transactional or header.producer_id not in self._ranges:
            return False
        ranges = self._ranges[header.producer_id]
        return any(first <= header.base_offset <= last for first, last in ranges)


def find_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start: int, end: int
) -> TimedOffset | None:
    """Return the first record at or after a time, by the broker's rule (UnifiedLog.fetchOffsetByTimestamp).

    The first segment with a largest time at or after `timestamp_ms` decides; later segments are not tried. In this
    segment, batches are searched from the offset that the time index gives, in offset order. Control records count.
    A segment below `start` decides nothing: it waits for its deletion, and the broker answers so once it is deleted.
    """
    for segment in _segments_from(segments, timestamp_ms):
        if segment.limit_offset <= start:
            continue
        from_offset = max(segment.offset_before_time(timestamp_ms), start)
        for batch in segment.batches(from_offset, stop_offset=end):
            if batch.header.max_timestamp < timestamp_ms:
                continue
            for offset, time_ms, _, _, _ in decoded(batch):
                if time_ms >= timestamp_ms and offset >= start:
                    return TimedOffset(offset, time_ms, batch.header.leader_epoch)
        return None
    return None


def _segments_from(segments: Sequence[Segment], timestamp_ms: int) -> Iterator[Segment]:
    """Yield the segments with a largest time at or after a time."""
    return (s for s in segments if s.largest_timestamp_ms() >= timestamp_ms)


def skip_to_time(segments: Sequence[Segment], timestamp_ms: int, *, start: int, end: int) -> int:
    """Return an offset such that no record of [start, end) before it is at or after a time; at most `end`.

    It is the start of the first batch at or after the time. The broker's rule (`find_time`) stops in a segment with a
    largest time that belongs to a record before `start`; here later segments are searched too. Damage may contain any
    time, so it ends the search.
    """
    for segment in _segments_from(segments, timestamp_ms):
        from_offset = max(segment.offset_before_time(timestamp_ms), start)
        try:
            for batch in segment.batches(from_offset, stop_offset=end):
                if batch.header.max_timestamp >= timestamp_ms:
                    return max(batch.header.base_offset, start)
        except Corrupt:
            return from_offset
    return end


def find_time_upper(
    segment_at: SegmentAt, timestamp_ms: int, *, start: int, end: int
) -> TimedOffset | None:
    """Return the last record, in offset order, at or before a time; None if there is none."""
    found: TimedOffset | None = None
    for batch in batches_from(segment_at, start, end):
        for offset, time_ms, _, _, _ in decoded(batch):
            if time_ms <= timestamp_ms and offset >= start:
                found = TimedOffset(offset, time_ms, batch.header.leader_epoch)
    return found


def find_latest_time(segments: Sequence[Segment], *, end: int) -> TimedOffset | None:
    """Return the first record below `end` with the largest time (ListOffsets -3); None if no record has a time.

    As in the broker, it may be below the log start, while its segment is there. The segment with the largest time has
    it, unless that time is of a record at or after `end`. Then another segment may have a later one.
    """
    found: TimedOffset | None = None
    for segment in sorted(segments, key=_largest_time, reverse=True):
        if _largest_time(segment) < (NO_TIMESTAMP + 1 if found is None else found.timestamp_ms):
            break
        latest = _latest_in(segment, end)
        if latest is not None:
            candidates = (latest,) if found is None else (found, latest)
            found = min(candidates, key=lambda at: (-at.timestamp_ms, at.offset))
    return found


def _largest_time(segment: Segment) -> int:
    return segment.builder.max_timestamp_ms


def _latest_in(segment: Segment, end: int) -> TimedOffset | None:
    """Return the first record of a segment below `end` with the largest time; None if no record has a time."""
    found: TimedOffset | None = None
    newest_ms, largest_ms = NO_TIMESTAMP, _largest_time(segment)
    for batch in segment.batches(segment.offset_before_largest_time(end), stop_offset=end):
        if batch.header.max_timestamp <= newest_ms:
            continue
        for offset, time_ms, _, _, _ in decoded(batch):
            if time_ms > newest_ms:
                found = TimedOffset(offset, time_ms, batch.header.leader_epoch)
                newest_ms = time_ms
        if newest_ms >= largest_ms:
            break
    return found
