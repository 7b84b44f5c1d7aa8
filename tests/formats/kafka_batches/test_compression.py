"""The five codecs: the framing of the Java client, forms of other writers, damage, and content over a limit."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, InvalidArgument
from storage.kafka.format.compression import CODECS, codec_id, compress, decompress

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
LIMIT_BYTES = 1 << 24
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)

TEXT = b"the same again and again, " * 4_000
PARTS = [TEXT[:50_000], TEXT[50_000:50_001], TEXT[50_001:]]
SKIPPABLE = struct.pack("<II", 0x184D2A53, 4) + b"skip"
CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "text over several blocks": TEXT,
    "zeros": bytes(1_000_000),
    "no pattern": zlib.compress(bytes(range(256)) * 300, 9) * 40,
    "a whole snappy chunk": bytes(32_768),
    "a byte more": bytes(32_769),
}


def chunk(data: bytes) -> bytes:
    """Return one chunk of a xerial stream."""
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block


def xerial_chunks(data: bytes) -> list[int]:
    """Return the uncompressed sizes of a xerial stream's chunks."""
    position, sizes = len(XERIAL), []
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        block = data[position + 4 : position + 4 + length]
        sizes.append(cramjam.snappy.decompress_raw_len(block))
        position += 4 + length
    return sizes


def test_names() -> None:
    assert [codec_id(name) for name in CODECS] == [0, 1, 2, 3, 4]
    for name in ("", "GZIP", "brotli", "producer"):
        with pytest.raises(InvalidArgument) as caught:
            codec_id(name)
        assert caught.value.facts() == {"field": "compression"}


@pytest.mark.parametrize("what", CONTENTS)
@pytest.mark.parametrize("codec", range(5))
def test_what_was_compressed_comes_back(codec: int, what: str) -> None:
    content = CONTENTS[what]
    assert decompress(codec, compress(codec, content), LIMIT_BYTES) == content
    assert decompress(codec, compress(codec, content), len(content)) == content


@given(st.binary(max_size=2_000), st.sampled_from(COMPRESSING))
def test_any_bytes_come_back(content: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, content), LIMIT_BYTES) == content


def test_gzip_header_and_trailer() -> None:
    data = compress(GZIP, TEXT)
    assert data[:10].hex() == "1f8b08 00 00000000 00 ff".replace(" ", "")
    assert data[-8:] == struct.pack("<II", zlib.crc32(TEXT), len(TEXT))
    assert gzip.decompress(data) == TEXT


@pytest.mark.parametrize("size", [0, 1, 32_767, 32_768, 32_769, 100_000])
def test_snappy_is_a_xerial_stream(size: int) -> None:
    data = compress(SNAPPY, bytes(size))
    assert data.startswith(XERIAL)
    sizes = xerial_chunks(data)
    assert sum(sizes) == size
    assert set(sizes[:-1]) <= {32_768}


def test_lz4_frame() -> None:
    data = compress(LZ4, TEXT)
    assert data[:7].hex() == "04224d18604082"
    assert data[-4:] == bytes(4)
    info = lz4.frame.get_frame_info(data)
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]
    assert (info["block_size"], info["content_size"]) == (65_536, 0)


def test_zstd_frame() -> None:
    data = compress(ZSTD, TEXT)
    parameters = zstandard.get_frame_parameters(data)
    assert data[:4].hex() == "28b52ffd"
    assert parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert not parameters.has_checksum
    assert parameters.dict_id == 0


READABLE = {
    "gzip with another OS and a time": (GZIP, gzip.compress(TEXT, mtime=5)),
    "gzip, best": (GZIP, gzip.compress(TEXT, 9)),
    "gzip, stored": (GZIP, gzip.compress(TEXT, 0)),
    "snappy without a stream": (SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "snappy in one chunk": (SNAPPY, XERIAL + chunk(TEXT)),
    "snappy in small chunks": (
        SNAPPY,
        XERIAL + b"".join(chunk(TEXT[at : at + 999]) for at in range(0, len(TEXT), 999)),
    ),
    "snappy, a stream after a stream": (
        SNAPPY,
        XERIAL + chunk(TEXT[:50_000]) + XERIAL + chunk(TEXT[50_000:]),
    ),
    "snappy of a later version": (
        SNAPPY,
        XERIAL[:8] + struct.pack(">ii", 2, 1) + chunk(TEXT),
    ),
    "lz4, linked blocks": (LZ4, lz4.frame.compress(TEXT, block_linked=True)),
    "lz4, all checksums and the size": (
        LZ4,
        lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, store_size=True),
    ),
    "lz4, high compression, 4 MB blocks": (
        LZ4,
        lz4.frame.compress(TEXT, compression_level=9, block_size=7),
    ),
    "zstd with size and checksum": (
        ZSTD,
        zstandard.ZstdCompressor(write_content_size=True, write_checksum=True).compress(TEXT),
    ),
    "zstd with a checksum only": (
        ZSTD,
        zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT),
    ),
    "gzip in members": (GZIP, b"".join(gzip.compress(part) for part in PARTS)),
    "gzip, an empty member in front and one after it": (
        GZIP,
        gzip.compress(b"") + gzip.compress(TEXT) + gzip.compress(b""),
    ),
    "gzip and zeros": (GZIP, gzip.compress(TEXT) + bytes(4)),
    "gzip and the size of a header and a trailer": (
        GZIP,
        gzip.compress(TEXT) + gzip.compress(b"")[:18],
    ),
    "gzip and more that is no member": (GZIP, gzip.compress(TEXT) + b"junk" * 9_000),
    "gzip and a member of another method": (
        GZIP,
        gzip.compress(TEXT) + b"\x1f\x8b\x09" + bytes(40),
    ),
    "snappy and three bytes": (SNAPPY, XERIAL + chunk(TEXT) + bytes(3)),
    "lz4 and junk": (LZ4, compress(LZ4, TEXT) + b"junk"),
    "lz4, the first of two frames": (LZ4, compress(LZ4, TEXT) + compress(LZ4, b"more")),
    "zstd in frames": (ZSTD, b"".join(zstandard.compress(part) for part in PARTS)),
    "zstd in frames without sizes": (ZSTD, b"".join(compress(ZSTD, part) for part in PARTS)),
    "zstd, a skippable frame in front": (ZSTD, SKIPPABLE + compress(ZSTD, TEXT)),
    "zstd, skippable frames all about": (
        ZSTD,
        b"".join([SKIPPABLE * 2, *(compress(ZSTD, part) + SKIPPABLE for part in PARTS)]),
    ),
    "zstd and an empty frame": (ZSTD, compress(ZSTD, TEXT) + compress(ZSTD, b"")),
    "zstd and the beginning of a frame": (ZSTD, compress(ZSTD, TEXT) + compress(ZSTD, TEXT)[:5]),
    "zstd, the highest level": (
        ZSTD,
        zstandard.ZstdCompressor(level=22, write_content_size=False).compress(TEXT),
    ),
}


@pytest.mark.parametrize("what", READABLE)
def test_other_writers_forms_are_read(what: str) -> None:
    codec, data = READABLE[what]
    assert decompress(codec, data, LIMIT_BYTES) == TEXT
    assert decompress(codec, data, len(TEXT)) == TEXT
    with pytest.raises(Corrupt):
        decompress(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_cut_is_corrupt(codec: int) -> None:
    data = compress(codec, b"some text, some more text" + bytes(range(100)))
    whole_streams = set(range(len(XERIAL), len(XERIAL) + 4)) if codec == SNAPPY else set()
    for cut in set(range(len(data))) - whole_streams:
        with pytest.raises(Corrupt):
            decompress(codec, data[:cut], LIMIT_BYTES)


MEMBER = gzip.compress(b"more")
UNREADABLE_BEHIND = {
    "a gzip member that is cut": (GZIP, MEMBER[:-1]),
    "a gzip member with a wrong CRC": (GZIP, MEMBER[:-8] + bytes(8)),
    "the header of a gzip member and junk": (GZIP, MEMBER[:10] + b"\xff" * 20),
    "an empty snappy chunk": (SNAPPY, bytes(4)),
    "a snappy chunk that is cut": (SNAPPY, chunk(b"more")[:-1]),
    "a snappy stream of version 0": (SNAPPY, XERIAL[:8] + bytes(8)),
    "a zero after zstd": (ZSTD, b"\0"),
    "junk after zstd": (ZSTD, b"junkjunk"),
    "a zstd frame with a flipped bit": (ZSTD, b"\x29" + compress(ZSTD, b"more")[1:]),
}


@pytest.mark.parametrize(("codec", "tail"), UNREADABLE_BEHIND.values(), ids=UNREADABLE_BEHIND)
def test_what_may_not_follow(codec: int, tail: bytes) -> None:
    """Bytes that Kafka refuses after a complete member, stream or frame are refused."""
    with pytest.raises(Corrupt):
        decompress(codec, compress(codec, TEXT) + tail, LIMIT_BYTES)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_the_first_of_several_must_be_whole(codec: int) -> None:
    data = compress(codec, TEXT)
    with pytest.raises(Corrupt):
        decompress(codec, data[:-1] + data, LIMIT_BYTES)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_limit_holds_for_all_members_together(codec: int) -> None:
    data = compress(codec, bytes(600)) * 2
    assert len(decompress(codec, data, 1_200)) == 1_200
    for limit_bytes in (1_199, 600, 599):
        with pytest.raises(Corrupt, match=f"over the limit of {limit_bytes} bytes"):
            decompress(codec, data, limit_bytes)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_bomb_behind_small_members_takes_no_more_memory_than_the_limit(codec: int) -> None:
    data = compress(codec, b"x") * 2_000 + compress(codec, bytes(1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="over the limit"):
            decompress(codec, data, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 << 20


@given(st.data())
@pytest.mark.parametrize("codec", COMPRESSING)
def test_flipped_bits_are_corrupt_or_content(codec: int, data: st.DataObject) -> None:
    """Flipped bits raise no other error. Some framings carry no checksum, because the batch's CRC covers them."""
    block = bytearray(compress(codec, TEXT[:3_000] + bytes(range(256))))
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, len(block) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decompress(codec, bytes(block), 100_000)
    except Corrupt:
        return
    assert len(found) <= 100_000


@given(st.binary(max_size=60), st.sampled_from(COMPRESSING), st.booleans())
def test_any_bytes_are_content_or_corrupt(data: bytes, codec: int, with_magic: bool) -> None:
    magic = {
        GZIP: b"\x1f\x8b\x08",
        SNAPPY: XERIAL,
        LZ4: b"\x04\x22\x4d\x18",
        ZSTD: b"\x28\xb5\x2f\xfd",
    }
    try:
        found = decompress(codec, (magic[codec] if with_magic else b"") + data, 10_000)
    except Corrupt:
        return
    assert len(found) <= 10_000


@pytest.mark.parametrize(
    "data",
    [
        XERIAL + struct.pack(">i", 0),
        XERIAL + struct.pack(">i", -1) + b"x",
        XERIAL + struct.pack(">i", 100) + b"x",
        XERIAL + struct.pack(">i", 1) + b"\xff",
        XERIAL[:10],
        XERIAL[:8] + struct.pack(">ii", 0, 0) + chunk(TEXT),
        XERIAL[:8] + struct.pack(">ii", -1, 1) + chunk(TEXT),
        b"",
    ],
)
def test_broken_xerial_streams(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decompress(SNAPPY, data, LIMIT_BYTES)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 100])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(Corrupt):
        decompress(codec, b"", LIMIT_BYTES)
    with pytest.raises(InvalidArgument):
        compress(codec, b"")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: int) -> None:
    """64 MB of zeros against 1 MB. Only memory of Python's allocators is measured; the libraries bound their own."""
    bomb = compress(codec, bytes(1 << 26))
    assert len(bomb) < 4 << 20
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="over the limit of 1048576 bytes"):
            decompress(codec, bomb, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 << 20


def test_a_snappy_block_that_lies_about_its_size() -> None:
    """The size before the block (2^32 - 1 here) is compared with the limit before anything is allocated."""
    for data in (
        b"\xff\xff\xff\xff\x0f",
        XERIAL + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\0",
    ):
        with pytest.raises(Corrupt, match="over the limit"):
            decompress(SNAPPY, data, LIMIT_BYTES)


def test_a_limit_holds_for_all_chunks_together() -> None:
    data = XERIAL + chunk(bytes(600)) * 2
    assert len(decompress(SNAPPY, data, 1_200)) == 1_200
    with pytest.raises(Corrupt):
        decompress(SNAPPY, data, 1_199)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_limit_of_nothing(codec: int) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(Corrupt):
        decompress(codec, compress(codec, b"x"), 0)
