"""An embedded server that runs as a child process: for programs, notebooks and tests.

Owns the child process from start to stop; must not import the server, which runs in the child, nor the client before
it is used. The child's standard input is a pipe from this process, and the child stops when the pipe ends. So it does
not outlive this process, however this process ends (unless a forked child of this process keeps the pipe open).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

import msgspec

from logserver.errors import ServerNotStarted

if TYPE_CHECKING:
    from logserver.client import LogClient

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0


class _Announcement(msgspec.Struct):
    """The line that a server prints when it is ready."""

    url: str
    backend: str
    data: str
    read_only: bool
    kafka: str | None = None


class LogServer:
    """A server on the store in `path`, or on a temporary store that is deleted at the stop (None).

    `settings` are the options of `logserver serve` (docs/settings.md), such as `flush="os"`, `read_only=True` or
    `set={"segment.bytes": "1048576"}`. Use it as `async with` or, blocking, as `with`: the server runs inside the
    block and has stopped cleanly after it. Raises ServerNotStarted with the error output of the server.

    >>> with LogServer() as server:
    ...     server.backend, server.url.startswith("http://127.0.0.1:")
    ('kafka', True)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        backend: str | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        **settings: Any,
    ) -> None:
        if path is not None:
            settings = {"data": os.fspath(path), **settings}
        place = {"listen": "127.0.0.1:0", "ephemeral": settings.get("data") is None}
        self._options = {**place, "backend": backend, **settings}
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_id: int | None = None
        self._errors: IO[bytes] | None = None
        self._announced: _Announcement | None = None

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return self._running.url

    @property
    def kafka(self) -> str | None:
        """HOST:PORT for Kafka clients; None if they are not served.

        A temporary store has it, unless it is in memory. A store in `path` has it with the setting `listen_kafka`.
        """
        return self._running.kafka

    @property
    def backend(self) -> str:
        """The format of the store: kafka, rocketmq or memory."""
        return self._running.backend

    @property
    def data(self) -> str:
        """The directory of the store."""
        return self._running.data

    @property
    def pid(self) -> int | None:
        """The process id of the child, or None if no child runs."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """The output of the server on standard error since its start."""
        if self._errors is None:
            return ""
        size_bytes = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size_bytes, 0).decode(errors="replace")

    def client(self, **options: Any) -> LogClient:
        """Return a client of this server; `options` are the options of LogClient. Use it as `async with`."""
        from logserver.client import LogClient

        return LogClient(self.url, **options)

    def start(self) -> Self:
        """Start the server and block until it is ready."""
        self._spawn()
        self._wait_until_ready()
        return self

    def stop(self) -> None:
        """Stop the server: it answers every request and closes the store cleanly. Blocks.

        Kills the process if it has not ended after `stop_timeout_s`. In a forked process the server runs on: only the
        process that started it stops it.
        """
        if self._process is None:
            return
        if self._is_owner:
            self._process.terminate()
            try:
                self._process.wait(self._stop_timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._forget()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._spawn()
        try:
            await asyncio.to_thread(self._wait_until_ready)
        except asyncio.CancelledError:
            self._kill()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def _is_owner(self) -> bool:
        return self._owner_id == os.getpid()

    @property
    def _running(self) -> _Announcement:
        if self._announced is None:
            raise ServerNotStarted("the server does not run: use it as `with`", exit_code=None)
        return self._announced

    def _spawn(self) -> None:
        if self._process is not None:
            raise ServerNotStarted("the server runs already", exit_code=None)
        command = [sys.executable, "-P", "-m", "logserver", "serve", "--exit-with-stdin"]
        self._owner_id = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # read if the start fails
        self._process = subprocess.Popen(
            [*command, *_as_options(self._options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            process_group=0,  # Ctrl-C goes to this process only, which then stops the child cleanly
        )

    def _wait_until_ready(self) -> None:
        """Wait until the child reports its URL. Raises ServerNotStarted."""
        process = self._process
        if process is None or process.stdout is None:
            raise ServerNotStarted("the server does not run", exit_code=None)
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        readable = poll.poll(self._start_timeout_s * 1000)
        line = process.stdout.readline() if readable else b""
        if line:
            self._announced = msgspec.json.decode(line, type=_Announcement)
            return
        exit_code = process.wait() if readable else None
        said = self.log.strip() or f"it reported nothing for {self._start_timeout_s} s"
        self._kill()
        raise ServerNotStarted(f"the server does not start: {said}", exit_code=exit_code)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._forget()

    def _forget(self) -> None:
        """Wait for the end of the child, then close its pipes and the file of its error output. A temporary store that
        a killed child has left is removed. In a forked process only the pipes and the file are closed.
        """
        process, self._process = self._process, None
        announced, self._announced = self._announced, None
        if process is not None:
            if self._is_owner:
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            if announced is not None and self._options["ephemeral"] and self._is_owner:
                shutil.rmtree(Path(announced.data).parent, ignore_errors=True)
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def _as_options(settings: Mapping[str, Any]) -> list[str]:
    """Convert settings to options of `logserver serve`; a setting of None is left out.

    >>> _as_options({"flush": "os", "read_only": True, "auto_create_topics": False, "set": {"a": "b"}})
    ['--flush', 'os', '--read-only', '--no-auto-create-topics', '--set', 'a=b']
    """
    options: list[str] = []
    for name, value in settings.items():
        words = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            options.append(f"--{words}" if value else f"--no-{words}")
        elif isinstance(value, Mapping):
            for option, text in value.items():
                options += [f"--{words}", f"{option}={text}"]
        else:
            options += [f"--{words}", str(value)]
    return options
