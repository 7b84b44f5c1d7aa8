"""Builders of record batches for the tests of the Kafka engine."""

from __future__ import annotations

from collections.abc import Sequence

from storage.kafka.format.batch import (
    HEADER_SIZE,
    BatchHeader,
    decode_header,
    encode_batch,
    encode_control_batch,
    seal,
)


def data_batch(
    base_offset: int = 0,
    *,
    count: int = 1,
    times_ms: Sequence[int] = (),
    key: bytes | None = None,
    value: bytes | None = b"x",
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """Encode a batch of `count` records (or one per time); `producer`: id, epoch, base sequence."""
    times = times_ms or (1,) * count
    return encode_batch(
        [(key, value, (), time_ms) for time_ms in times],
        base_offset=base_offset,
        leader_epoch=epoch,
        now_ms=1,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )


def marker(
    base_offset: int, producer_id: int, *, commit: bool, producer_epoch: int = 0, time_ms: int = 5
) -> bytes:
    """Encode the control batch that ends a transaction."""
    return encode_control_batch(
        commit=commit,
        coordinator_epoch=3,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=0,
        timestamp_ms=time_ms,
    )


def header_of(data: bytes) -> BatchHeader:
    """Return the header of a single batch."""
    return decode_header(data, 0)


def lying(data: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and a matching CRC."""
    header = decode_header(data)._replace(**fields)
    return seal(header, data[HEADER_SIZE:]) + data[HEADER_SIZE:]
