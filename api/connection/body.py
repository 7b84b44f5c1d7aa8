"""Request bodies: read whole and unpacked within one limit, or piece by piece.

Owns how many bytes are read from a connection and held in memory; must not know their meaning. The HTTP library's own
unpacking is off, because it has no limit. A body that is rejected early is still drained by the connection, so that a
client which sends first and reads later gets its 413.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

from aiohttp import web

from api.http.errors import BODY_TOO_LARGE, ApiError
from logserver.config import Settings
from logserver.errors import NotReady
from logserver.service.memory_budget import Reservation

# Larger bodies are unpacked in a thread, so that the loop is not blocked.
_INLINE_BYTES: Final = 64 << 10
# After this many bytes of a stream other tasks get their turn.
_PIECE_BYTES: Final = 256 << 10
# This many unpacked bytes of a stream are allowed at any compression ratio.
_FREE_BYTES: Final = 32 << 20


async def read_body(
    request: web.BaseRequest, settings: Settings, reservation: Reservation
) -> bytes:
    """Return the body, unpacked. `reservation` has grown by its size.

    Raises 413 over the limit, 415 for an unknown Content-Encoding, 400 for a broken one, 408 if the client pauses for
    too long, Busy if too many bytes are in flight.
    """
    limit_bytes, headers = settings.max_body_bytes, request.headers
    is_packed = "Content-Encoding" in headers and _is_packed(request)
    if (request.content_length or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    if "Expect" in headers:
        await meet_expectation(request)
    packed = await _read(request, limit_bytes, settings.body_timeout_ms / 1000, reservation)
    if not is_packed:
        return packed
    try:
        if len(packed) > _INLINE_BYTES:
            body = await asyncio.to_thread(_gunzip, packed, limit_bytes)
        else:
            body = _gunzip(packed, limit_bytes)
    except zlib.error as error:
        raise _not_packed(error) from None
    reservation.grow(max(len(body) - len(packed), 0))
    return body


class BodyStream:
    """A body as it arrives, unpacked, in pieces of bounded size; the body has no size limit.

    It is read to its end. Reading stops early if the client pauses for too long or the server stops.
    """

    def __init__(
        self, request: web.BaseRequest, settings: Settings, stopping: asyncio.Event
    ) -> None:
        """Prepare to read the body. Raises 415 for an unknown Content-Encoding."""
        self._content = request.content
        self._unpacker = _Unpacker(settings) if _is_packed(request) else None
        self._pause_s = settings.body_timeout_ms / 1000
        self._stopping = stopping

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the pieces in order. Raises 408, 400 for a broken body or encoding, NotReady when the server stops."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            while data := await self._next(stopped):
                for piece in _cut(data) if self._unpacker is None else self._unpacker.feed(data):
                    yield piece
                    await asyncio.sleep(0)
            if self._unpacker is not None:
                self._unpacker.check_end()
        except zlib.error as error:
            raise _not_packed(error) from None
        finally:
            stopped.cancel()

    async def _next(self, stopped: asyncio.Future[Any]) -> bytes:
        """Return the bytes that arrived since the last call, at least one; empty at the end."""
        reading = asyncio.ensure_future(self._content.readany())
        try:
            await asyncio.wait(
                (reading, stopped), timeout=self._pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            if stopped.done():
                raise NotReady(
                    "the server is stopping: nothing from here on is stored", state="stopping"
                )
            if not reading.done():
                raise _paused(self._pause_s)
            return reading.result()
        except (web.RequestPayloadError, ConnectionError) as error:
            raise _broken(error) from None
        finally:
            reading.cancel()


class _Unpacker:
    """An incremental gzip decoder: bounded pieces, up to a bounded multiple of the bytes sent."""

    def __init__(self, settings: Settings) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self._ratio = settings.max_stream_inflation
        self._left_bytes = max(settings.max_body_bytes, _FREE_BYTES)  # may still be unpacked

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the pieces that `data` completes. Raises zlib.error, 413 above the limit."""
        self._left_bytes += self._ratio * len(data)
        full = True
        while data or full:
            piece = self._zlib.decompress(data, _PIECE_BYTES)
            self._left_bytes -= len(piece)
            if self._left_bytes < 0:
                raise ApiError(
                    BODY_TOO_LARGE,
                    f"the stream unpacks to more than {self._ratio} times what was sent "
                    "(max_stream_inflation)",
                )
            data = self._zlib.unconsumed_tail
            full = len(piece) == _PIECE_BYTES
            if piece:
                yield piece
        if self._zlib.unused_data:
            raise zlib.error("more follows its end")

    def check_end(self) -> None:
        """Raise zlib.error if the gzip stream is not complete."""
        if not self._zlib.eof:
            raise zlib.error("it ends early")


def _cut(data: bytes) -> Iterator[bytes]:
    """Yield pieces of bounded size."""
    for begin in range(0, len(data), _PIECE_BYTES):
        yield data[begin : begin + _PIECE_BYTES]


async def _read(
    request: web.BaseRequest, limit_bytes: int, pause_s: float, reservation: Reservation
) -> bytes:
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
            reservation.grow(len(chunk))
            chunks.append(chunk)
    except TimeoutError:
        raise _paused(pause_s) from None
    except (web.RequestPayloadError, ConnectionError) as error:
        # The library's reader keeps the error: with its traceback, it would keep this frame and all chunks.
        error.__traceback__ = None
        raise _broken(error) from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def meet_expectation(request: web.BaseRequest) -> None:
    """Send 100 Continue to a client that waits for it before it sends its body. Raises 417 for another expectation."""
    if "Expect" not in request.headers:
        return
    if request.headers["Expect"].lower() != "100-continue":
        raise ApiError(417, "Expect takes 100-continue only: send that, or no Expect")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # no byte of the answer has been sent


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


def _paused(pause_s: float) -> ApiError:
    return ApiError(
        408,
        f"the body paused for more than {pause_s:g} s (body_timeout_ms): send it without pauses",
    )


def _broken(error: Exception) -> ApiError:
    return ApiError(400, f"the body is broken: {error}")


def _not_packed(error: zlib.error) -> ApiError:
    return ApiError(
        400,
        f"the body does not match its Content-Encoding: {error}; send gzip, or leave the header out",
    )


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        BODY_TOO_LARGE,
        f"the body is larger than {limit_bytes} bytes (max_body_bytes): send several smaller requests",
        facts={"limit_bytes": limit_bytes},
    )
