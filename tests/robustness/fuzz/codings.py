"""Fuzz targets for the decoders of both backends: numbers, hashes and bounded decompression."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial

from storage.coding import cursor, hashes, varint
from storage.kafka.format import compression
from storage.rocketmq.format import body
from tests.robustness.fuzz.target import LIMIT_BYTES, Check, Target, text_of, tried

CONTENTS = (b"", b"a", b"text, text and more text " * 40, bytes(70_000))
ZERO_MEGABYTES = 3


def check_varints(data: bytes) -> None:
    """Check that a decoded number is encoded in no more bytes, and decodes to the same value."""
    signed = tried(varint.decode_varint, data, 0)
    plain = tried(varint.decode_uvarint, data, 0)
    for found, encode in ((signed, varint.encode_varint), (plain, varint.encode_uvarint)):
        if found is not None:
            value, following = found
            shortest = encode(value)
            assert 0 < len(shortest) <= following <= len(data)
            assert len(shortest) < following or data.startswith(shortest)
    blob = tried(cursor.decode_blob, data, 0, len(data))
    if blob is not None:
        assert blob[1] <= len(data)
        assert blob[0] is None or data[: blob[1]].endswith(blob[0])


def check_hashes(data: bytes) -> None:
    """Check that Java's hash equals the sum that defines it; both hashes are 32-bit numbers."""
    text = text_of(data)
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) % (1 << 32)
    assert hashes.java_hash(text) % (1 << 32) == hashed
    assert -(1 << 31) <= hashes.murmur2(data) < 1 << 31
    assert hashes.partition_for_key(data, 7) in range(7)


def check_kafka_codec(codec: int, data: bytes) -> None:
    """Check that the output stays within the limit, and survives a compression and decompression."""
    content = tried(compression.decompress, codec, data, LIMIT_BYTES)
    if content is not None:
        assert len(content) <= LIMIT_BYTES
        again = compression.compress(codec, content)
        assert compression.decompress(codec, again, LIMIT_BYTES) == content


def check_body_codec(data: bytes) -> None:
    """Check the same for the codec in the sys flag; without a codec the body must be unchanged."""
    sys_flag = data[0] << 8 | 1 if data else 0
    content = tried(body.decompress, data[1:], sys_flag, LIMIT_BYTES)
    assert content is None or len(content) <= max(LIMIT_BYTES, len(data))


def kafka_seeds(codec: int) -> Sequence[bytes]:
    """Return whole streams, a stream that expands over the limit, two joined streams and a truncated stream."""
    whole = [compression.compress(codec, content) for content in CONTENTS]
    bomb = compression.compress(codec, bytes(ZERO_MEGABYTES * LIMIT_BYTES))
    return [*whole, bomb, whole[1] + whole[2], whole[2][:-2]]


def body_seeds() -> Sequence[bytes]:
    """Return the streams of each codec after the codec's number."""
    zlibs = [zlib.compress(content) for content in CONTENTS]
    others = [compression.compress(codec, CONTENTS[2]) for codec in (3, 4)]
    numbered = zip((1, 2), others, strict=True)
    return [b"\0" + zlibs[1], b"\3" + zlibs[2], *(bytes([n]) + data for n, data in numbered)]


def numbers() -> Sequence[bytes]:
    """Return numbers of every encoded length, and blobs."""
    edges = [1 << bits for bits in range(0, 64, 7)]
    return [varint.encode_uvarint(edge) for edge in edges] + [b"\6abc", b"\1", b"\xff" * 10]


def texts() -> Sequence[bytes]:
    """Return texts with one byte per UTF-16 unit, with more, and long ones."""
    return [b"key", "ключ\U0001f680".encode(), b"x" * 700, b"\xff\xfe", bytes(9)]


NUMBERS = Target(
    "numbers", (Check("varints", numbers, check_varints), Check("hashes", texts, check_hashes))
)
CODECS = Target(
    "codecs",
    (
        *(
            Check(name, partial(kafka_seeds, codec), partial(check_kafka_codec, codec), 150)
            for codec, name in enumerate(compression.CODECS)
            if codec
        ),
        Check("rocketmq-body", body_seeds, check_body_codec),
    ),
    share=2,
)
