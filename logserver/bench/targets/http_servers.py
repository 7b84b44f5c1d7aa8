"""Targets that are loaded over HTTP: our server with either backend, servers without a store, and any other server.

Owns the start and the end of our servers, with kill -9 if the workload asks for it, the size of their files, and the
topics of a server that others run. Must not know the order of a repeat's load: http_load.py does.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

import logserver
from logserver.bench.http_load import HttpLoad, not_done
from logserver.bench.http_templates import Shape, load_shape, our_shape
from logserver.bench.processes import Server, allocated_bytes, running, store_server
from logserver.bench.result import NotDone, Repeat, TargetFacts
from logserver.bench.targets.base import Bench, Tell
from logserver.bench.wire import Address, call
from logserver.bench.workload import Workload
from logserver.errors import ClientError, ServerNotStarted, ServerUnreachable

SCAN_ALL: Final = ("--max-scanned-records", "1000000000")  # so that a lookup is one request
ROOM: Final = 3  # times the size of its values: the most disk space a store may need
NO_STORE, BARE = "no-store", "bare"
CEILINGS: Final = (NO_STORE, BARE)
UNANSWERED: Final = (OSError, ClientError)


class _HttpServer:
    """The common part: how such a server is loaded. `not_killed`: the reason why it is not killed, if it never is."""

    def __init__(
        self, bench: Bench, shape: Shape, facts: TargetFacts, not_killed: str = ""
    ) -> None:
        self.facts = facts
        self._bench = bench
        self._shape = shape
        self._not_killed = not_killed

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that HTTP load on this server does not support."""
        missing = not_done(workload, self._shape)
        if workload.own.kill and self._not_killed:
            missing.append(NotDone("logserver.kill", self._not_killed))
        return missing

    def close(self) -> None:
        """Do nothing: each repeat has stopped its server, or deleted its topics."""

    def _load(self, workload: Workload, server: Server, prefix: str, tell: Tell) -> HttpLoad:
        return HttpLoad(
            workload,
            self._shape,
            Address.of(server.url),
            runner=self._bench.runner,
            prefix=prefix,
            pid=server.pid,
            tell=tell,
        )


class OurServer(_HttpServer):
    """Our server with one backend as a child process: a new store for each repeat."""

    def __init__(self, bench: Bench, backend: str) -> None:
        facts = TargetFacts(
            name=f"logserver-{backend}", kind="logserver", version=logserver.__version__
        )
        super().__init__(bench, our_shape(), facts)
        self._backend = backend

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on a new store."""
        self._check_room(workload)
        with tempfile.TemporaryDirectory(dir=self._bench.folder) as folder:
            data = Path(folder) / "data"
            with self._running(data, workload) as (server, start_s):
                values: dict[str, Any] = {"start_s": start_s}
                values["empty_rss_bytes"] = server.rss_bytes()
                load = self._load(workload, server, f"bench-{number}", tell)
                load.run()
                values |= load.values | _left(server, data, load.acknowledged)
                if workload.own.kill and server.pid is not None:
                    os.kill(server.pid, signal.SIGKILL)
            if workload.own.kill:
                values["recovery_s"] = self._recovered(data, workload, load, tell)
            if workload.own.kill or workload.own.lookups:
                with self._running(data, workload) as (_, restart_s):
                    values["restart_s"] = restart_s
        return Repeat(**values, errors=load.errors)

    def _recovered(self, data: Path, workload: Workload, load: HttpLoad, tell: Tell) -> float:
        """Return how long the start after the kill took; report an error if records were lost."""
        tell("starting again")
        with self._running(data, workload) as (server, recovery_s):
            load.topics.address = Address.of(server.url)
            stored = load.topics.stored()
            if stored != load.acknowledged:
                load.errors.append(f"{load.acknowledged} acknowledged, {stored} after kill -9")
        return recovery_s

    @contextmanager
    def _running(self, data: Path, workload: Workload) -> Iterator[tuple[Server, float]]:
        """Start the server; yield it with the seconds until it served."""
        began_s = time.perf_counter()
        command = [*store_server(self._backend, data, workload.own.flush), *SCAN_ALL]
        if workload.own.open_files:
            command += ["--open-files", str(workload.own.open_files)]
        with running(command, self._bench.cores.servers) as server:
            yield server, time.perf_counter() - began_s

    def _check_room(self, workload: Workload) -> None:
        needed = round(workload.filled_records * workload.message_size * ROOM)
        free = shutil.disk_usage(self._bench.folder).free
        if needed > free:
            message = f"{workload.name}: fillGB: {self._bench.folder} has {free} bytes free, {needed} may be needed"
            raise ServerNotStarted(message, exit_code=None)


def _left(server: Server, data: Path, records: int) -> dict[str, Any]:
    """Return memory and disk use after the load."""
    disk_bytes = allocated_bytes(data)
    return {
        "server_rss_bytes": server.rss_bytes(),
        "disk_bytes": disk_bytes,
        "disk_bytes_per_record": disk_bytes / records if records else None,
    }


class Ceiling(_HttpServer):
    """A server without a store, the ceiling of the others. It acknowledges records and stores nothing, so counts of
    stored records, lookups and restarts are not possible.
    """

    def __init__(self, bench: Bench, name: str) -> None:
        shape = msgspec.structs.replace(
            our_shape(), end_offset=None, key_lookup=None, time_lookup=None
        )
        facts = TargetFacts(name=name, kind="http")
        super().__init__(bench, shape, facts, "there is no store to recover")
        checkout = bench.peers.resolve().parent.parent.parent
        self._command = serve_command(checkout / "scripts", name)

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on a new server."""
        with running(self._command, self._bench.cores.servers) as server:
            load = self._load(workload, server, f"bench-{number}", tell)
            load.run()
        return Repeat(**load.values, errors=load.errors)


def serve_command(scripts: Path, name: str) -> Sequence[str]:
    """Return the command of a server without a store. Raises ServerNotStarted if its script is missing."""
    script = scripts / "load_test"
    if not script.is_file():
        message = f"{name}: there is no {script}: --peers is tests/interop/peers of a checkout"
        raise ServerNotStarted(message, exit_code=None)
    return [str(script), "serve", f"--{name}"]


class ForeignServer(_HttpServer):
    """A server that others run, by the path of the description of its calls. Its process is not known: no processor
    time, no disk. Raises ServerUnreachable if no server answers there, and StrangeAnswer.
    """

    def __init__(self, bench: Bench, path: str) -> None:
        shape = load_shape(path)
        facts = TargetFacts(name=shape.name, kind="http", version=shape.version)
        super().__init__(bench, shape, facts, "its process is not ours")
        self._prefix = f"bench-{secrets.token_hex(3)}"
        try:
            call(Address.of(shape.url), "GET", "/")
        except OSError as error:
            message = f"{shape.name}: {shape.url}: {error}"
            raise ServerUnreachable(message, url=shape.url) from error

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields that its description has no call for, and the fields that need its process."""
        return [*super().not_done(workload), NotDone("logserver.flush", "as it is set up")]

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on new topics, which are deleted afterwards."""
        prefix = f"{self._prefix}-{workload.name}-{number}"
        load = self._load(workload, Server(self._shape.url, None), prefix, tell)
        try:
            load.run()
        except BaseException:
            with suppress(*UNANSWERED):  # the first error says more
                load.topics.delete()
            raise
        try:
            load.topics.delete()
        except UNANSWERED as error:
            load.errors.append(f"its topics could not be deleted: {error}")
        return Repeat(**load.values, errors=load.errors)
