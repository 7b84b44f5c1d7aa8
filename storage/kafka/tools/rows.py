"""The rows of `dump`: records, batches, and the entries of every small file, as plain values.

Owns names and order of the fields. They are the fields that Kafka's own tools print (camel case; a
missing value is None). Must not read a file. Offsets are absolute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from storage.errors import DataError
from storage.kafka.format import checkpoints, names, producer_snapshot, properties, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.compression import CODECS
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.format.record import DecodedRecord
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.format.txn_index import AbortedTransaction
from storage.model import StoredRecord
from storage.shared.sequencing import SEQUENCES

Row: TypeAlias = dict[str, Any]

CREATE_TIME: Final = "CreateTime"
APPEND_TIME: Final = "LogAppendTime"


def record_rows(
    topic: str | None,
    partition: int | None,
    header: BatchHeader,
    records: Iterable[DecodedRecord],
) -> list[Row]:
    """Return one row for each record of a batch. The hot loop of `dump`: one dict display per record."""
    kind = APPEND_TIME if header.is_log_append_time else CREATE_TIME
    return [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": timestamp_ms,
            "timestampType": kind,
            "key": key,
            "value": value,
            "headers": headers,
        }
        for offset, timestamp_ms, key, value, headers in records
    ]


def stored_row(topic: str | None, partition: int | None, record: StoredRecord) -> Row:
    """Return the row of one record that a search found."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }


def batch_row(header: BatchHeader, position: int, *, valid: bool) -> Row:
    """Return the row of a batch, from its header; `valid`: its CRC is right and its offsets continue the log."""
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "leaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        "position": position,
        "timestampType": APPEND_TIME if header.is_log_append_time else CREATE_TIME,
        "maxTimestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "codec": CODECS[header.codec] if header.codec < len(CODECS) else str(header.codec),
        "crc": header.crc,
        "valid": valid,
    }


class ReadEntries(NamedTuple):
    """The entries of a file that could be read, and the error that ended the read (None: all were read)."""

    entries: Sequence[Any]
    error: DataError | None


def index_entries(suffix: str, data: bytes, base_offset: int) -> ReadEntries:
    """Return the entries of an index or snapshot file; of a damaged index the entries before the damage."""
    decode, leading = _INDEXES[suffix]
    try:
        return ReadEntries(decode(data, base_offset), None)
    except DataError as error:
        return ReadEntries(leading(data, base_offset), error)


def _offsets(entries: Iterable[tuple[int, int]], base_offset: int) -> list[list[int]]:
    return [[base_offset + relative, position] for relative, position in entries]


def _times(entries: Iterable[tuple[int, int]], base_offset: int) -> list[list[int]]:
    return [[timestamp_ms, base_offset + relative] for timestamp_ms, relative in entries]


def _aborted(entry: AbortedTransaction) -> Row:
    return {
        "version": txn_index.VERSION,
        "producerId": entry.producer_id,
        "firstOffset": entry.first_offset,
        "lastOffset": entry.last_offset,
        "lastStableOffset": entry.last_stable_offset,
    }


def _leading_aborted(data: bytes) -> list[Row]:
    """Return the rows of the entries before the first invalid entry."""
    rows: list[Row] = []
    size = txn_index.ENTRY_SIZE
    for at in range(0, len(data) - size + 1, size):
        try:
            rows += map(_aborted, txn_index.decode_entries(data[at : at + size]))
        except DataError:
            break
    return rows


def _producer(entry: ProducerEntry) -> Row:
    opened = entry.current_txn_first_offset
    row: Row = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": opened if opened >= 0 else None,
        "lastTimestamp": entry.timestamp_ms,
    }
    if entry.last_offset >= 0:
        row |= {
            "firstSequence": (entry.last_sequence - entry.offset_delta) % SEQUENCES,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp_ms,
        }
    return row


_Decode: TypeAlias = Callable[[bytes, int], Sequence[Any]]

_INDEXES: Final[Mapping[str, tuple[_Decode, _Decode]]] = {
    names.INDEX: (
        lambda data, base: _offsets(offset_index.decode_entries(data), base),
        lambda data, base: _offsets(offset_index.leading_entries(data), base),
    ),
    names.TIME_INDEX: (
        lambda data, base: _times(time_index.decode_entries(data), base),
        lambda data, base: _times(time_index.leading_entries(data), base),
    ),
    names.TXN_INDEX: (
        lambda data, _: [_aborted(entry) for entry in txn_index.decode_entries(data)],
        lambda data, _: _leading_aborted(data),
    ),
    names.SNAPSHOT: (
        lambda data, _: [_producer(entry) for entry in producer_snapshot.decode_snapshot(data)],
        lambda data, _: [],
    ),
}


def _offset_lines(data: bytes) -> list[Row]:
    return [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in checkpoints.decode_offsets(data).items()
    ]


def _epoch_lines(data: bytes) -> list[Row]:
    epochs = checkpoints.decode_epoch_lines(data)
    return [{"epoch": epoch, "startOffset": start} for epoch, start in epochs]


def _metadata(data: bytes) -> list[Row]:
    version, topic_id = checkpoints.decode_partition_metadata(data)
    return [{"version": version, "topicId": topic_id}]


def _marker(data: bytes) -> list[Row]:
    broker_epoch = checkpoints.decode_clean_shutdown(data)
    if broker_epoch is None:
        return []  # an empty file is a valid marker too
    return [{"version": checkpoints.VERSION, "brokerEpoch": broker_epoch}]


def _properties(data: bytes) -> list[Row]:
    found = properties.decode_properties(data)
    properties.parse_meta_properties(found)
    return [dict(found)]


OFFSET_FILES: Final = (
    names.RECOVERY_POINTS,
    names.HIGH_WATERMARKS,
    names.LOG_STARTS,
    names.CLEANER_OFFSETS,
)

ROOT_FILES: Final[Mapping[str, Callable[[bytes], list[Row]]]] = {
    names.META_PROPERTIES: _properties,
    names.CLEAN_SHUTDOWN: _marker,
    **dict.fromkeys(OFFSET_FILES, _offset_lines),
}
"""The files at the root of a log directory that `checkpoints` shows."""

PARTITION_FILES: Final[Mapping[str, Callable[[bytes], list[Row]]]] = {
    names.LEADER_EPOCHS: _epoch_lines,
    names.PARTITION_METADATA: _metadata,
}
"""The files in a partition's folder that `checkpoints` shows."""


def checkpoint_entries(name: str, data: bytes) -> ReadEntries:
    """Return the lines of a file of ROOT_FILES or PARTITION_FILES; none if it is damaged."""
    decode = ROOT_FILES.get(name) or PARTITION_FILES[name]
    try:
        return ReadEntries(decode(data), None)
    except DataError as error:
        return ReadEntries((), error)
