"""Request bodies: read whole, within a limit, unpacked within the same limit.

Owns how many bytes are taken from a connection and held in memory; must not know what they mean.
The HTTP library's own unpacking is off (it knows no bound of ours). A body that is refused early is
still drained by the connection, so that a client which sends first and listens after gets its 413.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from aiohttp import web

from api.errors import BODY_TOO_LARGE, ApiError
from logserver.budget import Hold
from logserver.config import Settings

# Unpacking more than this is done in a thread, so that the loop goes on.
_INLINE_BYTES: Final = 64 << 10


async def read_body(request: web.BaseRequest, settings: Settings, hold: Hold) -> bytes:
    """The body, unpacked. `hold` has grown by its size.

    Raises 413 over the limit, 415 for an unknown Content-Encoding, 400 for a broken one, 408 when
    the client pauses for too long, Busy when too much is in flight.
    """
    limit_bytes = settings.max_body_bytes
    is_packed = _is_packed(request)
    if (request.content_length or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    if "Expect" in request.headers:
        await _continue(request)
    packed = await _read(request, limit_bytes, settings.body_timeout_ms / 1000, hold)
    if not is_packed:
        return packed
    try:
        if len(packed) > _INLINE_BYTES:
            body = await asyncio.to_thread(_gunzip, packed, limit_bytes)
        else:
            body = _gunzip(packed, limit_bytes)
    except zlib.error as error:
        raise ApiError(400, f"the body does not match its Content-Encoding: {error}") from None
    hold.grow(max(len(body) - len(packed), 0))
    return body


async def _read(request: web.BaseRequest, limit_bytes: int, pause_s: float, hold: Hold) -> bytes:
    content = request.content
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        while not content.at_eof():
            if content.is_eof():
                chunk = content.read_nowait()
            else:
                async with asyncio.timeout(pause_s):
                    chunk = await content.readany()
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise _too_large(limit_bytes)
            hold.grow(len(chunk))
            chunks.append(chunk)
    except TimeoutError:
        raise ApiError(408, f"the body paused for more than {pause_s:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise ApiError(400, f"the body is broken: {error}") from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _continue(request: web.BaseRequest) -> None:
    """A client that asked whether to send its body is told to."""
    if request.headers["Expect"].lower() != "100-continue":
        raise ApiError(417, "the only Expect that is met is 100-continue")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # nothing of the answer has been sent


def _is_packed(request: web.BaseRequest) -> bool:
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in {"identity", "gzip"}:
        raise ApiError(
            415,
            f"Content-Encoding {encoding[:40]!r} is not taken: send gzip or none",
            headers={"Accept-Encoding": "gzip"},
        )
    return encoding == "gzip"


def _gunzip(packed: bytes, limit_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    body = unpacker.decompress(packed, limit_bytes + 1)
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    if not unpacker.eof or unpacker.unused_data:
        raise zlib.error("it ends early, or more follows it")
    return body


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        BODY_TOO_LARGE,
        f"the body is larger than {limit_bytes} bytes (max_body_bytes)",
        facts={"limit_bytes": limit_bytes},
    )
