"""Reading one partition's segments: pages of records, raw batches, lookups by time.

Owns how batches become records, what read_committed hides, and the broker's rule for times; must
not write, and must not know which offsets are published: the caller gives the end of what may be
seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from storage.errors import Corrupt, DataError
from storage.kafka.format.batch import decode_records
from storage.kafka.format.record import DecodedRecord
from storage.kafka.log_file import INT64_MAX, Batch
from storage.kafka.segment import Segment
from storage.model import Header, StoredRecord, TimedOffset

TAGS_HEADER: Final = "TAGS"
KEYS_HEADER: Final = "KEYS"
_OFFSET: Final = itemgetter(0)  # of a decoded record
SegmentAt = Callable[[int], Segment]


class Limits(NamedTuple):
    """How much a page may hold."""

    max_records: int
    max_bytes: int


def batches_from(
    segment_at: SegmentAt, offset: int, end: int, *, max_bytes: int | None = None
) -> Iterator[Batch]:
    """Good batches of the whole partition that hold or follow `offset`, with base offset < `end`. With
    `max_bytes` they end where a segment has more of them than that.

    Raises Corrupt at a bad place, unless everything wanted lies behind it.
    """
    while offset < end:
        segment = segment_at(offset)
        behind = segment.size_bytes
        for batch in segment.batches(offset, stop_offset=end, max_bytes=max_bytes):
            yield batch
            offset = batch.header.next_offset
            behind = batch.position + batch.header.size_bytes
        if segment.limit_offset == INT64_MAX or (max_bytes and behind < segment.size_bytes):
            return
        offset = max(offset, segment.limit_offset)


class Reading(NamedTuple):
    """Records, and the offset to go on from."""

    records: list[StoredRecord]
    next_offset: int


def read_records(
    segment_at: SegmentAt, offset: int, end: int, limits: Limits, *, committed: bool
) -> Reading:
    """Records in [offset, end) as far as the limits go, at least one; control records never.

    `committed`: records of aborted transactions are left out too. A bad place behind the first
    record ends the page. Offsets rise over batches too: as for Kafka's consumer, a record at or below the offset of
    the one before it is dropped.
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
            for record in stored_records(batch, next_offset):
                key, value = record.key, record.value
                left_bytes -= (len(key) if key else 0) + (len(value) if value else 0)
                if record.headers:
                    left_bytes -= _headers_bytes(record.headers)
                # A record behind its batch's last offset is found with that offset alone: the page keeps them together.
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


def read_bytes(segment_at: SegmentAt, offset: int, end: int, max_bytes: int) -> tuple[bytes, int]:
    """Whole batches from the one that holds `offset` (or the next one) on, as they are on disk, up to `max_bytes` but
    one at least, and the offset to go on from. A bad place behind the first batch ends them.
    """
    parts: list[memoryview] = []
    left_bytes = max_bytes
    next_offset = offset
    try:
        for batch in batches_from(segment_at, offset, end, max_bytes=max_bytes):
            left_bytes -= batch.header.size_bytes
            if parts and left_bytes < 0:
                break
            parts.append(memoryview(batch.data)[batch.at : batch.at + batch.header.size_bytes])
            next_offset = batch.header.next_offset
    except Corrupt:
        if not parts:
            raise
    # Behind a last batch with more records than its header gives offsets to there is none, though the log ends later.
    return b"".join(parts), next_offset if parts else max(offset, end)


def _headers_bytes(headers: Sequence[Header]) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


def decoded(batch: Batch) -> Sequence[DecodedRecord]:
    """The records of a batch as the codec gives them. A CRC that holds does not make them sane:
    raises Corrupt, with where good data goes on.
    """
    try:
        return decode_records(batch.data, batch.at, header=batch.header)
    except DataError as error:
        raise Corrupt(
            f"{batch.path}: batch at position {batch.position} cannot be decoded: {error.message}",
            kind="records",
            path=str(batch.path),
            position=batch.position,
            next_good_offset=batch.header.next_offset,
            trailing_bytes=error.facts().get("trailing_bytes", 0),
        ) from error


def stored_records(batch: Batch, from_offset: int = 0) -> Iterator[StoredRecord]:
    """The records of a data batch at or behind `from_offset`; tag and lookup keys come from the
    headers TAGS and KEYS.
    """
    kind = "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"
    found = decoded(batch)
    if batch.header.base_offset < from_offset:
        found = found[bisect_left(found, from_offset, key=_OFFSET) :]
    for offset, timestamp_ms, key, value, headers in found:
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
    """Which batches of [offset, end) belong to aborted transactions, from the segments' transaction
    indexes.

    A data batch is hidden when an entry of its producer covers it: first offset <= base offset <=
    the marker's offset. As in UnifiedLog.collectAbortedTransactions the search ends at the first
    entry whose last stable offset reaches `end`: every transaction that ends later began at or
    behind that point.
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

    def hides(self, batch: Batch) -> bool:
        """Whether read_committed must not see this batch."""
        header = batch.header
        if not header.is_transactional or header.producer_id not in self._ranges:
            return False
        ranges = self._ranges[header.producer_id]
        return any(first <= header.base_offset <= last for first, last in ranges)


def find_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start: int, end: int
) -> TimedOffset | None:
    """The first record at or after a time, by the broker's rule
    (UnifiedLog.fetchOffsetByTimestamp).

    The first segment whose largest time reaches `timestamp_ms` decides; later ones are not tried.
    In it the time index says from where batches are searched for the first record of that time, in
    offset order. Control records count.
    """
    for segment in segments:
        if segment.largest_timestamp_ms() < timestamp_ms:
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


def skip_to_time(segments: Sequence[Segment], timestamp_ms: int, *, start: int, end: int) -> int:
    """The first batch at or after a time, or `end`: no record of [start, end) before it is of that time.

    Where the broker's rule (`find_time`) gives up, in a segment whose largest time belongs to a record
    before `start`, later segments are looked at; and what is damaged may hold any time.
    """
    for segment in segments:
        if segment.largest_timestamp_ms() < timestamp_ms:
            continue
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
    """The last record, in offset order, at or before a time."""
    found: TimedOffset | None = None
    for batch in batches_from(segment_at, start, end):
        for offset, time_ms, _, _, _ in decoded(batch):
            if time_ms <= timestamp_ms and offset >= start:
                found = TimedOffset(offset, time_ms, batch.header.leader_epoch)
    return found


def find_latest_time(segments: Sequence[Segment], *, end: int) -> TimedOffset | None:
    """The first record with the largest time of all (ListOffsets -3)."""
    best: Segment | None = None
    best_ms = -1
    for segment in segments:
        last = segment.builder.max_timestamp_ms
        if last > best_ms:
            best, best_ms = segment, last
    if best is None:
        return None
    for batch in best.batches(best.base_offset, stop_offset=end):
        if batch.header.max_timestamp == best_ms:
            for offset, time_ms, _, _, _ in decoded(batch):
                if time_ms == best_ms:
                    return TimedOffset(offset, time_ms, batch.header.leader_epoch)
    return None
