"""Every batch of every golden store: compared with the dumps of Kafka's own tools, and written again byte for byte."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage.kafka.format.batch import (
    HEADER_SIZE,
    BatchHeader,
    decode_control,
    decode_records,
    encode_batch,
    encode_control_batch,
    scan_headers,
    seal,
    split_batches,
)
from storage.kafka.format.compression import CODECS, compress, decompress

STORES = Path(__file__).resolve().parents[2] / "golden" / "kafka"
PARTITIONS = sorted(path.parent for path in STORES.glob("*/expect/*/batches.json"))
LIMIT_BYTES = 1 << 26


class Stored(NamedTuple):
    """One batch of a segment."""

    header: BatchHeader
    position: int
    data: bytes


def name_of(partition: Path) -> str:
    return f"{partition.parts[-3]}-{partition.name}"


@cache
def segments(partition: Path) -> dict[str, list[Stored]]:
    """Return the batches of each `.log` of a partition; splitting checks every header and CRC."""
    found = {}
    for path in sorted((partition.parents[1] / "data" / partition.name).glob("*.log")):
        data = path.read_bytes()
        found[path.name] = [
            Stored(header, position, data[position : position + header.size_bytes])
            for position, header in split_batches(data)
        ]
    return found


def batches(partition: Path) -> Iterator[Stored]:
    for stored in segments(partition).values():
        yield from stored


def as_dumped(stored: Stored) -> dict[str, Any]:
    """Return the batch in the form of `batches.json`."""
    header = stored.header
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
        "position": stored.position,
        "timestampType": time_type(header),
        "maxTimestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "codec": CODECS[header.codec],
        "crc": header.crc,
        "valid": True,
    }


def time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def consumed(partition: Path) -> Iterator[dict[str, Any]]:
    """Yield the records that a consumer sees, in the form of `expected.jsonl`."""
    topic, _, number = partition.name.rpartition("-")
    for stored in batches(partition):
        if stored.header.is_control:
            continue
        for offset, timestamp_ms, key, value, headers in decode_records(stored.data):
            yield {
                "topic": topic,
                "partition": int(number),
                "offset": offset,
                "timestamp": timestamp_ms,
                "timestampType": time_type(stored.header),
                "key": text(key),
                "value": text(value),
                "headers": [[name, text(content)] for name, content in headers],
            }


def log_start(partition: Path) -> int:
    """Return the log start; the first segment still holds records below it, but they are not served."""
    times = json.loads((partition / "times.json").read_text(encoding="utf-8"))
    earliest: int = times["summary"]["earliest"]
    return earliest


def test_the_stores_are_there() -> None:
    assert len(PARTITIONS) >= 45
    assert sum(len(list(batches(partition))) for partition in PARTITIONS) > 1_900


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_headers(partition: Path) -> None:
    dumped = json.loads((partition / "batches.json").read_text(encoding="utf-8"))
    found = {name: stored for name, stored in segments(partition).items() if stored}
    assert {name: [as_dumped(one) for one in stored] for name, stored in found.items()} == {
        name: rows for name, rows in dumped.items() if rows
    }


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_walking_over_headers(partition: Path) -> None:
    for stored in segments(partition).values():
        data = b"".join(one.data for one in stored)
        assert scan_headers(data, 0, len(data)) == [
            (position, header.base_offset, header.next_offset, header.size_bytes)
            for header, position, _ in stored
        ]


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_records(partition: Path) -> None:
    lines = (partition / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    start = log_start(partition)
    assert [row for row in consumed(partition) if row["offset"] >= start] == [
        json.loads(line) for line in lines
    ]


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_writing_again(partition: Path) -> None:
    """All headers are written again equally, and so are uncompressed batches of a producer or the coordinator."""
    for header, _, data in batches(partition):
        assert seal(header, data[HEADER_SIZE:]) == data[:HEADER_SIZE]
        compacted = header.count != header.last_offset_delta + 1 or header.has_delete_horizon
        if header.codec or header.is_log_append_time or compacted:
            continue
        if header.is_control:
            assert control_again(header, data) == data
        else:
            assert batch_again(header, data) == data


def batch_again(header: BatchHeader, data: bytes) -> bytes:
    return encode_batch(
        [(key, value, headers, time) for _, time, key, value, headers in decode_records(data)],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        now_ms=0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )


def control_again(header: BatchHeader, data: bytes) -> bytes:
    marker = decode_control(data)
    assert marker is not None
    return encode_control_batch(
        commit=marker.type == 1,
        coordinator_epoch=marker.coordinator_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        timestamp_ms=marker.timestamp_ms,
    )


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_compressed_blocks_look_like_ours(partition: Path) -> None:
    """Compressed bytes depend on library and level; the framing before them is equal, and the content comes back."""
    framing_bytes = {1: 10, 2: 16, 3: 7, 4: 4}
    for header, _, data in batches(partition):
        if not header.codec:
            continue
        content = decompress(header.codec, data[HEADER_SIZE:], LIMIT_BYTES)
        again = compress(header.codec, content)
        kept = framing_bytes[header.codec]
        assert again[:kept] == data[HEADER_SIZE : HEADER_SIZE + kept]
        assert decompress(header.codec, again, LIMIT_BYTES) == content
