"""A record batch (version 2): the unit that a `.log` file is a plain sequence of, and that a producer sends.

Owns the combination of header and records, in both directions, and the markers of transactions; leaves the header to
`batch_header`, the records to `record`, the codecs to `compression`, and must not know about files. It also exports
the names of the header. Sources: DefaultRecordBatch, ControlRecordType and EndTransactionMarker of Kafka's clients.

    position  bytes  field              note
    0         61     header             see `batch_header`
    61        n      records            as they are, or one block of the header's codec

The one record of a control batch:

    position  bytes  field              note
    0         2      key: version       0
    2         2      key: type          0 abort, 1 commit; others are the controller's
    0         2      value: version     0; of a marker
    2         4      coordinator epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from storage.coding.checksum import crc32c
from storage.errors import DataError, InvalidArgument, RecordTooLarge
from storage.kafka.format import record
from storage.kafka.format.batch_header import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_LENGTH,
    MIN_LENGTH,
    SIZE_BEFORE_LENGTH,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_crc,
    check_offered,
    corrupt_batch,
    decode_header,
    is_whole_misfit,
    restamp_append_time,
    restamp_latest,
    scan_headers,
    seal,
    stamp,
    truncated_batch,
)
from storage.kafka.format.compression import check_for_clients, compress, decompress
from storage.kafka.format.record import DecodedRecord, NewRecord

__all__ = [
    "ABORT",
    "COMMIT",
    "DEFAULT_MAX_BYTES",
    "HEADER_SIZE",
    "MAGIC",
    "MIN_LENGTH",
    "BatchHeader",
    "ControlMarker",
    "check_crc",
    "check_offered",
    "check_records",
    "decode_control",
    "decode_header",
    "decode_records",
    "encode_batch",
    "encode_control_batch",
    "is_whole_misfit",
    "restamp_append_time",
    "restamp_latest",
    "scan_headers",
    "split_batches",
    "stamp",
]

DEFAULT_MAX_BYTES: Final = 256 << 20
"""The default limit for the size of a batch's records after decompression."""

ABORT: Final = 0
COMMIT: Final = 1

_CONTROL_KEY: Final = Struct(
    ">"
    "h"  # version
    "h"  # type
)
assert _CONTROL_KEY.size == 4
_MARKER: Final = Struct(
    ">"
    "h"  # version
    "i"  # coordinator epoch
)
assert _MARKER.size == 6


class ControlMarker(NamedTuple):
    """The content of a control batch. `coordinator_epoch` is -1 for types other than `ABORT` and `COMMIT`."""

    type: int
    coordinator_epoch: int
    timestamp_ms: int


def split_batches(data: Buffer) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of every batch in `data`, which must hold complete batches and nothing else.

    Checks every header and every CRC. Raises Truncated if the last batch is incomplete, Corrupt for the first invalid
    batch.
    """
    found: list[tuple[int, BatchHeader]] = []
    view = memoryview(data)
    end = len(data)
    position = 0
    while position < end:
        header = decode_header(data, position)
        stop = position + SIZE_BEFORE_LENGTH + header.length
        if stop > end:
            raise truncated_batch(position, header.size_bytes)
        crc = crc32c(view[position + CRC_START : stop])
        if crc != header.crc:
            raise corrupt_batch(
                position,
                "the CRC is wrong",
                field="crc",
                expected=f"{header.crc:08x}",
                found=f"{crc:08x}",
            )
        found.append((position, header))
        position = stop
    return found


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    codec: int = 0,
    log_append_time: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """Encode a batch of (key, value, headers, timestamp_ms or None, ...) records, as a producer and its broker do.

    A timestamp of None means `now_ms`. With `log_append_time`, `now_ms` is the time of every record, whatever its own.

    Raises UnrepresentableRecord, RecordTooLarge for a batch of 2 GiB, InvalidArgument for no record or a field out of
    range.
    """
    listed = records if isinstance(records, list) else list(records)
    if not listed:
        raise InvalidArgument("a batch needs at least one record", field="records")
    first: int | None = listed[0][3]
    base_timestamp = now_ms if first is None else first
    payload, latest = record.encode_records(listed, base_timestamp_ms=base_timestamp, now_ms=now_ms)
    if codec:
        payload = compress(codec, payload)
    if len(payload) > MAX_LENGTH - MIN_LENGTH:
        raise RecordTooLarge(
            f"the batch has {len(payload)} bytes of records, the format allows {MAX_LENGTH - MIN_LENGTH}",
            size_bytes=len(payload),
            limit_bytes=MAX_LENGTH - MIN_LENGTH,
        )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0),
        last_offset_delta=len(listed) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=now_ms if log_append_time else latest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(listed),
    )
    return b"".join([seal(header, payload), payload])


def decode_records(
    data: bytes,
    position: int = 0,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    header: BatchHeader | None = None,
) -> list[DecodedRecord]:
    """Return (offset, timestamp_ms, key, value, headers) of the batch's records. The CRC is not checked.

    The batch begins at `position`. Offsets rise; records that Kafka's consumer drops are left out (see
    `record.decode_records`). A caller that has the header passes it as `header`, so that it is not decoded again. For
    a control batch, returns its raw record.

    Raises Truncated if the batch is incomplete. Raises Corrupt for a violation of the format, and for compressed
    records that would exceed `max_bytes`.
    """
    if header is None:
        header = decode_header(data, position)
    _check_end(data, position, header)
    try:
        content, start, stop = _content(data, position, header, max_bytes)
        found = record.decode_records(
            content,
            start,
            end=stop,
            count=header.count,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp,
        )
    except DataError as fault:
        trailing_bytes = fault.facts().get("trailing_bytes", 0)
        raise corrupt_batch(position, fault.message, trailing_bytes=trailing_bytes) from fault
    if header.is_log_append_time:
        time = header.max_timestamp
        return [(offset, time, key, value, headers) for offset, _, key, value, headers in found]
    return found


def check_records(
    data: bytes, position: int, header: BatchHeader, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> int:
    """Check every record of a producer's batch. Return the largest timestamp.

    Raises as `decode_records`, and Corrupt for what only a producer must not send: offset deltas with gaps, and blocks
    that Kafka's clients cannot read.
    """
    _check_end(data, position, header)
    try:
        content, start, stop = _content(data, position, header, max_bytes)
        check_for_clients(header.codec, data, position + HEADER_SIZE)
        latest = record.check_records(
            content,
            start,
            end=stop,
            count=header.count,
            base_timestamp_ms=header.base_timestamp,
        )
    except DataError as fault:
        raise corrupt_batch(position, fault.message) from fault
    return header.max_timestamp if header.is_log_append_time else latest


def _check_end(data: bytes, position: int, header: BatchHeader) -> None:
    if position + header.size_bytes > len(data):
        raise truncated_batch(position, header.size_bytes)


def _content(
    data: bytes, position: int, header: BatchHeader, max_bytes: int
) -> tuple[bytes, int, int]:
    """Return (bytes, start, stop) of the records, decompressed if the batch has a codec."""
    start, stop = position + HEADER_SIZE, position + SIZE_BEFORE_LENGTH + header.length
    if not header.codec:
        return data, start, stop
    content = decompress(header.codec, data[start:stop], max_bytes)
    return content, 0, len(content)


def encode_control_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
) -> bytes:
    """Encode the marker that ends a transaction, as the coordinator requests it.

    Raises InvalidArgument for a field out of range, UnrepresentableRecord for a time outside 64 bits.
    """
    key = _CONTROL_KEY.pack(0, COMMIT if commit else ABORT)
    if not -1 << 31 <= coordinator_epoch < 1 << 31:
        raise InvalidArgument(
            f"coordinator epoch {coordinator_epoch} does not fit into 32 bits", field="batch"
        )
    value = _MARKER.pack(0, coordinator_epoch)
    payload, _ = record.encode_records(
        [(key, value, (), timestamp_ms)], base_timestamp_ms=timestamp_ms, now_ms=timestamp_ms
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        count=1,
    )
    return seal(header, payload) + payload


def decode_control(data: bytes, position: int = 0) -> ControlMarker | None:
    """Return the content of the control batch at `position`; None for a batch that compaction has emptied.

    Raises as `decode_records`, and Corrupt for a batch that is not a control batch, or has a key or value of another
    shape.
    """
    header = decode_header(data, position)
    if not header.is_control:
        raise corrupt_batch(position, "it is no control batch")
    records = decode_records(data, position, header=header)
    if not records:
        return None
    _, timestamp_ms, key, value, _ = records[0]
    if key is None or len(key) < _CONTROL_KEY.size:
        raise corrupt_batch(position, "the control record's key is too short")
    _, kind = _CONTROL_KEY.unpack_from(key)
    if kind not in (ABORT, COMMIT):
        return ControlMarker(kind, -1, timestamp_ms)
    if value is None or len(value) < _MARKER.size:
        raise corrupt_batch(position, "the marker's value is too short")
    _, coordinator_epoch = _MARKER.unpack_from(value)
    return ControlMarker(kind, coordinator_epoch, timestamp_ms)
