"""The port for Kafka clients: accept, limit, stop.

Owns the listening socket and the set of connections; must not read a byte of them. Their limit is that of HTTP
connections, which are counted apart.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from api.connection.handshake import Handshake, Handshakes
from api.kafka.connection import KafkaConnection
from api.kafka.dispatch import Dispatcher
from api.kafka.idle_poll import IdlePoll
from logserver.access.tokens import Tokens
from logserver.config import Address
from logserver.metrics import KafkaMetrics
from logserver.service.memory_budget import SMALL_BYTES, MemoryBudget
from logserver.service.service import LogService

BACKLOG: Final = 512
CHECK_S: Final = 1.0
RECEIVED_BYTES: Final = SMALL_BYTES  # longer frames get their own memory


class KafkaListener:
    """The connections of Kafka clients on one address.

    `tokens` returns the tokens as they are now; None: clients need no token. Use it on the event loop only.
    """

    def __init__(
        self,
        service: LogService,
        *,
        tls: ssl.SSLContext | None,
        tokens: Callable[[], Tokens | None] | None,
    ) -> None:
        self.service = service
        self.metrics = KafkaMetrics(service.metrics)
        settings = service.settings
        self.arriving = MemoryBudget(
            max(settings.max_in_flight_bytes // 2, settings.max_body_bytes), "requests that arrive"
        )
        """The bytes of frames that are not whole yet: at most half of the bytes of all requests, or one frame."""
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        """Where the kernel writes the bytes of all connections, except the bytes of long frames."""
        self.idle_poll = IdlePoll(settings.kafka_poll_us)
        self.address = ""
        """HOST:PORT of the port, once it is open."""
        self.dispatcher: Dispatcher
        self._tokens = tokens
        self._connections: set[KafkaConnection] = set()
        self._empty = asyncio.Event()  # no connection is open
        self._empty.set()
        self._server: asyncio.Server | None = None
        self._bound: Address | None = None
        self._checking: asyncio.Task[None] | None = None
        self._handshakes: Handshakes | None = None
        if tls is not None:
            self._handshakes = Handshakes(
                tls,
                timeout_s=service.settings.handshake_timeout_ms / 1000,
                make=lambda: KafkaConnection(self),
                has_room=self._has_room,
                failed=service.metrics.failed_handshakes.child("kafka"),
            )
        service.metrics.gauge(
            "kafka_connections",
            "Connections of Kafka clients.",
            lambda: self.open_connections,
        )

    @property
    def open_connections(self) -> int:
        """The number of connections, including TLS handshakes in progress."""
        return len(self._connections) + (0 if self._handshakes is None else len(self._handshakes))

    def _has_room(self) -> bool:
        return self.open_connections < self.service.settings.max_connections

    async def bind(self, address: Address) -> None:
        """Take the port; clients are refused until `listen`. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol, address.host, address.port, backlog=BACKLOG, start_serving=False
        )
        port = self._server.sockets[0].getsockname()[1]
        self._bound = Address(address.host, port)

    async def listen(self) -> None:
        """Accept connections on the port that `bind` took. The service has started.

        Raises OSError, and NotOffered if the store's format cannot be served to Kafka clients.
        """
        assert self._server is not None
        assert self._bound is not None
        self.dispatcher = Dispatcher(
            self.service,
            self.metrics,
            node_id=self.service.node_id,
            tokens=self._tokens,
        )
        await self._server.start_serving()
        self.address = str(self._bound)
        self._checking = asyncio.get_running_loop().create_task(self._check_times())

    def _protocol(self) -> asyncio.BaseProtocol:
        return KafkaConnection(self) if self._handshakes is None else Handshake(self._handshakes)

    def take(self, connection: KafkaConnection) -> bool:
        """Count a connection; return False if there are too many."""
        if self._server is None or not self._has_room():
            self.metrics.ended("too many")
            return False
        self._connections.add(connection)
        self.metrics.opened.value += 1
        self._empty.clear()
        return True

    def drop(self, connection: KafkaConnection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def use(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for the handshakes that begin later. The port was created with one."""
        assert self._handshakes is not None
        self._handshakes.context = context

    def log_out(self) -> None:
        """End all connections whose clients have logged in: tokens have changed."""
        if self._tokens is not None:
            for connection in list(self._connections):
                connection.stop()

    async def _check_times(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_S)
            now_s = loop.time()
            for connection in list(self._connections):
                connection.check_time(now_s)

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, answer the requests at work within the grace period, then end all."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if self._checking is not None:
            self._checking.cancel()
        if self._handshakes is not None:
            await self._handshakes.stop()
        for connection in list(self._connections):
            connection.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), grace_s)
        for connection in list(self._connections):
            connection.abort()
        await self._empty.wait()
