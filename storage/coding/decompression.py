"""Bounded decompression of the data that both backends' clients write: deflate in its two wrappers, lz4 and zstd
frames.

Owns the size limit and the bytes allowed after a complete member or frame; must not know the origin of the data.
Content over the limit is rejected before it is allocated, for any number of members or frames. Sources: RFC 1952
(gzip), RFC 8878 (zstd), and for trailing bytes the readers of both servers: GZIPInputStream, Lz4BlockInputStream,
ZstdInputStream.

    codec   after a complete member or frame
    gzip    more members, all of them read; 18 bytes or fewer, or bytes that do not begin a member, are ignored
    zlib    nothing
    lz4     nothing (`read_lz4`), or anything, which is ignored (`read_first_lz4`)
    zstd    more frames, skippable frames too, all of them read; a frame cut there yields its content so far
"""

from __future__ import annotations

import io
import zlib
from struct import Struct
from typing import Final

import lz4.frame
import zstandard

from storage.errors import Corrupt

GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
ZLIB_WBITS: Final = zlib.MAX_WBITS

GZIP_MEMBER: Final = b"\x1f\x8b\x08"
"""The first bytes of each deflated member."""
MIN_MEMBER_BYTES: Final = 19
"""GZIPInputStream searches for another member if more bytes are left than a header and a trailer."""
GZIP_PIECE_BYTES: Final = 1 << 14
"""The size of one input piece: zlib copies all input bytes after the end of a member."""

ZSTD_SKIPPABLE: Final = Struct(
    "<"
    "I"  # magic: 0x184d2a5 followed by any four bits
    "I"  # bytes that follow
)
ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A5
ZSTD_BLOCK_HEADER_BYTES: Final = 3
ZSTD_RLE_BLOCK: Final = 1
ZSTD_CHECKSUM_BYTES: Final = 4


def read_gzip(data: bytes, limit_bytes: int) -> bytes:
    """Return the content of all gzip members. Raises Corrupt (kind gzip) for damage, a cut, and more than
    `limit_bytes`.

    The content grows in a BytesIO: each piece is copied and freed by itself, and `getvalue` copies nothing. Joining
    pieces of 256 MiB at the end would take twice the memory, and would stop all other threads meanwhile.
    """
    view = memoryview(data)
    joined = io.BytesIO()
    left_bytes = limit_bytes
    position = 0
    inflate = zlib.decompressobj(wbits=GZIP_WBITS)
    while position < len(data):
        piece = view[position : position + GZIP_PIECE_BYTES]
        try:
            content = inflate.decompress(piece, left_bytes + 1)
        except zlib.error as cause:
            raise damaged("gzip", cause) from cause
        if len(content) > left_bytes:
            raise over_limit("gzip", limit_bytes)
        joined.write(content)
        left_bytes -= len(content)
        position += len(piece) - len(inflate.unused_data)
        if inflate.eof:
            if not _is_gzip_member(data, position):
                break
            inflate = zlib.decompressobj(wbits=GZIP_WBITS)
    _check_ended("gzip", ended=inflate.eof, left_over=None)
    return joined.getvalue()


def _is_gzip_member(data: bytes, position: int) -> bool:
    return len(data) - position >= MIN_MEMBER_BYTES and data.startswith(GZIP_MEMBER, position)


def read_zlib(data: bytes, limit_bytes: int) -> bytes:
    """Return the content of one zlib stream. Raises Corrupt (kind zlib) as `read_gzip`, and if any bytes follow it."""
    inflate = zlib.decompressobj(wbits=ZLIB_WBITS)
    try:
        content = inflate.decompress(data, limit_bytes + 1)
    except zlib.error as cause:
        raise damaged("zlib", cause) from cause
    _check("zlib", content, limit_bytes)
    _check_ended("zlib", ended=inflate.eof, left_over=inflate.unused_data)
    return content


def read_lz4(data: bytes, limit_bytes: int) -> bytes:
    """Return the content of one lz4 frame. Raises Corrupt (kind lz4) as `read_gzip`, and if any bytes follow it."""
    content, left_over = _read_lz4_frame(data, limit_bytes)
    _check_ended("lz4", ended=True, left_over=left_over)
    return content


def read_first_lz4(data: bytes, limit_bytes: int) -> bytes:
    """Return the content of the lz4 frame at the start of `data`. Raises Corrupt (kind lz4) as `read_gzip`."""
    content, _ = _read_lz4_frame(data, limit_bytes)
    return content


def _read_lz4_frame(data: bytes, limit_bytes: int) -> tuple[bytes, bytes | None]:
    """Return (content, the bytes after the frame)."""
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        content: bytes = frame.decompress(data, max_length=limit_bytes + 1)
    except RuntimeError as cause:
        raise damaged("lz4", cause) from cause
    _check("lz4", content, limit_bytes)
    _check_ended("lz4", ended=frame.eof, left_over=None)
    return content, frame.unused_data


def read_zstd(data: bytes, limit_bytes: int) -> bytes:
    """Return the content of all zstd frames. Raises Corrupt (kind zstd) as `read_gzip`, and if other bytes follow a
    frame.
    """
    try:
        _check_ended("zstd", ended=_zstd_frame_end(data) <= len(data), left_over=None)
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            content = reader.read(limit_bytes + 1)
    except zstandard.ZstdError as cause:
        raise damaged("zstd", cause) from cause
    _check("zstd", content, limit_bytes)
    return content


def _zstd_frame_end(data: bytes) -> int:
    """Return the end of the first frame, found by walking its blocks: the library does not report a frame that
    is cut.
    """
    if len(data) >= ZSTD_SKIPPABLE.size:
        magic, size_bytes = ZSTD_SKIPPABLE.unpack_from(data)
        if magic >> 4 == ZSTD_SKIPPABLE_MAGIC:
            return ZSTD_SKIPPABLE.size + int(size_bytes)
    has_checksum = zstandard.get_frame_parameters(data).has_checksum
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
    """Return the error for invalid compressed data."""
    return Corrupt(f"{kind}: {what}", kind=kind)


def damaged(kind: str, cause: Exception) -> Corrupt:
    """Return the error for data that the library rejected."""
    return corrupt(kind, f"the data is damaged: {cause}")


def over_limit(kind: str, limit_bytes: int) -> Corrupt:
    """Return the error for content that is larger than the caller accepts."""
    return Corrupt(
        f"{kind}: the content is over the limit of {limit_bytes} bytes",
        kind=kind,
        expected=f"at most {limit_bytes} bytes",
        found="more",
    )
