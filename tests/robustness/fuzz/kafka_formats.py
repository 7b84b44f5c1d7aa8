"""Fuzz targets: everything in a Kafka log directory that is decoded from bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from struct import pack
from typing import Any

from scripts.diff_fuzz_cases import batches
from storage.coding.checksum import crc32c
from storage.errors import InvalidTopic
from storage.kafka.format import (
    batch,
    checkpoints,
    names,
    offset_records,
    producer_snapshot,
    properties,
    txn_index,
)
from storage.kafka.format.compression import LZ4
from storage.kafka.format.record import DecodedRecord
from storage.kafka.format.sparse_index import offset_index, time_index
from tests.golden.stores import KAFKA
from tests.robustness.fuzz.target import (
    LIMIT_BYTES,
    SEED_BYTES,
    Check,
    Target,
    text_of,
    tried,
    unless,
)

SEEDS = 12


@cache
def files(pattern: str) -> Sequence[bytes]:
    """Return the starts of real files of one kind, each content once."""
    found = {path.read_bytes()[:SEED_BYTES]: None for path in sorted(KAFKA.glob(pattern))}
    return [data for data in found if data][:SEEDS]


def some_batches() -> Sequence[bytes]:
    """Return short batches, two joined batches, and a truncated batch."""
    short = sorted(batches(), key=len)[: 2 * SEEDS]
    return [*short, short[0] + short[1], short[2][:-3]]


# ---- batches ---------------------------------------------------------------------------------------------------------


def check_headers(data: bytes) -> None:
    """Check that a walk over batches returns consecutive batches and never raises."""
    at = lowest = 0
    for position, base_offset, next_offset, size in batch.scan_headers(data, 0, len(data)):
        assert (position, lowest) <= (at, base_offset) < (at + 1, next_offset)
        at, lowest = position + size, next_offset
    assert at <= len(data)
    whole = tried(batch.split_batches, data)
    if whole is not None:
        assert sum(header.size_bytes for _, header in whole) == len(data)
        assert all(batch.check_crc(data, position, header) for position, header in whole)
    header = tried(batch.decode_header, data)
    if header is not None:
        assert 0 <= header.base_offset <= header.next_offset < 1 << 63
        assert header.last_sequence >= -1
        tried(batch.check_crc, data, 0, header)


def check_records(data: bytes) -> None:
    """Check that records are ordered, accepted from a producer if without gaps, and equal in a new batch."""
    records = tried(batch.decode_records, data, max_bytes=LIMIT_BYTES)
    check_as_a_producers(data, records)
    tried(batch.decode_control, data)
    if not records:
        return
    header = batch.decode_header(data)
    offsets = [record[0] for record in records]
    assert offsets == sorted(set(offsets))
    assert header.base_offset <= offsets[0]
    given = [(key, value, headers, time_ms) for _, time_ms, key, value, headers in records]
    again = batch.encode_batch(given, base_offset=header.base_offset, leader_epoch=0, now_ms=0)
    assert [record[1:] for record in batch.decode_records(again)] == [r[1:] for r in records]


def check_as_a_producers(data: bytes, records: list[DecodedRecord] | None) -> None:
    """Check that exactly the readable batches without gaps are accepted from producers, without decoding them."""
    header = tried(batch.decode_header, data)
    if header is None:
        return
    latest = tried(batch.check_records, data, 0, header, max_bytes=LIMIT_BYTES)
    first = header.base_offset
    whole = records is not None and [r[0] - first for r in records] == list(range(header.count))
    assert (latest is not None) == whole or (latest is None and header.codec == LZ4)
    if latest is not None and records and not header.is_log_append_time:
        assert latest == max(-1, *(record[1] for record in records))


def check_restamping(data: bytes) -> None:
    """Check that a batch with a new append time contains that time and a correct CRC."""
    buffer = bytearray(data)
    tried(batch.restamp_append_time, buffer, 0, 1_700_000_000_000)
    if bytes(buffer) != data:
        header = batch.decode_header(buffer)
        assert header.is_log_append_time
        assert batch.check_crc(buffer, 0, header)
        assert len(buffer) == len(data)


# ---- indexes ---------------------------------------------------------------------------------------------------------


def check_sparse_index(module: Any, data: bytes) -> None:
    """Check that the file begins with entries, and zeros follow. `leading_entries` returns no fewer entries."""
    entries = tried(module.decode_entries, data)
    leading = module.leading_entries(data)
    if entries is not None:
        assert leading == entries
        again = b"".join(module.encode_entry(*entry) for entry in entries)
        assert data[: len(again)] == again
        assert not any(data[len(again) :])


def check_txn_index(data: bytes) -> None:
    """Check that the whole file consists of entries."""
    entries = tried(txn_index.decode_entries, data)
    if entries is not None:
        assert b"".join(map(txn_index.encode_entry, entries)) == data


def check_snapshot(data: bytes) -> None:
    """Check that producers survive encoding and decoding, also with a corrected CRC.

    Without the correction the CRC check refuses nearly all inputs.
    """
    sealed = data[:2] + pack(">I", crc32c(data[6:])) + data[6:]
    for file in (data, sealed):
        entries = tried(producer_snapshot.decode_snapshot, file)
        if entries is not None:
            again = producer_snapshot.encode_snapshot(entries)
            assert sorted(producer_snapshot.decode_snapshot(again)) == sorted(entries)
            assert len(again) == len(file)


# ---- committed offsets -----------------------------------------------------------------------------------------------


def check_offset_key(data: bytes) -> None:
    """Check that a decoded offset key survives encoding and decoding."""
    key = tried(offset_records.decode_key, data)
    if key is not None:
        assert offset_records.decode_key(offset_records.encode_key(key)) == key


def check_offset_value(data: bytes) -> None:
    """Check that a decoded offset value of any version survives encoding and decoding."""
    value = tried(offset_records.decode_value, data)
    if value is not None:
        assert offset_records.decode_value(offset_records.encode_value(value)) == value


def offset_keys() -> Sequence[bytes]:
    """Return an offset key, and a key of another type."""
    key = offset_records.OffsetKey("group", "t\u00f6pic", 7)
    return [offset_records.encode_key(key), b"\0\2\0\5group"]


def offset_values() -> Sequence[bytes]:
    """Return values of the versions that differ."""
    value = offset_records.OffsetValue(1 << 40, 3, "m\u00e4h", 1_700_000_000_000, bytes(range(16)))
    old = b"\0\1" + bytes(7) + b"\5\0\1m" + bytes(8) + b"\xff" * 8
    return [offset_records.encode_value(value), old, b"\0\3" + bytes(22)]


# ---- text files and names --------------------------------------------------------------------------------------------


def check_text_file(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], data: bytes
) -> None:
    """Check that a decoded value survives encoding and decoding."""
    value = tried(decode, data)
    if value is not None:
        assert decode(encode(value)) == value


def check_shutdown_marker(data: bytes) -> None:
    """Check that an epoch of a broker survives. The marker may contain any number, as Jackson reads it."""
    epoch = checkpoints.decode_clean_shutdown(data)
    if epoch is not None and epoch >= -1:
        assert checkpoints.decode_clean_shutdown(checkpoints.encode_clean_shutdown(epoch)) == epoch


def check_properties(data: bytes) -> None:
    """Check that the text survives, and the broker's checks raise no unexpected error."""
    check_text_file(properties.decode_properties, properties.encode_properties, data)
    read = tried(properties.decode_properties, data)
    if read is not None:
        tried(properties.parse_meta_properties, read)


def check_names(data: bytes) -> None:
    """Check that a parsed name is the name that would be generated."""
    text = text_of(data)
    segment = names.parse_segment_name(text)
    assert segment is None or names.segment_name(*segment) == text
    address = names.parse_partition_dir(text)
    assert address is None or names.partition_dir_name(*address) == text
    names.is_deleted_dir(text)
    unless(InvalidTopic, names.validate_new_topic, text)


def some_names() -> Sequence[bytes]:
    """Return names of every kind that a log directory contains."""
    found = {path.name for path in KAFKA.glob("*/data/**/*")}
    left = {"t-0.0123456789abcdef0123456789abcdef-delete", "00000000000000000001.log.swap"}
    return [name.encode() for name in sorted(found | left)[: 2 * SEEDS]]


def text_file(
    name: str,
    seeds: Callable[[], Sequence[bytes]],
    decode: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
) -> Check:
    """Return a check of one kind of text file."""
    return Check(f"kafka-{name}", seeds, partial(check_text_file, decode, encode))


def shutdown_markers() -> Sequence[bytes]:
    """Return markers of a clean stop, as two broker versions write them."""
    return [checkpoints.encode_clean_shutdown(epoch) for epoch in (-1, 1 << 40)]


def meta_properties() -> Sequence[bytes]:
    """Return the broker's file, and a text that uses the whole syntax."""
    return [
        b"#\n#Sat Nov 21 10:00:00 UTC 2026\ncluster.id=abc\nversion=1\nnode.id=1\n"
        b"directory.id=AAAAAAAAQACAAAAAAAAAAQ\n",
        b"a\\ b : c\\\n  d\n!x\r\nk\\u00e9\\ud83d\\ude80=\\ud800\\t",
    ]


BATCHES = Target(
    "kafka-batches",
    (
        Check("kafka-headers", some_batches, check_headers),
        Check("kafka-records", some_batches, check_records),
        Check("kafka-restamping", some_batches, check_restamping),
    ),
    share=3,
)
FILES = Target(
    "kafka-files",
    (
        *(
            Check(f"kafka-{kind}", partial(files, f"*/data/*/*.{kind}"), partial(check, module))
            for kind, check, module in (
                ("index", check_sparse_index, offset_index),
                ("timeindex", check_sparse_index, time_index),
            )
        ),
        Check("kafka-txnindex", partial(files, "*/data/*/*.txnindex"), check_txn_index),
        Check("kafka-snapshot", partial(files, "*/data/*/*.snapshot"), check_snapshot),
        text_file(
            "offsets",
            partial(files, "*/data/*-checkpoint"),
            checkpoints.decode_offsets,
            checkpoints.encode_offsets,
        ),
        text_file(
            "epochs",
            partial(files, "*/data/*/leader-epoch-checkpoint"),
            checkpoints.decode_epochs,
            checkpoints.encode_epochs,
        ),
        text_file(
            "metadata",
            partial(files, "*/data/*/partition.metadata"),
            lambda data: checkpoints.decode_partition_metadata(data).topic_id,
            checkpoints.encode_partition_metadata,
        ),
        Check("kafka-shutdown", shutdown_markers, check_shutdown_marker),
        Check("kafka-offset-keys", offset_keys, check_offset_key),
        Check("kafka-offset-values", offset_values, check_offset_value),
        Check("kafka-properties", meta_properties, check_properties),
        Check("kafka-names", some_names, check_names),
    ),
    share=2,
)
