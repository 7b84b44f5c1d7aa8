"""Compressed blocks in the framing of other producers: the real Kafka and we read the same from each block."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard

import storage
from storage.errors import Corrupt
from storage.kafka.format.batch import HEADER_SIZE, decode_header, encode_batch, seal
from storage.kafka.format.compression import CODECS, compress
from storage.model import Record, TopicPartition
from tests.interop import peers

pytestmark = pytest.mark.java

COUNT = 40
NOW_MS = 1_700_000_000_000
PLAIN = encode_batch(
    [Record(b"k%d" % index, b"value %d " % index * 50) for index in range(COUNT)],
    base_offset=0,
    leader_epoch=0,
    now_ms=NOW_MS,
)
CONTENT = PLAIN[HEADER_SIZE:]
HALVES = (CONTENT[:9_000], CONTENT[9_000:])
GZIP, SNAPPY, LZ4, ZSTD = (compress(codec, CONTENT) for codec in range(1, 5))
MORE = {name: compress(codec, b"more") for codec, name in enumerate(CODECS)}
SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"

READ = {
    "gzip": {
        "members": b"".join(map(gzip.compress, HALVES)),
        "empty-members": gzip.compress(b"") + GZIP + gzip.compress(b""),
        "zeros": GZIP + bytes(4),
        "short": GZIP + MORE["gzip"][:18],
        "junk": GZIP + b"junk" * 100,
        "other-method": GZIP + b"\x1f\x8b\x09" + bytes(40),
    },
    "snappy": {
        "bare": bytes(cramjam.snappy.compress_raw(CONTENT)),
        "streams": b"".join(compress(2, half) for half in HALVES),
        "three-bytes": SNAPPY + bytes(3),
    },
    "lz4": {
        "junk": LZ4 + b"junk",
        "more": LZ4 + MORE["lz4"],
        "flags": lz4.frame.compress(
            CONTENT, block_linked=False, content_checksum=True, block_checksum=True
        ),
    },
    "zstd": {
        "frames": b"".join(map(zstandard.compress, HALVES)),
        "skippable": SKIPPABLE + ZSTD + SKIPPABLE,
        "begun": ZSTD + ZSTD[:5],
    },
}
REFUSED = {
    "gzip": {
        "cut-member": GZIP + MORE["gzip"][:-1],
        "more": GZIP + MORE["gzip"],
        "wrong-trailer": GZIP[:-8] + bytes(8),
    },
    "snappy": {
        "empty-chunk": SNAPPY + bytes(4),
        "official": bytes(cramjam.snappy.compress(CONTENT)),
    },
    "lz4": {
        "frames": b"".join(compress(3, half) for half in HALVES),
        "skippable": SKIPPABLE + LZ4,
        "cut": LZ4[:-1],
    },
    "zstd": {"zero": ZSTD + b"\0", "junk": ZSTD + b"junkjunk", "more": ZSTD + MORE["zstd"]},
}


def test_the_same_blocks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "store"
    expected = {
        f"{codec}-{name}": readable
        for cases, readable in ((READ, True), (REFUSED, False))
        for codec, named in cases.items()
        for name in named
    }
    with storage.open_store("kafka", path) as store:
        assert isinstance(store, storage.contract.SupportsBatchBytes)
        for cases in (READ, REFUSED):
            for codec, named in cases.items():
                for name, block in named.items():
                    store.create_topic(f"{codec}-{name}")
                    store.append_batches(
                        TopicPartition(f"{codec}-{name}", 0), batch(codec, block), keep_offsets=True
                    )
        mine = {topic: read(store, TopicPartition(topic, 0)) for topic in expected}
    answer = peers.run_kafka_opens(path, "--direct", check=False)
    real = {topic: len(answer.records.get((topic, 0), [])) for topic in expected}
    assert real == mine == {topic: COUNT if ok else 0 for topic, ok in expected.items()}


def batch(codec: str, block: bytes) -> bytes:
    """Return the batch with `block` in place of its records."""
    header = decode_header(PLAIN)._replace(attributes=CODECS.index(codec))
    return seal(header, block) + block


def read(store: storage.LogStore, partition: TopicPartition) -> int:
    """Return the number of records read; 0 if the block is refused."""
    try:
        return len(store.read(partition, 0).records)
    except Corrupt:
        return 0
