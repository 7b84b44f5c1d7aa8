"""Scripts and tools of the real servers, as child processes.

Owns their start and end: a failure carries the end of their output, and none outlives a run. Must not know what the
tools do.
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

TIMEOUT_S: Final = 1800.0  # limit of any tool: the first one downloads the server
NEEDED: Final = ("java", "javac", "mvn", "bash")
LAST_WORDS: Final = 1000
SERVER_PORTS: Final = range(10_000, 32_000)  # Linux takes outgoing ports from 32,768 on


class Tool:
    """A running tool. Leaving the `with` block ends it."""

    def __init__(self, *command: object, env: Mapping[str, str] | None = None) -> None:
        self.name = " ".join(map(str, command[:2]))
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            process_group=0,  # Ctrl-C must reach only this process, which then ends the tool
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
        """Wait until the tool ends; return its standard output. Raises ServerFailed if it fails or takes too long."""
        try:
            output, errors = self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"{self.name}: not done after {TIMEOUT_S} s") from None
        if self._process.returncode:
            raise ServerFailed(f"{self.name}: {(errors or output)[-LAST_WORDS:]}")
        return output


def run(*command: object, env: Mapping[str, str] | None = None) -> str:
    """Run a tool to its end; return its standard output. Raises ServerFailed."""
    with Tool(*command, env=env) as tool:
        return tool.output()


def require(peers: Path, name: str) -> Path:
    """Return the folder of a real server's scripts. Raises ServerNotStarted if the folder or a needed program is
    missing.
    """
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
    """Return a free port p such that p + offset is free too, for each of `offsets`. Raises ServerFailed.

    The range excludes ports that the system gives to outgoing connections: one could take the port before the server
    listens.
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
