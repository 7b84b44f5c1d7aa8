"""The five codecs of a batch's records, in exactly the framing that Kafka's Java client writes.

Owns the compression of one block of records, the choice of its reader, and snappy's framing (the other readers are in
`storage.coding.decompression`); must not know the content of a block. Content that would exceed the caller's limit is
rejected before memory is allocated for it.

    codec     framing   note
    0 none    -         as it is
    1 gzip    one gzip member      header 1f 8b 08 00, time 0, XFL 0, OS ff (zlib itself would write another OS)
    2 snappy  xerial stream        82 "SNAPPY" 00, i32 version 1, i32 compatible 1, then chunks: i32 length and a raw
                                   block of 32,768 bytes (the last: of the rest)
    3 lz4     one lz4 frame        04224d18 60 40 82: independent blocks of 64 KB, no checksums, no content size
    4 zstd    one zstd frame       no content size, no checksum

The reader also accepts, as the Java client does:

- a raw snappy block without the stream;
- a second snappy stream after the first, chunks of other sizes, up to 3 bytes after the last chunk;
- any flags of a member or frame, and the data after it that `storage.coding.decompression` lists.

Sources: SnappyOutputStream and SnappyInputStream of snappy-java, Lz4BlockOutputStream and the compression classes of
Kafka's clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Final

import cramjam
import lz4.frame
import zstandard

from storage.coding.decompression import (
    corrupt,
    damaged,
    over_limit,
    read_first_lz4,
    read_gzip,
    read_zstd,
)
from storage.errors import Corrupt, InvalidArgument

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs' names; the index is the number in a batch's attributes."""

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
GZIP_TRAILER: Final = Struct(
    "<"
    "I"  # CRC-32 of the content
    "I"  # its size modulo 2^32
)

LZ4_FLAGS: Final = 4
"""The position of a frame's flags, after its magic."""
LZ4_INDEPENDENT: Final = 0x20
"""The flag of blocks that do not refer to earlier blocks."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = Struct(
    ">"
    "8s"  # magic
    "i"  # version
    "i"  # lowest version that can read the stream
)
XERIAL_LENGTH: Final = Struct(">i")
XERIAL_CHUNK_BYTES: Final = 32768


def codec_id(name: str) -> int:
    """Return the number of a codec. Raises InvalidArgument for a name not among `CODECS`."""
    try:
        return CODECS.index(name)
    except ValueError:
        raise InvalidArgument(
            f"compression {name!r} is not one of {', '.join(CODECS)}", field="compression"
        ) from None


def compress(codec: int, data: bytes) -> bytes:
    """Compress `data` to one block, at the codec's usual level. Raises InvalidArgument for an unknown codec."""
    if codec == 0:
        return data
    writer = _WRITERS.get(codec)
    if writer is None:
        raise InvalidArgument(f"codec {codec} is not one of 0 to 4", field="codec")
    return writer(data)


def decompress(codec: int, data: bytes, limit_bytes: int) -> bytes:
    """Return the content of one block of `codec`, at most `limit_bytes`.

    Raises Corrupt for damaged or incomplete data, for an unknown codec, and for content over the limit. No more than
    the limit is decompressed.
    """
    if codec == 0:
        return data
    reader = _READERS.get(codec)
    if reader is None:
        raise Corrupt(
            f"codec {codec} is unknown", kind="codec", expected="0 to 4", found=f"{codec}"
        )
    return reader(data, limit_bytes)


def check_for_clients(codec: int, data: bytes, position: int) -> None:
    """Raise Corrupt for a block at `position` that `decompress` reads but Kafka's clients reject: linked lz4 blocks.

    Source: Lz4BlockOutputStream.FLG, where `validate` rejects dependent blocks. Many libraries link them by default.
    """
    if codec == LZ4 and not data[position + LZ4_FLAGS] & LZ4_INDEPENDENT:
        raise corrupt("lz4", "its blocks are linked, which Kafka's clients do not read")


def _write_gzip(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    trailer = GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join([GZIP_HEADER, deflate.compress(data), deflate.flush(), trailer])


def _write_snappy(data: bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(data), XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_CHUNK_BYTES]))
        parts.append(XERIAL_LENGTH.pack(len(chunk)))
        parts.append(chunk)
    return b"".join(parts)


def _read_snappy(data: bytes, limit_bytes: int) -> bytes:
    try:
        if data.startswith(XERIAL_MAGIC):
            return _read_xerial(data, limit_bytes)
        return _read_snappy_block(data, limit_bytes)
    except (cramjam.DecompressionError, StructError) as cause:
        raise damaged("snappy", cause) from cause


def _read_xerial(data: bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    read_bytes = 0
    view = memoryview(data)
    position = 0
    while len(data) - position >= XERIAL_LENGTH.size:
        if data.startswith(XERIAL_MAGIC, position):
            _check_xerial_version(data, position)
            position += XERIAL_HEADER.size
            continue
        (length,) = XERIAL_LENGTH.unpack_from(data, position)
        position += XERIAL_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise corrupt("snappy", f"a chunk has the length {length}")
        block = view[position : position + length]
        parts.append(_read_snappy_block(block, limit_bytes, read_bytes=read_bytes))
        read_bytes += len(parts[-1])
        position += length
    return b"".join(parts)


def _check_xerial_version(data: bytes, position: int) -> None:
    _, version, _ = XERIAL_HEADER.unpack_from(data, position)
    if version < 1:
        raise corrupt("snappy", f"the stream has version {version}")


def _read_snappy_block(
    block: bytes | memoryview, limit_bytes: int, *, read_bytes: int = 0
) -> bytes:
    """Decompress one raw block, after a check of its size. `read_bytes`: the size of the blocks before it."""
    if read_bytes + cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise over_limit("snappy", limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _write_lz4(data: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return frame


def _write_zstd(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False)
    return compressor.compress(data)


_WRITERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    GZIP: _write_gzip,
    SNAPPY: _write_snappy,
    LZ4: _write_lz4,
    ZSTD: _write_zstd,
}
_READERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    GZIP: read_gzip,
    SNAPPY: _read_snappy,
    LZ4: read_first_lz4,
    ZSTD: read_zstd,
}
