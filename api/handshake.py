"""TLS before HTTP: a connection while its handshake runs.

Owns the handshakes under way, their number and how long one may take, so that they are bounded as connections
are: each holds a descriptor, and the event loop tells of a connection only when its handshake is over. Must not
know HTTP: what is made behind a handshake is handed in.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast


class Handshakes:
    """Those under way. `make` gives the protocol that goes on; `has_room` tells whether one more may begin."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        timeout_s: float,
        make: Callable[[], asyncio.Protocol],
        has_room: Callable[[], bool],
    ) -> None:
        self._context = context
        self._timeout_s = timeout_s
        self._make = make
        self.has_room = has_room
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, connection: socket.socket) -> None:
        """Let one run, as one of those that are counted."""
        task = asyncio.get_running_loop().create_task(self._run(connection))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, connection: socket.socket) -> None:
        """The handshake; a client that fails at it is hung up on."""
        connection.setblocking(False)
        with suppress(OSError):  # also ssl.SSLError, and a handshake that takes too long
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connection, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )

    async def stop(self) -> None:
        """End those under way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class Handshake(asyncio.Protocol):
    """A connection as it comes. The event loop takes it anew, with TLS, by a second descriptor: the one way in
    which no byte is read before there is somebody for it.
    """

    def __init__(self, handshakes: Handshakes) -> None:
        self._all = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or hang up: there is no way yet to tell why. Nothing has been read."""
        plain = cast("asyncio.Transport", transport)
        if self._all.has_room():
            with suppress(OSError):  # no descriptor is left
                second = os.dup(plain.get_extra_info("socket").fileno())
                self._all.begin(socket.socket(fileno=second))
        plain.abort()
