"""Our server as a child process, with either backend: a fresh store for each repeat.

Owns its start, its end by kill -9 if the workload asks for it, and the size of its files. Must not know how it is
loaded.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import logserver
from logserver.bench.http_load import HttpLoad, not_done
from logserver.bench.http_templates import our_shape
from logserver.bench.processes import Server, allocated_bytes, rss_bytes, running, store_server
from logserver.bench.result import NotDone, Repeat, TargetFacts
from logserver.bench.targets.base import Bench, Tell
from logserver.bench.wire import Address
from logserver.bench.workload import Workload
from logserver.errors import ServerNotStarted

SCAN_ALL: Final = ("--max-scanned-records", "1000000000")  # so that a lookup is one request
ROOM: Final = 3  # times the size of its values: the most disk space a store may need


class OurServer:
    """Our server with one backend."""

    def __init__(self, bench: Bench, backend: str) -> None:
        self.facts = TargetFacts(
            name=f"logserver-{backend}", kind="logserver", version=logserver.__version__
        )
        self._bench = bench
        self._backend = backend
        self._shape = our_shape()

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that HTTP load on our server does not support."""
        return not_done(workload, self._shape)

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on a new store."""
        self._check_room(workload)
        with tempfile.TemporaryDirectory(dir=self._bench.folder) as folder:
            data = Path(folder) / "data"
            with self._running(data, workload) as (server, start_s):
                empty_rss_bytes = _rss_bytes(server)
                load = HttpLoad(
                    workload,
                    self._shape,
                    Address.of(server.url),
                    runner=self._bench.runner,
                    prefix=f"bench-{number}",
                    pid=server.pid,
                    tell=tell,
                )
                load.run()
                values = load.values | {"start_s": start_s, "empty_rss_bytes": empty_rss_bytes}
                values |= _left(server, data, load.acknowledged)
                if workload.own.kill and server.pid is not None:
                    os.kill(server.pid, signal.SIGKILL)
            if workload.own.kill:
                values["recovery_s"] = self._recovered(data, workload, load, tell)
            if workload.own.kill or workload.own.lookups:
                with self._running(data, workload) as (_, restart_s):
                    values["restart_s"] = restart_s
        return Repeat(**values, errors=load.errors)

    def close(self) -> None:
        """Do nothing: each repeat has stopped its server."""

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
        "server_rss_bytes": _rss_bytes(server),
        "disk_bytes": disk_bytes,
        "disk_bytes_per_record": disk_bytes / records if records else None,
    }


def _rss_bytes(server: Server) -> int | None:
    return None if server.pid is None else rss_bytes(server.pid)
