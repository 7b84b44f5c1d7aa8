"""The five codecs of a batch's records, in the very framing that Kafka's Java client writes.

Owns compressing and decompressing one block of records; must not know what is in it. Decompressing is bounded: what
would grow over the caller's limit is refused before it is made.

    codec     framing   note
    0 none    -         as it is
    1 gzip    one gzip member      header 1f 8b 08 00, time 0, XFL 0, OS ff (zlib itself would write another OS)
    2 snappy  xerial stream        82 "SNAPPY" 00, i32 version 1, i32 compatible 1, then chunks: i32 length and a raw
                                   block of 32,768 bytes (the last: of what is left)
    3 lz4     one lz4 frame        04224d18 60 40 82: independent blocks of 64 KB, no checksums, no content size
    4 zstd    one zstd frame       no content size, no checksum

Read beside that: a raw snappy block without the stream, a stream begun anew behind another, chunks of other sizes, and
any flags of the one gzip member, lz4 frame or zstd frame, behind which nothing may follow. Sources: SnappyOutputStream
of snappy-java, Lz4BlockOutputStream and the compression classes of Kafka's clients.
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

from storage.errors import Corrupt, InvalidArgument

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs' names; the index is the number in a batch's attributes."""

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
GZIP_TRAILER: Final = Struct(
    "<"
    "I"  # CRC-32 of the content
    "I"  # its size modulo 2^32
)

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = Struct(
    ">"
    "8s"  # magic
    "i"  # version
    "i"  # lowest version whose reader can read it
)
XERIAL_LENGTH: Final = Struct(">i")
XERIAL_CHUNK_BYTES: Final = 32768

ZSTD_BLOCK_HEADER_BYTES: Final = 3
ZSTD_RLE_BLOCK: Final = 1
ZSTD_CHECKSUM_BYTES: Final = 4


def codec_id(name: str) -> int:
    """The number of a codec's name. Raises InvalidArgument for a name not among `CODECS`."""
    try:
        return CODECS.index(name)
    except ValueError:
        raise InvalidArgument(
            f"compression {name!r} is not one of {', '.join(CODECS)}", field="compression"
        ) from None


def compress(codec: int, data: bytes) -> bytes:
    """`data` as one block of `codec`, at the codec's usual level. Raises InvalidArgument for an unknown codec."""
    if codec == 0:
        return data
    writer = _WRITERS.get(codec)
    if writer is None:
        raise InvalidArgument(f"codec {codec} is not one of 0 to 4", field="codec")
    return writer(data)


def decompress(codec: int, data: bytes, limit_bytes: int) -> bytes:
    """The content of one block of `codec`, at most `limit_bytes` of it.

    Raises Corrupt for damaged or incomplete data, for an unknown codec, and for content over the limit, without making
    more of it than the limit.
    """
    if codec == 0:
        return data
    reader = _READERS.get(codec)
    if reader is None:
        raise Corrupt(
            f"codec {codec} is unknown", kind="codec", expected="0 to 4", found=f"{codec}"
        )
    try:
        return reader(data, limit_bytes)
    except (
        zlib.error,
        cramjam.DecompressionError,
        RuntimeError,
        zstandard.ZstdError,
        StructError,
    ) as cause:
        raise _corrupt(codec, f"the data is damaged: {cause}") from cause


def _corrupt(codec: int, what: str) -> Corrupt:
    return Corrupt(f"{CODECS[codec]}: {what}", kind=CODECS[codec])


def _over_limit(codec: int, limit_bytes: int) -> Corrupt:
    return Corrupt(
        f"{CODECS[codec]}: the content is over the limit of {limit_bytes} bytes",
        kind=CODECS[codec],
        expected=f"at most {limit_bytes} bytes",
        found="more",
    )


def _write_gzip(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    trailer = GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join([GZIP_HEADER, deflate.compress(data), deflate.flush(), trailer])


def _read_gzip(data: bytes, limit_bytes: int) -> bytes:
    inflate = zlib.decompressobj(wbits=GZIP_WBITS)
    content = inflate.decompress(data, limit_bytes + 1)
    if len(content) > limit_bytes:
        raise _over_limit(GZIP, limit_bytes)
    _check_ended(GZIP, ended=inflate.eof, left_over=inflate.unused_data)
    return content


def _check_ended(codec: int, *, ended: bool, left_over: bytes | None) -> None:
    if not ended:
        raise _corrupt(codec, "the data ends too early")
    if left_over:
        raise _corrupt(codec, f"{len(left_over)} bytes follow the end")


def _write_snappy(data: bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(data), XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_CHUNK_BYTES]))
        parts.append(XERIAL_LENGTH.pack(len(chunk)))
        parts.append(chunk)
    return b"".join(parts)


def _read_snappy(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _read_snappy_block(data, limit_bytes)
    parts: list[bytes] = []
    read_bytes = 0
    view = memoryview(data)
    position = 0
    while position < len(data):
        if data.startswith(XERIAL_MAGIC, position):
            _check_xerial_version(data, position)
            position += XERIAL_HEADER.size
            continue
        (length,) = XERIAL_LENGTH.unpack_from(data, position)
        position += XERIAL_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise _corrupt(SNAPPY, f"a chunk has the length {length}")
        block = view[position : position + length]
        parts.append(_read_snappy_block(block, limit_bytes, read_bytes=read_bytes))
        read_bytes += len(parts[-1])
        position += length
    return b"".join(parts)


def _check_xerial_version(data: bytes, position: int) -> None:
    _, version, _ = XERIAL_HEADER.unpack_from(data, position)
    if version < 1:
        raise _corrupt(SNAPPY, f"the stream has version {version}")


def _read_snappy_block(
    block: bytes | memoryview, limit_bytes: int, *, read_bytes: int = 0
) -> bytes:
    """One raw block, of which the size is known before it is made; `read_bytes` came before it."""
    if read_bytes + cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise _over_limit(SNAPPY, limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _write_lz4(data: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return frame


def _read_lz4(data: bytes, limit_bytes: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    content: bytes = frame.decompress(data, max_length=limit_bytes + 1)
    if len(content) > limit_bytes:
        raise _over_limit(LZ4, limit_bytes)
    _check_ended(LZ4, ended=frame.eof, left_over=frame.unused_data)
    return content


def _write_zstd(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False)
    return compressor.compress(data)


def _read_zstd(data: bytes, limit_bytes: int) -> bytes:
    frame = zstandard.get_frame_parameters(data)
    end = _zstd_frame_end(data, has_checksum=frame.has_checksum)
    _check_ended(ZSTD, ended=end <= len(data), left_over=data[end:])
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        content = reader.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise _over_limit(ZSTD, limit_bytes)
    return content


def _zstd_frame_end(data: bytes, *, has_checksum: bool) -> int:
    """Where the frame ends, by walking its blocks: the library tells neither a cut frame nor bytes behind one."""
    position: int = zstandard.frame_header_size(data)
    last = False
    while not last and position < len(data):
        header = int.from_bytes(data[position : position + ZSTD_BLOCK_HEADER_BYTES], "little")
        last = header & 1 == 1
        size_bytes = 1 if header >> 1 & 3 == ZSTD_RLE_BLOCK else header >> 3
        position += ZSTD_BLOCK_HEADER_BYTES + size_bytes
    if not last:
        return len(data) + 1
    return position + ZSTD_CHECKSUM_BYTES if has_checksum else position


_WRITERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    GZIP: _write_gzip,
    SNAPPY: _write_snappy,
    LZ4: _write_lz4,
    ZSTD: _write_zstd,
}
_READERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    GZIP: _read_gzip,
    SNAPPY: _read_snappy,
    LZ4: _read_lz4,
    ZSTD: _read_zstd,
}
