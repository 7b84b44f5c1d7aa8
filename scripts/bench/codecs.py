"""Rows of the codec benchmark: Kafka's codecs next to aiokafka's C extension, crc32c alone and Kafka's own dump tool.

Owns the measured work and its data; must not time it: harness.py does. `scripts/bench_codecs` runs it.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crc32c import crc32c

from logserver.bench.environment import versions
from logserver.bench.goals import CODECS
from scripts.bench.harness import Bench, Row, Turn, parser, run
from storage import Record, SupportsCompaction, TopicPartition, open_store
from storage.kafka.format import batch

try:
    from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords
except ImportError:
    sys.exit("bench_codecs: aiokafka with its C extension is the yardstick: pip install aiokafka")

ROOT = Path(__file__).resolve().parents[2]
DUMP_LOG = ROOT / "tests" / "interop" / "peers" / "kafka" / "dump-log"
RECORDS_A_BATCH = 100
NOW_MS = 1_700_000_000_000
SMALL, LARGE = 100, 1000  # bytes of a value
DUMP_RECORDS, DUMP_VALUE_BYTES, DUMP_RECORDS_A_BATCH = 195_000, 1000, 16
QUICK_DUMP_RECORDS = 1000
COMPACTED = TopicPartition("compacted", 0)
COMPACTION_MB = 1000
SEGMENT_MS = 700_000_000  # more than segment.ms


def records(count: int, value_bytes: int) -> list[Record]:
    """Build records without a key, one millisecond apart."""
    value = bytes(range(32, 127)) * (value_bytes // 95 + 1)
    return [Record(None, value[:value_bytes], (), NOW_MS + index) for index in range(count)]


def encoded(count: int, value_bytes: int, base_offset: int = 0) -> bytes:
    """Encode one uncompressed batch."""
    given = records(count, value_bytes)
    return batch.encode_batch(given, base_offset=base_offset, leader_epoch=0, now_ms=NOW_MS)


def batch_of_size(size_bytes: int) -> bytes:
    """Encode a batch of one record with an exact total size."""
    data = encoded(1, size_bytes)
    return encoded(1, 2 * size_bytes - len(data))


def encode_row(value_bytes: int, calls: int) -> Row:
    """Compare encoding records to one batch, CRC included, with aiokafka's builder."""
    given = records(RECORDS_A_BATCH, value_bytes)
    plain: list[tuple[Any, ...]] = [
        (record.key, record.value, [], record.timestamp_ms) for record in given
    ]

    def ours() -> int:
        for _ in range(calls):
            batch.encode_batch(given, base_offset=0, leader_epoch=0, now_ms=NOW_MS)
        return calls * len(given)

    def peer() -> int:
        for _ in range(calls):
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
            append = builder.append
            for offset, (key, value, headers, timestamp_ms) in enumerate(plain):
                append(offset, timestamp_ms, key, value, headers)
            builder.build()
        return calls * len(plain)

    return Row(
        name=f"encode {value_bytes} B",
        unit="rec",
        ours=ours,
        peer=peer,
        peer_name="aiokafka C",
        expected=calls * len(given),
    )


def decode_row(value_bytes: int, calls: int) -> Row:
    """Compare decoding a batch, CRC checked and all five fields of each record read, with aiokafka's reader.

    Our decoder returns finished fields. aiokafka creates the numbers on access, so both sides read every field.
    """
    data = encoded(RECORDS_A_BATCH, value_bytes)

    def ours() -> int:
        seen = 0
        for _ in range(calls):
            header = batch.decode_header(data)
            if not batch.check_crc(data, 0, header):
                return -1
            found = batch.decode_records(data, header=header)
            _offset = -1
            for _offset, _timestamp_ms, _key, _value, _headers in found:
                pass
            seen += _offset + 1
        return seen

    def peer() -> int:
        seen = 0
        for _ in range(calls):
            found = MemoryRecords(data).next_batch()
            if not found.validate_crc():
                return -1
            _offset = -1
            for record in found:
                _offset, _timestamp_ms = record.offset, record.timestamp
                _key, _value, _headers = record.key, record.value, record.headers
            seen += _offset + 1
        return seen

    return Row(
        name=f"decode {value_bytes} B",
        unit="rec",
        ours=ours,
        peer=peer,
        peer_name="aiokafka C",
        expected=calls * RECORDS_A_BATCH,
    )


def crc_only(data: bytes | bytearray, size_bytes: int) -> int:
    """Compute crc32c over the same pieces, and nothing else."""
    view = memoryview(data)
    for position in range(0, len(data), size_bytes):
        crc32c(view[position : position + size_bytes])
    return len(data)


def accept_row(size_kb: int, calls: int) -> Row:
    """Compare accepting whole batches from a producer with crc32c alone: headers and CRCs are checked, offsets and
    epoch stamped in place.
    """
    size_bytes = size_kb * 1000
    body = bytearray(batch_of_size(size_bytes) * max(1, 1_000_000 // size_bytes))

    def ours() -> int:
        for _ in range(calls):
            offset = 0
            for position, header in batch.split_batches(body):
                batch.stamp(body, position, base_offset=offset, leader_epoch=3)
                offset += header.last_offset_delta + 1
        return len(body) * calls

    def peer() -> int:
        return sum(crc_only(body, size_bytes) for _ in range(calls))

    return Row(
        name=f"raw accept {size_kb} KB",
        unit="B",
        ours=ours,
        peer=peer,
        peer_name="crc32c",
        expected=len(body) * calls,
    )


def check_row(value_bytes: int, calls: int) -> Row:
    """Compare checking each record of a client's batch with aiokafka's reader, which returns the records."""
    data = encoded(RECORDS_A_BATCH, value_bytes)
    header = batch.decode_header(data)

    def ours() -> int:
        for _ in range(calls):
            if batch.check_records(data, 0, header) != header.max_timestamp:
                return -1
        return calls * RECORDS_A_BATCH

    def peer() -> int:
        return sum(len(list(MemoryRecords(data).next_batch())) for _ in range(calls))

    return Row(
        name=f"raw check {value_bytes} B",
        unit="rec",
        ours=ours,
        peer=peer,
        peer_name="aiokafka C",
        expected=calls * RECORDS_A_BATCH,
    )


def segment(batches: int, size_bytes: int) -> bytes:
    """Build consecutive batches of one size with ascending offsets."""
    buffer = bytearray(batch_of_size(size_bytes) * batches)
    for index in range(batches):
        batch.stamp(buffer, index * size_bytes, base_offset=index, leader_epoch=0)
    return bytes(buffer)


def scan_row(batches: int) -> Row:
    """Compare recovery's work on each batch, header and CRC, with crc32c alone."""
    size_bytes = 1 << 14
    data = segment(batches, size_bytes)

    def ours() -> int:
        position = 0
        while position < len(data):
            header = batch.decode_header(data, position)
            if not batch.check_crc(data, position, header):
                return -1
            position += header.size_bytes
        return position

    return Row(
        name="segment scan with CRC, 16 KB",
        unit="B",
        ours=ours,
        peer=lambda: crc_only(data, size_bytes),
        peer_name="crc32c",
        expected=len(data),
    )


def header_row(batches: int) -> Row:
    """Measure the header scan that finds a batch by its offset, against a fixed rate."""
    data = segment(batches, 200)
    return Row(
        name="header scan",
        unit="batch",
        ours=lambda: len(batch.scan_headers(data, 0, len(data))),
        reference=3e6,
        expected=batches,
        peer_name="3 M/s",
    )


def write_segment(folder: Path, count: int) -> Path:
    """Write a partition of one uncompressed segment with records of 1,000 B."""
    path = folder / "bench-0" / f"{0:020d}.log"
    path.parent.mkdir()
    size = DUMP_RECORDS_A_BATCH
    with path.open("wb") as file:
        for base_offset in range(0, count, size):
            run = min(size, count - base_offset)
            file.write(encoded(run, DUMP_VALUE_BYTES, base_offset))
    return path


def dump_row(path: Path, count: int, *, with_peer: bool) -> Row:
    """Compare `logserver dump` as a process with DumpLogSegments; both write every record to /dev/null."""
    command = [sys.executable, "-P", "-m", "logserver", "dump", str(path), "--what", "records"]
    environment = os.environ | {"PYTHONPATH": str(Path(batch.__file__).parents[3])}

    def run(arguments: list[str]) -> int:
        subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True, env=environment)
        return count

    def counted() -> int:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
        return done.stdout.count(b"\n")

    return Row(
        name=f"dump of {path.stat().st_size / 1e6:.0f} MB",
        unit="rec",
        ours=lambda: run(command),
        peer=(lambda: run([str(DUMP_LOG), str(path)])) if with_peer else None,
        peer_name="DumpLogSegments",
        count=counted,
        expected=count,
        once=True,
    )


def write_keyed_store(path: Path, megabytes: int) -> int:
    """Write a store whose topic is compacted: records of 1 KB, half of whose keys repeat. Return the bytes to clean."""
    value = records(1, LARGE)[0].value
    count = megabytes * 1000
    with open_store("kafka", path, clock=lambda: NOW_MS) as store:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
        store.create_topic(COMPACTED.topic, 1, configs)
        dice = random.Random(count)
        for start in range(0, count, DUMP_RECORDS_A_BATCH):
            keys = [b"key-%010d" % dice.randrange(count // 2) for _ in range(DUMP_RECORDS_A_BATCH)]
            store.append(COMPACTED, [Record(key, value, (), NOW_MS + start) for key in keys])
        store.append(COMPACTED, [Record(b"end", value, (), NOW_MS + SEGMENT_MS)])  # ends a segment
    logs = sorted((path / str(COMPACTED)).glob("*.log"))
    return sum(log.stat().st_size for log in logs[:-1])


def compaction_row(path: Path, megabytes: int) -> Row:
    """Measure the cleaning of a log in which every record is dirty, in processor time: keys, filter, write."""
    size_bytes = write_keyed_store(path, megabytes)

    def ours() -> Turn:
        copy = path.with_name("cleaned")
        shutil.copytree(path, copy)
        with open_store("kafka", copy, clock=lambda: NOW_MS) as store:
            assert isinstance(store, SupportsCompaction)
            begin_s = time.process_time()
            report = store.compact(NOW_MS)
            seconds = time.process_time() - begin_s
        shutil.rmtree(copy)
        return Turn(report.bytes_read, seconds)

    return Row(
        name="compaction of 1 KB records",
        unit="B",
        ours=ours,
        reference=100e6,
        expected=size_bytes,
        peer_name="100 MB/s",
    )


def all_rows(folder: Path, *, quick: bool, with_peer: bool) -> Iterator[Row]:
    """Yield every row. The file of the last row is written before it is yielded."""
    calls = 1 if quick else 100
    batches = 64 if quick else 1024
    for make in (encode_row, decode_row):
        yield from (make(size, calls) for size in (SMALL, LARGE))
    yield from (accept_row(size_kb, calls) for size_kb in (14, 111))
    yield from (check_row(size, calls) for size in (SMALL, LARGE))
    yield scan_row(batches)
    yield header_row(batches * 10)
    yield compaction_row(folder / "compaction", 1 if quick else COMPACTION_MB)
    count = QUICK_DUMP_RECORDS if quick else DUMP_RECORDS
    yield dump_row(write_segment(folder, count), count, with_peer=with_peer)


def main() -> int:
    """Measure every selected row and report."""
    given = parser(
        "the Kafka codecs against their yardsticks", "`dump` without the real Kafka"
    ).parse_args()
    with_peer = not (given.quick or given.no_java)
    if with_peer and given.only in "dump" and shutil.which("java") is None:
        sys.exit("bench_codecs: `dump` needs Java for Kafka's own tool, or --no-java")
    compiled = not batch.__file__.endswith(".py")
    bench = Bench(name=CODECS, compiled=compiled, quick=given.quick, repeats=given.repeats)
    with tempfile.TemporaryDirectory() as folder:
        rows = all_rows(Path(folder), quick=given.quick, with_peer=with_peer)
        return run(bench, rows, given, versions("crc32c", "aiokafka", "msgspec"))
