"""Bounded decompression of what both backends' clients write: deflate in its two wrappers, lz4 frames, zstd frames.

Owns the limit (what would grow over it is refused before it is made, however many members or frames it comes in) and
what may stand behind a whole member or frame; must not know who compressed what. Sources: RFC 1952 (gzip), RFC 8878
(zstd), and for what follows the readers of both servers: GZIPInputStream, Lz4BlockInputStream, ZstdInputStream.

    codec   behind a whole member or frame
    gzip    more members, all of them read; 18 bytes or fewer, or what does not begin as a member, count for nothing
    zlib    nothing
    lz4     nothing (`read_lz4`), or anything, which is not looked at (`read_first_lz4`)
    zstd    more frames, skippable ones too, all of them read; one that is cut there gives what it holds
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
"""How each deflated member begins."""
MIN_MEMBER_BYTES: Final = 19
"""GZIPInputStream looks for another member where more is left than a header and a trailer."""
GZIP_PIECE_BYTES: Final = 1 << 14
"""What is fed at once: zlib copies all that it was given behind the end of a member."""

ZSTD_SKIPPABLE: Final = Struct(
    "<"
    "I"  # magic: 0x184d2a5, and any four bits
    "I"  # bytes that follow
)
ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A5
ZSTD_BLOCK_HEADER_BYTES: Final = 3
ZSTD_RLE_BLOCK: Final = 1
ZSTD_CHECKSUM_BYTES: Final = 4


def read_gzip(data: bytes, limit_bytes: int) -> bytes:
    """The content of all gzip members. Raises Corrupt (kind gzip) for damage, a cut, and more than `limit_bytes`.

    What grows is a BytesIO: each piece is copied and freed by itself, and `getvalue` copies nothing. To join pieces of
    256 MiB at the end takes twice the memory, and stops all other threads for as long as it takes.
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
    """The content of one zlib stream. Raises Corrupt (kind zlib) as `read_gzip`."""
    inflate = zlib.decompressobj(wbits=ZLIB_WBITS)
    try:
        content = inflate.decompress(data, limit_bytes + 1)
    except zlib.error as cause:
        raise damaged("zlib", cause) from cause
    _check("zlib", content, limit_bytes)
    _check_ended("zlib", ended=inflate.eof, left_over=inflate.unused_data)
    return content


def read_lz4(data: bytes, limit_bytes: int) -> bytes:
    """The content of one lz4 frame. Raises Corrupt (kind lz4) as `read_gzip`, and where anything follows it."""
    content, left_over = _read_lz4_frame(data, limit_bytes)
    _check_ended("lz4", ended=True, left_over=left_over)
    return content


def read_first_lz4(data: bytes, limit_bytes: int) -> bytes:
    """The content of the lz4 frame that `data` begins with. Raises Corrupt (kind lz4) as `read_gzip`."""
    content, _ = _read_lz4_frame(data, limit_bytes)
    return content


def _read_lz4_frame(data: bytes, limit_bytes: int) -> tuple[bytes, bytes | None]:
    """(content, what follows the frame)."""
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        content: bytes = frame.decompress(data, max_length=limit_bytes + 1)
    except RuntimeError as cause:
        raise damaged("lz4", cause) from cause
    _check("lz4", content, limit_bytes)
    _check_ended("lz4", ended=frame.eof, left_over=None)
    return content, frame.unused_data


def read_zstd(data: bytes, limit_bytes: int) -> bytes:
    """The content of all zstd frames. Raises Corrupt (kind zstd) as `read_gzip`, and where what follows is no frame."""
    try:
        _check_ended("zstd", ended=_zstd_frame_end(data) <= len(data), left_over=None)
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            content = reader.read(limit_bytes + 1)
    except zstandard.ZstdError as cause:
        raise damaged("zstd", cause) from cause
    _check("zstd", content, limit_bytes)
    return content


def _zstd_frame_end(data: bytes) -> int:
    """Where the first frame ends, by walking its blocks: the library does not tell that it is cut."""
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
