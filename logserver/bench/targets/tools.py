"""Scripts and tools of the real servers, as child processes.

Owns their start and their end: one that fails tells its last words, none outlives a run. Must not know what they do.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logserver.bench.processes import STOP_S, ServerFailed
from logserver.errors import ServerNotStarted

TIMEOUT_S: Final = 1800.0  # of any of them: the first one fetches the server
NEEDED: Final = ("java", "javac", "mvn", "bash")
LAST_WORDS: Final = 1000
SERVER_PORTS: Final = range(10_000, 32_000)  # Linux gives those from 32,768 to outgoing connections


class Tool:
    """One that runs. `with` ends it."""

    def __init__(self, *command: object, env: Mapping[str, str] | None = None) -> None:
        self.name = " ".join(map(str, command[:2]))
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            process_group=0,  # Ctrl-C is for this process, which then ends it
        )

    def __enter__(self) -> Tool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()

    def output(self) -> str:
        """Standard output, when it has ended. Raises ServerFailed where that was not well."""
        try:
            output, errors = self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"{self.name}: not done after {TIMEOUT_S} s") from None
        if self._process.returncode:
            raise ServerFailed(f"{self.name}: {(errors or output)[-LAST_WORDS:]}")
        return output


def run(*command: object, env: Mapping[str, str] | None = None) -> str:
    """Standard output of one that is waited for. Raises ServerFailed."""
    with Tool(*command, env=env) as tool:
        return tool.output()


def require(peers: Path, name: str) -> Path:
    """The folder of a real server's scripts. Raises ServerNotStarted where it, or what they need, is missing."""
    folder = peers / name
    if not (folder / "perf").is_file():
        message = (
            f"{name}: {folder} has no script perf: --peers is tests/interop/peers of a checkout"
        )
        raise ServerNotStarted(message, exit_code=None)
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        message = f"{name}: the real server needs {', '.join(missing)} on PATH"
        raise ServerNotStarted(message, exit_code=None)
    return folder


def free_ports(offsets: tuple[int, ...] = ()) -> int:
    """A port that is free, with those so far behind it. It is none that a system gives to outgoing connections, one of
    which could take it before the server listens.
    """
    for _ in range(100):
        port = secrets.choice(SERVER_PORTS)
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port
    raise ServerFailed("no free ports on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
