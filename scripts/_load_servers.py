"""The servers under load as child processes: started, pinned to cores, their processor time read.

Owns the processes; must not know what is asked of them. A child is ended by its own pid only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

import storage

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPT: Final = ROOT / "scripts" / "load_test"
STOP_S: Final = 30.0


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

    @contextmanager
    def pinned_generator(self) -> Iterator[None]:
        """This process on the generator's cores, until the end of the block."""
        if self.generator is None:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.generator)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


class ServerFailed(Exception):
    """A child did not start."""


class Server(NamedTuple):
    """One that serves. `pid` None: not known, so no processor time."""

    url: str
    pid: int | None

    def cpu_s(self) -> float | None:
        """Processor time of all its threads since its start; None where the system does not tell."""
        if self.pid is None:
            return None
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def store_server(backend: str, data: Path, flush: str) -> Sequence[str]:
    """The command that serves a store."""
    listen = ["--listen", "127.0.0.1:0"]
    return [
        "-m",
        "logserver",
        "serve",
        "--data",
        str(data),
        "--backend",
        backend,
        "--flush",
        flush,
        *listen,
    ]


def ceiling_server(kind: str) -> Sequence[str]:
    """The command that serves nothing: see `_load_ceiling`."""
    return [str(SCRIPT), "serve", f"--{kind}"]


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
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=told,
        env=_environment(),
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
    environment.pop("PYTHONPATH", None)
    if Path(storage.__file__).resolve().parent.parent == ROOT:
        environment["PYTHONPATH"] = str(ROOT)
    return environment
