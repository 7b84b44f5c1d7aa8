"""The server process: listen, open the store, serve, stop in order.

Owns the event loop, the listening socket and the order of start and stop: listening comes first, so
that /readyz tells how far a recovery is, and the store is closed last, when every request has been
answered. Must not parse options or print; `started` is told when requests are served.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import uvloop
from aiohttp import web

from api.app import App
from api.middleware import ApiServer
from api.security import tls_context
from logserver import descriptors, signals
from logserver.config import Address, Settings
from logserver.errors import CannotListen, SettingsError
from logserver.opening import StorePlan, plan_store
from logserver.service import LogService, Opener
from storage import RecoveryReport

STDIN: Final = 0
log = logging.getLogger(__name__)

BACKLOG: Final = 512
READ_BUFFER_BYTES: Final = 1 << 20  # per connection; small ones make large bodies stop and go
COLLECTED_AFTER: Final = (20_000, 50, 100)
"""Objects, and rounds, between two looks of the garbage collector. A request of 1,000 messages makes 5,000 of them,
which live until its answer: the default of 700 looks at them seven times on the way, frees nothing, and takes a seventh
of the time of a RocketMQ message. What waits longer for it takes 7 MB more under load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a server that serves has to tell."""

    url: str
    plan: StorePlan
    recovery: RecoveryReport


class Server:
    """One service behind one listening socket; `run` uses it, and so do tests."""

    def __init__(self, service: LogService) -> None:
        """Raises SettingsError for a token file or a certificate that cannot be used."""
        self.service = service
        settings = service.settings
        self.app = App(service)
        self._tls = tls_context(settings)
        self._protocols = ApiServer(
            self.app,
            max_connections=settings.max_connections,
            tls=self._tls,
            handshake_timeout_s=settings.handshake_timeout_ms / 1000,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.keep_alive_ms / 1000,
            read_bufsize=READ_BUFFER_BYTES,
            lingering_time=settings.body_timeout_ms / 1000,
            max_line_size=settings.max_header_bytes,
            max_field_size=settings.max_header_bytes,
        )
        grace_s = settings.shutdown_grace_ms / 1000
        self._runner = web.ServerRunner(self._protocols, shutdown_timeout=grace_s)
        self.url = ""

    @property
    def connections(self) -> int:
        """How many connections are open, with those that are still in the TLS handshake."""
        return self._protocols.open_connections

    async def listen(self) -> None:
        """Bind and accept. Raises CannotListen."""
        address = self.service.settings.listen
        await self._runner.setup()
        site = web.TCPSite(self._runner, address.host, address.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise CannotListen(
                f"cannot listen on {address}: {_reason(error)}",
                listen=str(address),
                errno=error.errno,
            ) from None
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://{Address(address.host, site.port)}"

    async def stop(self) -> None:
        """Accept no more, let requests end within the grace, then close the store cleanly."""
        self.service.begin_stop()
        await self._runner.cleanup()
        await self.service.stop()


def _reason(error: OSError) -> str:
    """What the system says: asyncio's own text names the address once more. Names that cannot be resolved have numbers
    of their own, below 0.
    """
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def run(settings: Settings, started: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or SIGINT; on return the store has been closed cleanly.

    Raises StorageError (SettingsError, CannotListen, StoreLocked, DamagedStore, ...) when it cannot
    start.
    """
    settings = descriptors.fit(settings, descriptors.raise_limit())
    plan = plan_store(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, plan, started))


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends: nobody holds its other end any more.

    A thread, since an event loop cannot wait for every kind of file. It reads the descriptor itself, because
    a lock of `sys.stdin` would be in the way of an end of the process that comes otherwise.
    """

    def watch() -> None:
        with suppress(OSError):  # it is closed already
            while os.read(STDIN, 4096):
                pass
        with suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, name="stdin", daemon=True).start()


async def _serve(settings: Settings, plan: StorePlan, started: Callable[[Started], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in signals.STOPS:
        loop.add_signal_handler(number, stop.set)
    if settings.exit_with_stdin:
        _watch_stdin(loop, stop)
    with signals.let_through():
        await _serve_until(stop, settings, plan, started)


async def _serve_until(
    stop: asyncio.Event,
    settings: Settings,
    plan: StorePlan,
    started: Callable[[Started], None],
) -> None:
    opener: Opener = plan.open
    service = LogService(settings, opener)
    server = Server(service)
    if settings.token_file is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, server)
    await server.listen()
    opening = asyncio.create_task(service.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            service.begin_stop()  # ends a recovery at its next sign of progress
            await asyncio.gather(opening, return_exceptions=True)
            return
        await opening  # raises what kept the store from opening
        _calm_collector()
        started(Started(url=server.url, plan=plan, recovery=service.store.recovery))
        await stopping
    finally:
        stopping.cancel()
        await server.stop()


def _calm_collector() -> None:
    """What is there stays, so the collector need not look at it again; and it looks at what is new less often."""
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def _reload(server: Server) -> None:
    """At SIGHUP: tokens that were added count, those that went do not. A bad file changes nothing."""
    try:
        server.app.guard.reload()
    except SettingsError as error:
        log.error("the tokens stay as they are: %s", error.message)  # noqa: TRY400  # no stack trace
    else:
        log.info("SIGHUP: the token file was read again")
