"""A long body of known length, received into one buffer.

Owns the buffers, and a connection's bytes while such a body arrives; must not know HTTP. The event loop usually makes
an object of at most 256 KB of each read, and the HTTP library another one. Here the kernel writes into one buffer, and
the library gets the whole body at once: it makes one copy.

    head -> library;  body -> kernel -> buffer -> library

A client that sends slowly is handed back to the library after SLOW_S, with the bytes that have arrived. So a body here
takes no more memory than the library's own read buffer, and for a moment only.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

LEAST_BYTES: Final = 128 << 10  # of shorter bodies the rest comes with the head, or in one read
MOST_BYTES: Final = 2 << 20
"""What the HTTP library buffers of a connection at most: twice the `read_bufsize` of our server."""
SLOW_S: Final = 0.5
KEPT_BUFFERS: Final = 8


class Receiver(Protocol):
    """The protocol of the connection, which gets everything except the bytes of the body."""

    def take_body(self, data: bytes | memoryview) -> None:
        """Process received bytes of a body; they are valid during the call only."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: BaseException | None) -> None: ...


class Buffers:
    """Buffers of bodies that are not in use; a few are kept, since new memory costs more than the bytes in it."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size_bytes: int) -> bytearray:
        """Return a buffer of at least this size."""
        if self._free and len(self._free[-1]) >= size_bytes:
            return self._free.pop()
        return bytearray(size_bytes)

    def give_back(self, buffer: bytearray) -> None:
        """Keep a buffer for the next body; the largest ones are kept."""
        self._free.append(buffer)
        self._free.sort(key=len)
        del self._free[:-KEPT_BUFFERS]


class LongBody(asyncio.BufferedProtocol):
    """The protocol of a connection until `size_bytes` have arrived, of which `begin` has."""

    def __init__(
        self,
        receiver: Receiver,
        transport: asyncio.Transport,
        buffers: Buffers,
        size_bytes: int,
        begin: memoryview,
    ) -> None:
        self._receiver = receiver
        self._transport = transport
        self._buffers = buffers
        self._buffer = buffers.take(size_bytes)
        self._view = memoryview(self._buffer)[:size_bytes]
        self._filled_bytes = len(begin)
        self._view[: len(begin)] = begin
        self._slow = asyncio.get_running_loop().call_later(SLOW_S, self._end)
        self._switch_to(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the rest of the buffer."""
        return self._view[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Count bytes that have arrived."""
        self._filled_bytes += nbytes
        if self._filled_bytes == len(self._view):
            self._end()

    def _end(self) -> None:
        """Give the connection back to its protocol, with the bytes that have arrived."""
        self._slow.cancel()
        if self._transport.is_closing():
            return
        self._switch_to(cast("asyncio.BaseProtocol", self._receiver))
        with self._view, self._view[: self._filled_bytes] as arrived:
            self._receiver.take_body(arrived)
        self._buffers.give_back(self._buffer)

    def _switch_to(self, protocol: asyncio.BaseProtocol) -> None:
        # The event loop chooses between both kinds of protocols when reading begins.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._receiver.resume_writing()

    def eof_received(self) -> bool | None:
        """Pass on an early end. The bytes that have arrived are of no use."""
        return self._receiver.eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Pass it on. The bytes that have arrived are of no use."""
        self._slow.cancel()
        self._receiver.connection_lost(exc)
