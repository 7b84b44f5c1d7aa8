"""Record batches for the contract's tests, made by the project's own encoder and changed byte by byte.

`position  field`: 0 base offset, 8 length, 12 leader epoch, 16 magic, 17 crc (of bytes 21 to the end), 21 attributes,
23 last offset delta, 35 max timestamp, 57 count, 61 records.
"""

from __future__ import annotations

import struct

from storage.coding.checksum import crc32c
from storage.contract import LogStore, SupportsBatchBytes
from storage.kafka.format.batch import (
    BatchHeader,
    decode_records,
    encode_batch,
    encode_control_batch,
    split_batches,
)
from storage.model import ProducerSequence, Record
from tests.contract.harness import START_MS

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class BatchStore(SupportsBatchBytes, LogStore):
    """A store that accepts batches, for the type checker."""


def batch(
    *texts_: str, codec: int = 0, base_offset: int = 4711, producer: ProducerSequence | None = None
) -> bytes:
    """Return a batch as a client sends it. The store ignores its base offset and leader epoch."""
    mark = producer or ProducerSequence(-1, -1, -1)
    return encode_batch(
        [Record(b"k", text.encode(), [("h", None)], START_MS + i) for i, text in enumerate(texts_)],
        base_offset=base_offset,
        leader_epoch=77,
        now_ms=START_MS,
        codec=codec,
        producer_id=mark.producer_id,
        producer_epoch=mark.epoch,
        base_sequence=mark.sequence,
    )


def changed(data: bytes, position: int, layout: str, value: int, *, new_crc: bool = True) -> bytes:
    """Return the batch with a changed field, and with a matching CRC if `new_crc`."""
    buffer = bytearray(data)
    struct.pack_into(layout, buffer, position, value)
    if new_crc:
        struct.pack_into(">I", buffer, 17, crc32c(bytes(buffer[21:])))
    return bytes(buffer)


def headers(data: bytes) -> list[BatchHeader]:
    """Return the headers of complete, valid batches."""
    return [header for _, header in split_batches(data)]


def texts_in(data: bytes) -> list[bytes | None]:
    """Return the values of all records in these batches."""
    return [r[3] for position, _ in split_batches(data) for r in decode_records(data, position)]


def transaction(*texts_: str, sequence: int) -> bytes:
    """Return a batch of producer 9's transaction."""
    return encode_batch(
        [Record(b"k", text.encode(), (), START_MS) for text in texts_],
        base_offset=0,
        leader_epoch=0,
        now_ms=START_MS,
        producer_id=9,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def marker(*, commit: bool) -> bytes:
    """Return the marker that ends producer 9's transaction."""
    return encode_control_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=9,
        producer_epoch=0,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=START_MS,
    )
