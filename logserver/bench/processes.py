"""The servers under load as child processes: start them, pin them to cores, read their processor time.

Owns the processes; must not know which requests they get. A child is stopped by its own pid only.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

import logserver

HOME: Final = (
    Path(logserver.__file__).resolve().parent.parent
)  # children import the same package as this process
STOP_S: Final = 30.0
LEAST_CPU_S: Final = 0.05  # five ticks of the system's clock: the error may be a fifth


class Cores(NamedTuple):
    """The cores that the servers and the load generator may use; None: any core."""

    servers: frozenset[int] | None = None
    generator: frozenset[int] | None = None

    @classmethod
    def apart(cls) -> Cores:
        """Return the last core for the generator and the others for the servers; any core for both if there is only one
        core, or if the system cannot pin processes.
        """
        if not hasattr(os, "sched_getaffinity"):
            return cls()
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            return cls()
        return cls(frozenset(usable[:-1]), frozenset(usable[-1:]))

    def pinned_generator(self) -> AbstractContextManager[None]:
        """Pin this process to the generator's cores until the block ends."""
        return _pinned(self.generator)

    def pinned_servers(self) -> AbstractContextManager[None]:
        """Pin this process, and processes it starts meanwhile, to the servers' cores until the block ends."""
        return _pinned(self.servers)


@contextmanager
def _pinned(cores: frozenset[int] | None) -> Iterator[None]:
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class ServerFailed(Exception):
    """A child process that did not start, or a process used for the load that failed."""


class Server(NamedTuple):
    """A running server. `pid` None: unknown, so its processor time cannot be read."""

    url: str
    pid: int | None

    def cpu_s(self) -> float | None:
        """Return the processor time of all its threads since its start; None if the system does not report it."""
        return None if self.pid is None else cpu_s(self.pid)

    def rss_bytes(self) -> int | None:
        """Return the resident memory; None if the system does not report it."""
        return None if self.pid is None else rss_bytes(self.pid)


def cpu_s(pid: int) -> float | None:
    """Return the processor time of all threads of a process since its start; None if the system does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def ended_cpu_s() -> float:
    """Return the processor time of all child processes that have ended and were waited for, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s_per_million(used_s: float, records: int) -> float | None:
    """Return processor seconds per million records; None if either is too small to divide. The clock ticks every 10
    ms.
    """
    return used_s / records * 1e6 if records and used_s >= LEAST_CPU_S else None


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def allocated_bytes(folder: Path) -> int:
    """Return the disk space allocated to the files in a folder; holes of sparse files take none."""
    block_bytes, blocks = 512, 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a running server deletes files meanwhile
                blocks += Path(place, name).lstat().st_blocks
    return blocks * block_bytes


def store_server(backend: str, data: Path, flush: str) -> Sequence[str]:
    """Return the command that serves a store."""
    place = ["--data", str(data), "--backend", backend, "--flush", flush]
    return ["-m", "logserver", "serve", *place, "--listen", "127.0.0.1:0", "--exit-with-stdin"]


@contextmanager
def running(command: Sequence[str], cores: frozenset[int] | None) -> Iterator[Server]:
    """Start a server as a child process; it is stopped when the block ends. Raises ServerFailed."""
    with tempfile.TemporaryFile() as errors, _child(command, errors) as process:
        if cores is not None:
            os.sched_setaffinity(process.pid, cores)  # before it starts threads: they inherit it
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(STOP_S)
            errors.seek(0)
            problem = errors.read().decode(errors="replace")[-2000:]
            raise ServerFailed(f"{' '.join(command)}: {problem}")
        yield Server(json.loads(line)["url"], process.pid)


@contextmanager
def _child(command: Sequence[str], errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Python child process, with standard error to `errors`; it is stopped when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-P", *command],
        stdin=subprocess.PIPE,  # a store's server ends when this pipe closes, so none is left over
        stdout=subprocess.PIPE,
        stderr=errors,
        env=_environment(),
        process_group=0,  # Ctrl-C must reach only this process, which then stops its children
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _environment() -> dict[str, str]:
    """Return the environment of this process without the server's settings. With it a child runs the same package as
    this process, installed or from sources.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("LOGSERVER_")
    }
    environment["PYTHONPATH"] = str(HOME)
    return environment
