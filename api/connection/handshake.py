"""TLS before HTTP or Kafka's protocol: a connection during its handshake.

Owns the handshakes in progress, their number and their timeout, so that they are limited like connections: each holds
a descriptor, and the event loop reports a connection only after its handshake. One that fails is logged and counted.
Must not know HTTP: the protocol after a handshake is a parameter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from logserver.metrics import Count

log = logging.getLogger(__name__)


class Handshakes:
    """The handshakes in progress. `make` creates the protocol for the time after a handshake; `has_room` returns
    whether one more may begin; `failed` counts those that fail. `context` may be replaced, for those that begin later.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        timeout_s: float,
        make: Callable[[], asyncio.BaseProtocol],
        has_room: Callable[[], bool],
        failed: Count,
    ) -> None:
        self.context = context
        self._timeout_s = timeout_s
        self._make = make
        self.has_room = has_room
        self._failed = failed
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, connection: socket.socket, host: str) -> None:
        """Start a handshake with the client on `host`, and count it."""
        task = asyncio.get_running_loop().create_task(self._run(connection, host))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, connection: socket.socket, host: str) -> None:
        """Run the handshake; if it fails the connection is closed."""
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connection, ssl=self.context, ssl_handshake_timeout=self._timeout_s
            )
        except (ssl.SSLError, ConnectionAbortedError, TimeoutError) as error:
            self._failed.value += 1
            problem = getattr(error, "reason", None) or error
            log.info("the TLS handshake of client %s failed: %s", host, problem)
        except OSError as error:  # it went without a word, as the checks of a load balancer do
            log.debug("client %s ended in its TLS handshake: %s", host, error)

    async def stop(self) -> None:
        """End the handshakes in progress."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class Handshake(asyncio.Protocol):
    """A connection before its handshake.

    The event loop gets it a second time, with TLS, by a duplicate descriptor. Only in this way no byte is read before
    the TLS protocol exists.
    """

    def __init__(self, handshakes: Handshakes) -> None:
        self._all = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, or close the connection: an error answer is not possible before TLS. Nothing has been
        read.
        """
        plain = cast("asyncio.Transport", transport)
        if self._all.has_room():
            with suppress(OSError):  # no descriptor is left
                second = os.dup(plain.get_extra_info("socket").fileno())
                peer = plain.get_extra_info("peername") or ("unknown",)
                self._all.begin(socket.socket(fileno=second), str(peer[0]))
        plain.abort()
