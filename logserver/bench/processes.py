"""The servers under load as child processes: started, pinned to cores, their processor time read.

Owns the processes; must not know what is asked of them. A child is ended by its own pid only.
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
)  # what children run, as this process does
STOP_S: Final = 30.0
LEAST_CPU_S: Final = 0.05  # five ticks: a fifth of it may be off


class Cores(NamedTuple):
    """Which cores the servers and which the load generator may use; None: any."""

    servers: frozenset[int] | None = None
    generator: frozenset[int] | None = None

    @classmethod
    def apart(cls) -> Cores:
        """The last core for the generator, the others for the servers, where there are two."""
        if not hasattr(os, "sched_getaffinity"):
            return cls()
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            return cls()
        return cls(frozenset(usable[:-1]), frozenset(usable[-1:]))

    def pinned_generator(self) -> AbstractContextManager[None]:
        """This process on the generator's cores, until the end of the block."""
        return _pinned(self.generator)

    def pinned_servers(self) -> AbstractContextManager[None]:
        """This process on the servers' cores, and so what it starts meanwhile, until the end of the block."""
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
    """A child did not start, or one that works for the load failed."""


class Server(NamedTuple):
    """One that serves. `pid` None: not known, so no processor time."""

    url: str
    pid: int | None

    def cpu_s(self) -> float | None:
        """Processor time of all its threads since its start; None where the system does not tell."""
        return None if self.pid is None else cpu_s(self.pid)


def cpu_s(pid: int) -> float | None:
    """Processor time of all threads of a process since its start; None where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def ended_cpu_s() -> float:
    """Processor time of all children that have ended and been waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s_per_million(used_s: float, records: int) -> float | None:
    """None where either is too small to divide: the system counts in ticks of 10 ms."""
    return used_s / records * 1e6 if records and used_s >= LEAST_CPU_S else None


def rss_bytes(pid: int) -> int | None:
    """Memory of a process that is in use; None where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def allocated_bytes(folder: Path) -> int:
    """What the files in a folder take on disk; holes of sparse ones take nothing."""
    block_bytes, blocks = 512, 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a running server deletes files meanwhile
                blocks += Path(place, name).lstat().st_blocks
    return blocks * block_bytes


def store_server(backend: str, data: Path, flush: str) -> Sequence[str]:
    """The command that serves a store."""
    place = ["--data", str(data), "--backend", backend, "--flush", flush]
    return ["-m", "logserver", "serve", *place, "--listen", "127.0.0.1:0", "--exit-with-stdin"]


@contextmanager
def running(command: Sequence[str], cores: frozenset[int] | None) -> Iterator[Server]:
    """A child that serves, until the end of the block. Raises ServerFailed."""
    with tempfile.TemporaryFile() as told, _child(command, told) as process:
        if cores is not None:
            os.sched_setaffinity(process.pid, cores)  # before it has threads: they inherit it
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(STOP_S)
            told.seek(0)
            problem = told.read().decode(errors="replace")[-2000:]
            raise ServerFailed(f"{' '.join(command)}: {problem}")
        yield Server(json.loads(line)["url"], process.pid)


@contextmanager
def _child(command: Sequence[str], told: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Ended at the end of the block; `told` gets its standard error."""
    process = subprocess.Popen(
        [sys.executable, "-P", *command],
        stdin=subprocess.PIPE,  # a store's server ends with it: none outlives this process
        stdout=subprocess.PIPE,
        stderr=told,
        env=_environment(),
        process_group=0,  # Ctrl-C is for this process, which then stops its children
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
    """Ours, less the server's settings; children run the same package as this process, installed or sources."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("LOGSERVER_")
    }
    environment["PYTHONPATH"] = str(HOME)
    return environment
