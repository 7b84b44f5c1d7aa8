"""What a server opens: the store and its mode, and how many files and connections.

Owns the choice of backend and of read-only: the directory decides, the settings may restrict. A directory that was
made by a real server is served read-only until `write` takes it over. Owns the process's limit of open files too, and
its shares for store and connections. A store that reaches the limit in the middle of a change is fenced, so neither
share may use descriptors of the other. Must not open anything before `open` is called.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from logserver.config import Settings
from logserver.errors import SettingsError
from storage import (
    LogStore,
    Progress,
    StoreOptions,
    backends,
    detect,
    open_store,
    serves_kafka_clients,
)

log = logging.getLogger(__name__)
P = TypeVar("P")
R = TypeVar("R")

NEW_STORE_BACKEND: Final = "kafka"
MEMORY_BACKEND: Final = "memory"

# The event loop and the standard streams hold 17 descriptors. The rest is for connections that are being rejected,
# and for a file that is opened for a moment in addition to the cached ones.
RESERVED: Final = 32
# Threads that repair partitions at a start: each waits for the disk most of the time. Each may have a file open that is
# not cached, so the cache gets fewer files, and a thread takes no more than an eighth of the store's share.
REPAIRERS: Final = 16
FILES_OF_A_REPAIRER: Final = 8
FEWEST: Final = 32  # for the store and the connections together: with fewer the server is of no use


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """The store to open. `notice` explains to the operator why the store is read-only."""

    backend: str
    path: Path
    read_only: bool
    notice: str | None
    options: StoreOptions

    def open(self, progress: Progress) -> LogStore:
        """Open the store and recover it. Blocks. Raises what `storage.open_store` raises."""
        options = replace(self.options, progress=progress)
        if not self.read_only:  # else nothing is synced
            threads = max(1, min(REPAIRERS, options.open_files // FILES_OF_A_REPAIRER))
            options = replace(
                options,
                open_files=options.open_files - threads,
                repair=partial(_repair_in_threads, threads),
            )
        return open_store(self.backend, self.path, options, read_only=self.read_only)


def _repair_in_threads(
    threads: int, work: Callable[[P], R], parts: Sequence[P], /
) -> Generator[R, None, None]:
    """See storage.RepairRunner. Of several errors, the error of the first part is raised. After an error, or when the
    generator is closed, the parts that have not begun are dropped and the threads are joined.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="repair") as pool:
        yield from pool.map(work, parts)


def plan_store(settings: Settings) -> StorePlan:
    """Inspect the directory and choose the backend and the mode.

    Raises UnsupportedFormat for a directory that holds other data, IoFailure for an unreadable directory, and
    SettingsError if the settings do not fit the store.
    """
    asked = settings.backend
    if asked is not None and asked not in backends():
        _refuse(settings, "backend", f"is {asked!r}: choose one of {', '.join(backends())}")
    store = detect(settings.data)
    if store is not None and asked is not None and asked != store.backend:
        _refuse(settings, "backend", f"is {asked}, but {settings.data} is a {store.backend} store")
    if asked == MEMORY_BACKEND and not settings.ephemeral:
        _refuse(settings, "backend", f"is {asked}, which keeps nothing: it needs ephemeral")
    if store is None and settings.read_only:
        _refuse(settings, "read_only", f"needs a store, and {settings.data} holds none")
    backend = store.backend if store is not None else asked or NEW_STORE_BACKEND
    if settings.listen_kafka is not None and not serves_kafka_clients(backend):
        problem = f"needs another format: a {backend} store is not offered to Kafka clients"
        _refuse(settings, "listen_kafka", problem)
    foreign = store is not None and not store.adopted and not settings.write
    notice = None
    if foreign and not settings.read_only:
        notice = (
            f"{settings.data} was made by another server: it is served read-only and unchanged; "
            "--write takes it over"
        )
    return StorePlan(
        backend=backend,
        path=settings.data,
        read_only=settings.read_only or foreign,
        notice=notice,
        options=StoreOptions(
            settings=settings.set,
            accept_loss=settings.accept_loss,
            open_files=settings.open_files,
        ),
    )


def _refuse(settings: Settings, name: str, problem: str) -> None:
    source = settings.sources.get(name, "default")
    raise SettingsError(f"setting {name} ({source}) {problem}", setting=name, source=source)


def raise_file_limit() -> int:
    """Raise the soft limit to the hard limit, as a Java VM does. Return the limit in force afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # the hard limit is above the kernel's own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def fit_to_file_limit(settings: Settings, limit: int) -> Settings:
    """Return settings with `open_files` and `max_connections` lowered to fit within `limit`.

    If both need more, each gets half. Connections count twice if there is a port for Kafka clients: each port may have
    as many. A lowered setting is logged.
    """
    if limit == resource.RLIM_INFINITY:
        return settings
    room = max(limit - RESERVED, FEWEST)
    ports = 1 if settings.listen_kafka is None else 2
    files = min(settings.open_files, max(room // 2, room - ports * settings.max_connections))
    connections = min(settings.max_connections, (room - files) // ports)
    for name, wanted, possible in (
        ("open_files", settings.open_files, files),
        ("max_connections", settings.max_connections, connections),
    ):
        if possible < wanted:
            log.warning(
                "%s lowered from %d to %d: this process may have %d files open (ulimit -n)",
                *(name, wanted, possible, limit),
            )
    return replace(settings, open_files=files, max_connections=connections)
