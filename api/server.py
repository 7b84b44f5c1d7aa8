"""The server process: listen, open the store, serve, stop cleanly.

Owns the event loop, the listening socket and the order of start and stop. Listening comes first, so that /readyz can
report the progress of recovery. The store is closed last, after every request has been answered. Must not parse
options or print; it calls `started` when requests are served.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import uvloop
from aiohttp import web

from api.app import App
from api.connection.protocol import ApiServer
from api.http.auth import tls_context
from api.http.negotiation import BINARY_V2_JSON, JSON_V2_JSON, OCTET_STREAM, RECORD_BATCH
from api.kafka.listener import KafkaListener
from logserver import process_signals
from logserver.config import Address, Settings
from logserver.errors import CannotListen, SettingsError
from logserver.opening import StorePlan, fit_to_file_limit, plan_store, raise_file_limit
from logserver.service.service import LogService
from logserver.service_manager import ServiceManager
from storage import LogStore, Progress, RecoveryReport

STDIN: Final = 0
log = logging.getLogger(__name__)

BACKLOG: Final = 512
REPORT_EVERY_S = 1.0  # how often a service manager gets the progress of a recovery
READ_BUFFER_BYTES: Final = 1 << 20  # per connection; with less, large bodies pause often
COLLECTED_AFTER: Final = (20_000, 50, 100)
"""Thresholds of the garbage collector: number of objects, and of rounds, between two collections.

A request of 1,000 messages creates 5,000 objects, which live until its answer. With the default of 700 the collector
scans them seven times, frees nothing, and takes a seventh of the time of a RocketMQ message. The higher threshold
costs 7 MB of memory under load.
"""
M_TRIM_THRESHOLD: Final = -1  # numbers of mallopt(3)
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
HEAP_BYTES: Final = 4 << 20  # larger blocks are the kernel's own mappings
KEPT_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The facts of a server that is ready. `kafka`: HOST:PORT for Kafka clients, None if they are not served."""

    url: str
    kafka: str | None
    plan: StorePlan
    recovery: RecoveryReport


class Server:
    """One service on one listening socket; used by `run` and by tests."""

    def __init__(self, service: LogService) -> None:
        """Create a server. Raises SettingsError for a token file or a certificate that cannot be used."""
        self.service = service
        settings = service.settings
        self.app = App(service)
        self._tls = tls_context(settings)
        self._protocols = ApiServer(
            self.app,
            max_connections=settings.max_connections,
            tls=self._tls,
            handshake_timeout_s=settings.handshake_timeout_ms / 1000,
            failed_handshakes=service.metrics.failed_handshakes.child("http"),
            whole_types=frozenset({RECORD_BATCH, OCTET_STREAM, BINARY_V2_JSON, JSON_V2_JSON}),
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
        self.kafka: KafkaListener | None = None
        """The port for Kafka clients, if the settings ask for one."""
        if settings.listen_kafka is not None:
            guard = self.app.guard
            self.kafka = KafkaListener(
                service,
                tls=self._tls,
                tokens=(lambda: guard.tokens) if guard.is_on else None,
            )

    @property
    def connections(self) -> int:
        """The number of open connections, including TLS handshakes in progress."""
        kafka = 0 if self.kafka is None else self.kafka.open_connections
        return self._protocols.open_connections + kafka

    def reload_tokens(self) -> None:
        """Read the token file again: tokens that were added are valid, and others are not.

        If they changed, Kafka clients that have logged in are disconnected. Raises SettingsError, with nothing changed.
        """
        before = self.app.guard.tokens
        self.app.guard.reload()
        if self.kafka is not None and self.app.guard.tokens != before:
            self.kafka.log_out()

    def reload_certificate(self) -> None:
        """Read the files of TLS again, for connections that begin later. Raises SettingsError, and then nothing has
        changed.
        """
        context = tls_context(self.service.settings)
        if context is not None:
            self._protocols.use(context)
            if self.kafka is not None:
                self.kafka.use(context)

    async def listen(self) -> None:
        """Bind both ports, and accept HTTP. Nothing is stored before. Raises CannotListen."""
        await self._bind_kafka()
        address = self.service.settings.listen
        await self._runner.setup()
        site = web.TCPSite(self._runner, address.host, address.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            if self.kafka is not None:
                await self.kafka.stop(0)
            raise _cannot_listen(address, error, "--port N") from None
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://{Address(address.host, site.port)}"

    async def _bind_kafka(self) -> None:
        address = self.service.settings.listen_kafka
        if self.kafka is None or address is None:
            return
        with _kafka_port_errors(address):
            await self.kafka.bind(address)

    async def listen_kafka(self) -> None:
        """Accept Kafka clients, if there is a port for them. The service has started: before that a client would get
        answers that it takes as final. Raises CannotListen, and NotOffered for a store that they cannot use.
        """
        address = self.service.settings.listen_kafka
        if self.kafka is None or address is None:
            return
        with _kafka_port_errors(address):
            await self.kafka.listen()

    async def stop(self) -> None:
        """Accept no more connections, let requests end within the grace period, then close the store cleanly."""
        self.service.begin_stop()
        if self.kafka is not None:
            await self.kafka.stop(self.service.settings.shutdown_grace_ms / 1000)
        await self._runner.cleanup()
        await self.service.stop()


@contextmanager
def _kafka_port_errors(address: Address) -> Iterator[None]:
    """Raise CannotListen for an OSError of the port for Kafka clients."""
    try:
        yield
    except OSError as error:
        raise _cannot_listen(address, error, f"--listen-kafka {address.host}:N") from None


def _cannot_listen(address: Address, error: OSError, option: str) -> CannotListen:
    """Return the error of an address; `option`: how another port is given."""
    return CannotListen(
        f"cannot listen on {address}: {_reason(error)}{_advice(error, option)}",
        listen=str(address),
        errno=error.errno,
    )


def _reason(error: OSError) -> str:
    """Return the system's error text, because asyncio's own text repeats the address.

    Errors of name resolution have their own numbers, below 0.
    """
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def _advice(error: OSError, option: str) -> str:
    if error.errno != errno.EADDRINUSE:
        return ""
    return f". Stop the other server, or give another port: {option} (0 takes any free one)"


def run(settings: Settings, started: Callable[[Started], None], progress: Progress) -> None:
    """Serve until SIGTERM or SIGINT; on return the store has been closed cleanly. `progress` is called in the thread
    that opens the store.

    Raises StorageError (SettingsError, CannotListen, StoreLocked, DamagedStore, ...) if it cannot start.
    """
    settings = fit_to_file_limit(settings, raise_file_limit())
    plan = plan_store(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, plan, started, progress))


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends: no process holds its other end any more.

    It uses a thread, since an event loop cannot wait for every kind of file. The thread reads the descriptor itself:
    a lock of `sys.stdin` would block an exit of the process for another reason.
    """

    def watch() -> None:
        with suppress(OSError):  # it is already closed
            while os.read(STDIN, 4096):
                pass
        with suppress(RuntimeError):  # the loop has already ended
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, name="stdin", daemon=True).start()


async def _serve(
    settings: Settings, plan: StorePlan, started: Callable[[Started], None], progress: Progress
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in process_signals.STOPS:
        loop.add_signal_handler(number, stop.set)
    if settings.exit_with_stdin:
        _watch_stdin(loop, stop)
    with process_signals.let_through():
        await _serve_until(stop, settings, plan, started, progress)


async def _serve_until(
    stop: asyncio.Event,
    settings: Settings,
    plan: StorePlan,
    started: Callable[[Started], None],
    progress: Progress,
) -> None:
    def opened(note: Progress) -> LogStore:
        def noted(what: str, done: int, total: int) -> None:
            note(what, done, total)
            progress(what, done, total)

        return plan.open(noted)

    service = LogService(settings, opened)
    server = Server(service)
    manager = ServiceManager.from_environment(os.environ)
    if settings.token_file is not None or settings.tls_cert is not None or manager.is_present:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, server)
    await server.listen()
    opening = asyncio.create_task(service.start())
    stopping = asyncio.create_task(stop.wait())
    reporting = asyncio.create_task(_report_recovery(manager, service))
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            service.begin_stop()  # ends a recovery at its next progress report
            await asyncio.gather(opening, return_exceptions=True)
            return
        await opening  # raises the error that prevented the open
        await server.listen_kafka()
        reporting.cancel()
        _calm_collector()
        keep_freed_memory()
        kafka = None if server.kafka is None else server.kafka.address
        started(Started(url=server.url, kafka=kafka, plan=plan, recovery=service.store.recovery))
        manager.ready(f"serves the {plan.backend} store {plan.path} at {server.url}")
        await stopping
    finally:
        reporting.cancel()
        stopping.cancel()
        manager.stopping()
        await server.stop()


async def _report_recovery(manager: ServiceManager, service: LogService) -> None:
    """Report the progress of the recovery to the service manager, until cancelled."""
    while manager.is_present:
        progress = (await service.health()).progress
        if progress is not None:
            manager.recovering(progress)
        await asyncio.sleep(REPORT_EVERY_S)


def _calm_collector() -> None:
    """Exclude existing objects from collections, and collect new objects less often."""
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next bodies and answers, where it is glibc.

    Without it each body of 1 MB gets new pages from the kernel and returns them: 256 page faults, which take longer
    than to copy the body three times. Costs up to KEPT_BYTES of memory after load. All threads share one heap: each
    with a heap of its own would keep what other threads need.
    """
    import ctypes  # now, so that a start does not wait for it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, HEAP_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_ARENA_MAX, 1)


def _reload(server: Server) -> None:
    """Read the token file and the files of TLS again at SIGHUP, each by itself: a token is revoked also while a
    certificate cannot be read. A wrong file changes nothing.

    A service manager sends SIGHUP to any server that it reloads; without these files there is nothing to do.
    """
    settings = server.service.settings
    files = (
        ("the token file", settings.token_file, server.reload_tokens),
        ("the certificate", settings.tls_cert, server.reload_certificate),
    )
    for name, path, read in files:
        if path is None:
            log.info("SIGHUP: %s is not set", name)
            continue
        try:
            read()
        except SettingsError as error:
            log.error("SIGHUP: %s stays as it was: %s", name, error.message)  # noqa: TRY400  # no stack trace
        else:
            log.info("SIGHUP: %s was read again", name)
