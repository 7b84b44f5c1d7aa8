"""Bounded decompression of what both backends' clients write: deflate in its two wrappers, lz4 frames, zstd frames.

Owns the limit (what would grow over it is refused before it is made) and that data is one whole stream with nothing
behind it; must not know who compressed what. Source of zstd's frame: RFC 8878.
"""

from __future__ import annotations

import zlib
from typing import Final

import lz4.frame
import zstandard

from storage.errors import Corrupt

GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
ZLIB_WBITS: Final = zlib.MAX_WBITS

ZSTD_BLOCK_HEADER_BYTES: Final = 3
ZSTD_RLE_BLOCK: Final = 1
ZSTD_CHECKSUM_BYTES: Final = 4


def read_gzip(data: bytes, limit_bytes: int) -> bytes:
    """The content of one gzip member. Raises Corrupt (kind gzip) for damage, a cut, and more than `limit_bytes`."""
    return _inflate("gzip", GZIP_WBITS, data, limit_bytes)


def read_zlib(data: bytes, limit_bytes: int) -> bytes:
    """The content of one zlib stream. Raises Corrupt (kind zlib) as `read_gzip`."""
    return _inflate("zlib", ZLIB_WBITS, data, limit_bytes)


def _inflate(kind: str, wbits: int, data: bytes, limit_bytes: int) -> bytes:
    inflate = zlib.decompressobj(wbits=wbits)
    try:
        content = inflate.decompress(data, limit_bytes + 1)
    except zlib.error as cause:
        raise damaged(kind, cause) from cause
    _check(kind, content, limit_bytes)
    _check_ended(kind, ended=inflate.eof, left_over=inflate.unused_data)
    return content


def read_lz4(data: bytes, limit_bytes: int) -> bytes:
    """The content of one lz4 frame. Raises Corrupt (kind lz4) as `read_gzip`."""
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        content: bytes = frame.decompress(data, max_length=limit_bytes + 1)
    except RuntimeError as cause:
        raise damaged("lz4", cause) from cause
    _check("lz4", content, limit_bytes)
    _check_ended("lz4", ended=frame.eof, left_over=frame.unused_data)
    return content


def read_zstd(data: bytes, limit_bytes: int) -> bytes:
    """The content of one zstd frame. Raises Corrupt (kind zstd) as `read_gzip`."""
    try:
        frame = zstandard.get_frame_parameters(data)
        end = _zstd_frame_end(data, has_checksum=frame.has_checksum)
        _check_ended("zstd", ended=end <= len(data), left_over=data[end:])
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            content = reader.read(limit_bytes + 1)
    except zstandard.ZstdError as cause:
        raise damaged("zstd", cause) from cause
    _check("zstd", content, limit_bytes)
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


def _check(kind: str, content: bytes, limit_bytes: int) -> None:
    if len(content) > limit_bytes:
        raise over_limit(kind, limit_bytes)


def _check_ended(kind: str, *, ended: bool, left_over: bytes | None) -> None:
    if not ended:
        raise corrupt(kind, "the data ends too early")
    if left_over:
        raise corrupt(kind, f"{len(left_over)} bytes follow the end")


def corrupt(kind: str, what: str) -> Corrupt:
    """The error for compressed data that is not what it should be."""
    return Corrupt(f"{kind}: {what}", kind=kind)


def damaged(kind: str, cause: Exception) -> Corrupt:
    """The error for data that the library refused."""
    return corrupt(kind, f"the data is damaged: {cause}")


def over_limit(kind: str, limit_bytes: int) -> Corrupt:
    """The error for content that is larger than the caller takes."""
    return Corrupt(
        f"{kind}: the content is over the limit of {limit_bytes} bytes",
        kind=kind,
        expected=f"at most {limit_bytes} bytes",
        found="more",
    )
