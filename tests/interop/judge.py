"""A JVM that answers call after call of a peer's scripts: a start costs more than most calls.

Owns the process and the form of its answers (see Judge.java of the peers); must not know the calls. It is started by
the first call, and ends when this process closes its end of the connection, at the latest with this process.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

ANSWER: Final = b"\x01"
"""Begins the line before an answer; other bytes are what the setup or the JVM itself prints."""
PATIENCE_S = 20.0
"""For the end of the JVM after its connection is closed; then it is killed."""


class JudgeError(AssertionError):
    """The JVM ended, or did not answer in time. The message holds the call and what it printed last."""


class Judge:
    """One JVM, started by `script`; calls of several threads wait for each other."""

    def __init__(self, script: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = [str(script)]
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._answers: IO[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, *words: str | Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Return the status and output of one call, as if its script had been run."""
        call = [str(word) for word in words]
        line = "\t".join(call)
        assert line.count("\t") == len(call) - 1, call
        assert "\n" not in line, call
        with self._lock:
            try:
                return self._ask(call, f"{line}\n".encode(), timeout_s)
            except BaseException:  # also pytest's own timeout: a later answer would be this one's
                self._end()
                raise

    def end(self) -> None:
        """End the JVM if it runs; the next call starts another."""
        with self._lock:
            self._end()

    def _ask(
        self, call: list[str], line: bytes, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        connection, answers = self._started()
        connection.settimeout(timeout_s)
        printed: list[bytes] = []
        try:
            connection.sendall(line)
            while not (first := answers.readline()).startswith(ANSWER):
                printed.append(first)
                if not first:
                    raise JudgeError(_failure(call, "the JVM ended", printed))
            status, out, err, more = first[1:].split()
            output = answers.read(int(out)), answers.read(int(err))
        except OSError as error:
            raise JudgeError(_failure(call, f"{type(error).__name__}: {error}", printed)) from error
        if (len(output[0]), len(output[1])) != (int(out), int(err)):
            raise JudgeError(_failure(call, "the JVM ended in its answer", printed))
        if more != b"more":
            self._end()
        stdout, stderr = (part.decode() for part in output)
        return subprocess.CompletedProcess(call, int(status), stdout, stderr)

    def _started(self) -> tuple[socket.socket, IO[bytes]]:
        if self._connection is None or self._answers is None:
            self._connection, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    self._command,
                    env={**self._environment, **os.environ},
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=theirs.fileno(),
                    start_new_session=True,
                )
            self._answers = self._connection.makefile("rb")
            atexit.register(self.end)
        return self._connection, self._answers

    def _end(self) -> None:
        if self._answers is not None:
            self._answers.close()
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            atexit.unregister(self.end)
        self._process = self._connection = self._answers = None


def _failure(call: list[str], problem: str, printed: list[bytes]) -> str:
    said = b"".join(printed)[-8000:].decode(errors="replace").strip()
    return f"{' '.join(call)}: {problem}\n{said}"
