"""A new Kafka log directory, made from its logs alone: segments are written in pieces, then the engine makes all other
files.

Owns how records are grouped into batches and batches into segments; every message brings its offset. Any number of
writers may write pieces of one partition side by side. A piece consists of whole segments, named by their first
offsets.

    DIR/topic-0/00000000000000000035.log     by a writer
    then: epochs, topic ids; indexes, producers, checkpoints by the recovery of a store that is opened
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from storage.coding.varint import INT32_MAX
from storage.contract import Clock, StoreOptions
from storage.conversion.counters import MOVED, Fates
from storage.conversion.mapping import to_kafka
from storage.conversion.records import KafkaRecord, QueuedMessage
from storage.errors import Corrupt, NotOffered
from storage.files import File, FileSystem, write_durably
from storage.kafka.format import checkpoints, names
from storage.kafka.format.batch import encode_batch
from storage.kafka.format.compression import codec_id
from storage.kafka.format.names import parse_segment_name, partition_dir_name, segment_name
from storage.kafka.state.root import LogDirectory, StoreFile, new_uuid
from storage.kafka.state.settings import TopicSettings, parse_store_settings
from storage.kafka.store import open_kafka
from storage.kafka.tools.salvage.salvage import count_records
from storage.model import Header, TopicPartition
from storage.shared.recount import Contents

BATCH_BYTES: Final = 256 << 10
BATCH_RECORDS: Final = 1000
WRITE_BYTES: Final = 1 << 20
FIRST_EPOCH: Final = 0
_FAR_MS: Final = 1 << 62  # the times of one batch are stored as 64 bit differences


class SegmentWriter:
    """A writer of a piece of one partition's log. Memory: a batch, and WRITE_BYTES."""

    def __init__(
        self, fs: FileSystem, root: Path, address: TopicPartition, settings: TopicSettings
    ):
        self._fs = fs
        self._folder = root / partition_dir_name(*address)
        self._settings = settings
        self._codec = codec_id(settings.compression)
        self._batch: list[tuple[bytes | None, bytes | None, Sequence[Header], int]] = []
        self._batch_bytes = 0
        self._base_offset = 0  # of the current batch
        self._append_time = False  # of the current batch
        self._file: File | None = None
        self._segment = 0  # base offset of the current segment
        self._buffer: list[bytes] = []
        self._buffered = self._written = 0

    def add(self, record: KafkaRecord) -> None:
        """Add a record at its own offset, which must be after all earlier offsets."""
        if self._batch and not self._joins(record):
            self._close_batch()
        if not self._batch:
            self._base_offset = record.offset
            self._append_time = record.log_append_time
        self._batch.append((record.key, record.value, record.headers, record.timestamp_ms))
        self._batch_bytes += _size_of(record)

    def _joins(self, record: KafkaRecord) -> bool:
        first_ms = self._batch[0][3]
        apart_ms = abs(record.timestamp_ms - first_ms)
        return (
            record.offset == self._base_offset + len(self._batch)
            and record.log_append_time == self._append_time
            and apart_ms < (1 if self._append_time else _FAR_MS)
            and len(self._batch) < BATCH_RECORDS
            and self._batch_bytes + _size_of(record) <= BATCH_BYTES
        )

    def _close_batch(self) -> None:
        data = encode_batch(
            self._batch,
            base_offset=self._base_offset,
            leader_epoch=FIRST_EPOCH,
            now_ms=self._batch[0][3],
            codec=self._codec,
            log_append_time=self._append_time,
        )
        end = self._base_offset + len(self._batch)
        size_bytes = self._written + self._buffered + len(data)
        if self._file is not None and (
            size_bytes > self._settings.segment_bytes or end - self._segment > INT32_MAX
        ):
            self._close_segment()
        if self._file is None:
            self._open_segment()
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered >= WRITE_BYTES:
            self._flush()
        self._batch = []
        self._batch_bytes = 0

    def _open_segment(self) -> None:
        self._fs.make_dir(self._folder)
        self._segment = self._base_offset
        path = self._folder / segment_name(self._segment)
        self._file = self._fs.open(path, write=True, create=True)
        self._written = 0

    def _flush(self) -> None:
        assert self._file is not None
        self._file.pwrite(b"".join(self._buffer), self._written)
        self._written += self._buffered
        self._buffer, self._buffered = [], 0

    def _close_segment(self) -> None:
        if self._file is not None:
            self._flush()
            self._file.datasync()
            self._file.close()
            self._file = None

    def finish(self) -> None:
        """Write all records; durable on return, except for the names."""
        if self._batch:
            self._close_batch()
        self._close_segment()

    def abandon(self) -> None:
        """Close the file without writing more."""
        if self._file is not None:
            self._file.close()
            self._file = None


class PieceOfPartition(NamedTuple):
    """The result of a part for one partition: offsets [first, end) of the target."""

    address: TopicPartition
    first: int
    end: int
    records: int


class PartitionWriter:
    """A writer of messages as records of one partition (`source` is the queue), at their own offsets.

    A record whose offset is already used gets the next free offset with `may_move`; else NotOffered is raised.
    """

    def __init__(self, segments: SegmentWriter, source: TopicPartition, *, may_move: bool) -> None:
        self.segments = segments
        self.records = 0
        self._source = source
        self._may_move = may_move
        self._first = self._next = 0

    def add(self, message: QueuedMessage, fates: Fates) -> None:
        """Add a message; one that cannot be read is counted as left out."""
        try:
            record = to_kafka(message)
        except Corrupt as error:
            fates.left_out.add(self._source, message.offset, "body", error.message)
            return
        placed = max(record.offset, self._next)
        if placed != record.offset:
            if not self._may_move:
                raise offsets_meet(self._source)
            fates.moved.add(self._source, record.offset, "offset", MOVED)
        if not self.records:
            self._first = placed
        self._next = placed + 1
        self.records += 1
        self.segments.add(record._replace(offset=placed))

    def piece(self) -> PieceOfPartition:
        """Return the description of the written records."""
        return PieceOfPartition(self._source, self._first, self._next, self.records)


def offsets_meet(address: TopicPartition) -> NotOffered:
    """Return the error for a queue that mixes records restored to their Kafka offsets with other records. The offset of
    each record depends on all records before it.
    """
    return NotOffered(
        f"{address} has records that were Kafka's between others, so that their offsets meet: "
        "`logserver convert` moves them one after another",
        feature="conversion in parts",
    )


def _size_of(record: KafkaRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def settings_for(topic: str, settings: Mapping[str, str]) -> TopicSettings:
    """Return the settings with which a topic is written. Raises InvalidConfig."""
    return parse_store_settings(settings).of_topic(topic, {})


def complete(
    root: Path,
    topics: Mapping[str, Sequence[int]],
    options: StoreOptions,
    *,
    cleaned: Mapping[TopicPartition, int],
    fs: FileSystem,
    clock: Clock,
) -> Mapping[TopicPartition, Contents]:
    """Make a store, durable and cleanly stopped, from the logs in `root`; return its contents. `cleaned`: the offsets
    up to which partitions were compacted, so that missing offsets before them are no loss.
    """
    for topic, partitions in topics.items():
        topic_id = new_uuid()
        for number in partitions:
            _complete_partition(fs, root / partition_dir_name(topic, number), topic_id)
    LogDirectory(fs, root).write_store_file(StoreFile(created=True))
    if cleaned:
        write_durably(fs, root / names.CLEANER_OFFSETS, checkpoints.encode_offsets(cleaned))
    fs.sync_dir(root)
    store = open_kafka(root, options, fs=fs, clock=clock, read_only=False)
    with store:
        addresses = [TopicPartition(topic, n) for topic, ns in topics.items() for n in ns]
        return count_records(store, addresses)


def _complete_partition(fs: FileSystem, folder: Path, topic_id: str) -> None:
    fs.make_dir(folder)
    parsed = map(parse_segment_name, fs.list_dir(folder))
    bases = [found[0] for found in parsed if found is not None]
    if not bases:
        write_durably(fs, folder / segment_name(0), b"")
    epochs = checkpoints.encode_epochs([(FIRST_EPOCH, min(bases, default=0))])
    write_durably(fs, folder / names.LEADER_EPOCHS, epochs)
    metadata = checkpoints.encode_partition_metadata(topic_id)
    write_durably(fs, folder / names.PARTITION_METADATA, metadata)
    fs.sync_dir(folder)
