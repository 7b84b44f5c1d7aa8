"""A message's body and its compression.

Owns the mapping from sys flag to codec; must not know the record around the body. Clients compress, the store keeps
the bytes it receives: `compress` is for a producer in this program. Sources: MessageSysFlag, CompressionType and
the Compressor classes of RocketMQ. The whole body is one stream:

    position  bytes  field  note
    0         n      body   sys flag 0x01 not set: as it is; set, by the bits 0x700:
                            0 zlib stream (clients before 5.0), 1 lz4 frame, 2 zstd frame, 3 zlib stream
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import lz4.frame
import zstandard

from storage.coding.decompression import read_lz4, read_zlib, read_zstd
from storage.errors import Corrupt, InvalidArgument
from storage.rocketmq.format.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
)

LZ4: Final = 1
ZSTD: Final = 2
ZLIB: Final = 3
ZLIB_UNNAMED: Final = 0

CODECS: Final = {ZLIB_UNNAMED: "zlib", LZ4: "lz4", ZSTD: "zstd", ZLIB: "zlib"}
"""The names of the codecs by their bits in the sys flag."""
COMPRESSIONS: Final = ("none", "zlib", "lz4", "zstd")
"""The names accepted by `compress`."""

COMPRESS_FROM_BYTES: Final = 4096
"""A client's producer compresses bodies larger than this."""
LEVEL: Final = 5
"""The client's compression level for zlib and zstd."""


def compress(body: bytes, compression: str | None) -> tuple[bytes, int]:
    """Return (body to be stored, its sys flag), as a client's producer does, which does not compress small bodies.

    Raises InvalidArgument for a name not in COMPRESSIONS.
    """
    if compression is None or compression == "none":
        return body, 0
    if compression not in COMPRESSIONS:
        raise InvalidArgument(
            f"compression {compression!r} is unknown here: choose one of {', '.join(COMPRESSIONS)}",
            field="compression",
        )
    if len(body) <= COMPRESS_FROM_BYTES:
        return body, 0
    codec, writer = _WRITERS[compression]
    return writer(body), COMPRESSED | codec << COMPRESSION_TYPE_SHIFT


def compress_again(body: bytes, sys_flag: int) -> bytes:
    """Compress a body with the codec of a sys flag, whatever its size. The bytes may differ from the original's.

    Without the compressed flag, return the body unchanged. Raises InvalidArgument for an unknown codec.
    """
    codec = codec_of(sys_flag)
    if codec is None:
        return body
    if codec not in CODECS:
        raise InvalidArgument(f"codec {codec} of the body is unknown", field="sys_flag")
    return _WRITERS[CODECS[codec]][1](body)


def codec_of(sys_flag: int) -> int | None:
    """Return the codec number in this sys flag; None for an uncompressed body."""
    if not sys_flag & COMPRESSED:
        return None
    return (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT


def decompress(body: bytes, sys_flag: int, limit_bytes: int) -> bytes:
    """Return the original body. An uncompressed body is returned unchanged, whatever its size.

    Raises Corrupt for damaged or incomplete data, an unknown codec, and content over the limit. No more than
    `limit_bytes` is decompressed.
    """
    codec = codec_of(sys_flag)
    if codec is None:
        return body
    reader = _READERS.get(codec)
    if reader is None:
        raise Corrupt(
            f"codec {codec} of the body is unknown",
            kind="codec",
            expected="0 to 3",
            found=f"{codec}",
        )
    return reader(body, limit_bytes)


def _write_zlib(body: bytes) -> bytes:
    return zlib.compress(body, LEVEL)


def _write_lz4(body: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(body, block_linked=False)  # Java cannot read linked blocks
    return frame


def _write_zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL).compress(body)


_WRITERS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "zlib": (ZLIB, _write_zlib),
    "lz4": (LZ4, _write_lz4),
    "zstd": (ZSTD, _write_zstd),
}
_READERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    ZLIB_UNNAMED: read_zlib,
    LZ4: read_lz4,
    ZSTD: read_zstd,
    ZLIB: read_zlib,
}
