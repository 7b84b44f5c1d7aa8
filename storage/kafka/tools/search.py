"""Offline search for records by key, tag, id, text or time; damage does not end it, and no segment is missed.

Owns which segments and batches can be skipped; the engine's Search decides which records match. Must
not stop early: times may fall, and a segment emptied by compaction may look new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from storage.errors import Corrupt, InvalidArgument, NotOffered, UnknownPartition, UnknownTopic
from storage.kafka.format.batch import HEADER_SIZE
from storage.kafka.log.log_file import StoredBatch
from storage.kafka.log.reading import stored_records
from storage.kafka.log.segment import Segment
from storage.kafka.tools.live import steady_runs
from storage.kafka.tools.logs import Log, LogReader, undecodable
from storage.kafka.tools.rows import Row, stored_row
from storage.kafka.tools.view import View
from storage.model import FindQuery, StoredRecord, TopicPartition
from storage.shared.query import RecordSearch, needle_of


class LogSearch(RecordSearch):
    """A query on logs; `offset` is the offset of a record id."""

    def __init__(self, query: FindQuery) -> None:
        """Check the query. Raises InvalidArgument, and NotOffered for a feature that Kafka does not have."""
        query.check()
        if query.unique_id is not None or query.raw:
            feature = "raw" if query.raw else "unique_id"
            raise NotOffered(f"{feature}: a Kafka log has no such thing", feature=feature)
        super().__init__(query)
        self.offset = None if query.record_id is None else parse_id(query.record_id)[1]
        self._bytes = self.needle if query.grep is None else needle_of(query.grep)

    def may_hold(self, batch: StoredBatch) -> bool:
        """Return whether the batch has to be decoded."""
        header, from_ms = batch.header, self.query.from_ms
        if header.is_control:
            return False
        if self.offset is not None and not header.base_offset <= self.offset <= header.log_end:
            return False  # up to log_end, inclusive: offset deltas may begin at 1
        if from_ms is not None and header.max_timestamp < from_ms:
            return False
        if header.codec:
            return True
        end = batch.at + header.size_bytes
        return batch.data.find(self._bytes, batch.at + HEADER_SIZE, end) >= 0

    def matches(self, record: StoredRecord) -> bool:
        """Return whether this record matches the query."""
        return self.offset in (None, record.offset) and super().matches(record)


def parse_id(record_id: str) -> tuple[TopicPartition, int]:
    """Parse `topic:partition:offset`. Raises InvalidArgument."""
    topic, _, rest = record_id.partition(":")
    numbers = rest.split(":")
    if not topic or len(numbers) != 2 or not all(map(_is_number, numbers)):
        raise InvalidArgument(f"id {record_id!r} is not TOPIC:PARTITION:OFFSET", field="record_id")
    return TopicPartition(topic, int(numbers[0])), int(numbers[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def in_view(view: View, query: FindQuery) -> Iterator[Row]:
    """Yield the matching records of a directory, by partition and offset."""
    wanted = LogSearch(query)
    left = query.limit
    addresses = _partitions(view, query)
    if query.record_id is None:
        view.note_missing(query.topic, None)
    else:
        view.note_missing(*parse_id(query.record_id)[0])
    view.start_meter("searching", addresses)
    for address in addresses:
        rows = partial(_matches, address=address, wanted=wanted)
        for run in steady_runs(view, address, rows, "offset"):
            yield from run
            left -= len(run)
            if not left:
                return


def _matches(
    view: View, start: int, *, address: TopicPartition, wanted: LogSearch
) -> Iterator[list[Row]]:
    """Yield the matching records of a partition from an offset on, one at a time."""
    partition = view.partition(address)
    start = max(start, partition.bounds().start)
    for segment, log in zip(partition.segments(), view.logs(address), strict=True):
        if segment.limit_offset > start and not _is_too_old(segment, wanted.query.from_ms):
            for row in in_log(view.reader, log, wanted, start=start):
                yield [row]


def _partitions(view: View, query: FindQuery) -> Sequence[TopicPartition]:
    if query.record_id is None:
        return view.select(query.topic, None)
    address, _ = parse_id(query.record_id)
    try:
        return view.select(*address)
    except (UnknownTopic, UnknownPartition):
        return []


def _is_too_old(segment: Segment, from_ms: int | None) -> bool:
    """Whether every record of a segment is older than `from_ms`, by the segment's largest time.

    If a segment has no time, the modification time of its file is used; its records have time -1 and do not match.
    """
    return from_ms is not None and from_ms > 0 and segment.largest_timestamp_ms() < from_ms


def in_log(reader: LogReader, log: Log, wanted: LogSearch, *, start: int = 0) -> Iterator[Row]:
    """Yield the matching records of one log at or above `start`."""
    for batch in reader.batches(log):
        if batch.header.last_offset < start or not wanted.may_hold(batch):
            continue
        try:
            found = list(stored_records(batch))
        except Corrupt as error:
            reader.notes.add(undecodable(batch, log, error))
            continue
        for record in found:
            if record.offset >= start and wanted.matches(record):
                yield stored_row(log.topic, log.partition, record)
