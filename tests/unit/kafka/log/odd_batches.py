"""Complete batches with a valid CRC that no known version writes, and logs that contain them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from storage.coding.varint import encode_varint
from storage.kafka.format.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    decode_header,
    seal,
)
from tests.unit.kafka.log.batches import data_batch, marker


def record(offset_delta: int, value: bytes) -> bytes:
    """Encode a record with this offset delta."""
    body = (
        b"\0\0"
        + encode_varint(offset_delta)
        + encode_varint(-1)
        + encode_varint(len(value))
        + value
        + b"\0"
    )
    return encode_varint(len(body)) + body


def odd_batch(
    base_offset: int,
    deltas: Sequence[int] = (0, 1, 2),
    *,
    last_offset_delta: int | None = None,
    count: int | None = None,
    attributes: int = 0,
    behind: bytes = b"",
) -> bytes:
    """Encode a batch with one record per offset delta and `behind` after the last record.

    Arguments that are None get their correct values.
    """
    payload = (
        b"".join(record(delta, b"odd %d" % index) for index, delta in enumerate(deltas)) + behind
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(deltas) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=1,
        max_timestamp=1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=len(deltas) if count is None else count,
    )
    return seal(header, payload) + payload


def control_batch(base_offset: int, kind: int, *, producer_id: int = -1) -> bytes:
    """Encode a control batch of type `kind`."""
    data = marker(base_offset, producer_id, commit=True)
    header = decode_header(data)
    payload = data[HEADER_SIZE:].replace(b"\0\0\0\1", struct.pack(">hh", 0, kind), 1)
    return seal(header, payload) + payload


def log_with(batch: bytes, next_offset: int | None = 5) -> bytes:
    """Return a log of two records, the batch (at offset 2), and a record at `next_offset` (None: no record follows)."""
    following = b"" if next_offset is None else data_batch(next_offset)
    return data_batch(0, count=2) + batch + following
