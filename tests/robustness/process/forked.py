"""`logserver` in processes of their own, forked from a process that has imported everything already.

Owns the fork: such a process has its own arguments, environment, files and signals, but not the second of computing
that the imports take. Must not know what it does. The start of a new interpreter is tested in tests/http/test_serve.py
and tests/cli/test_process.py.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import IO, Any

from logserver.__main__ import main

IMPORTED = (
    "api.server",
    "logserver.cli.serve",
    *(f"logserver.cli.offline.{name}" for name in ("verify", "dump", "inspect", "find", "salvage")),
    *(f"storage.{name}" for name in ("kafka.store", "kafka.tools")),
    *(f"storage.{name}" for name in ("rocketmq.store", "rocketmq.tools")),
)
MOST_BYTES = 1 << 17  # of a request: the arguments and the environment
PRELOAD = "LD_PRELOAD"  # only a new interpreter obeys it
PATIENCE_S = 60.0


class Forked:
    """A process `logserver ARGUMENTS...`, used like a `subprocess.Popen` whose output is text."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        open_files: int | None = None,
    ) -> None:
        """Start it, with a limit of its open files if one is given."""
        environment = os.environ if environment is None else environment
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "open_files": open_files,
        }
        ends = [os.pipe() for _ in range(3)]
        try:
            _send(environment.get(PRELOAD), request, [writing for _, writing in ends])
        finally:
            for _, writing in ends:
                os.close(writing)
        self.stdout: IO[str] = os.fdopen(ends[0][0])
        self.stderr: IO[str] = os.fdopen(ends[1][0])
        self._status: IO[str] = os.fdopen(ends[2][0])
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._ended(0)

    def _ended(self, timeout_s: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and its exit code is on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, str]:
        """Wait for its end; return the rest of standard output and standard error."""
        with ThreadPoolExecutor(2) as threads, self.stdout, self.stderr:
            output, errors = threads.submit(self.stdout.read), threads.submit(self.stderr.read)
            if self._ended(timeout) is None:
                self.kill()  # else the threads read on
                raise subprocess.TimeoutExpired("logserver", timeout)
            return output.result(), errors.result()


def _send(preload: str | None, request: Mapping[str, Any], files: Sequence[int]) -> None:
    data = json.dumps(request).encode()
    assert len(data) < MOST_BYTES
    socket.send_fds(_forking(preload), [data], files)


@cache
def _forking(preload: str | None) -> socket.socket:
    """Start the process that forks; return the channel to it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(its.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=os.environ if preload is None else {**os.environ, PRELOAD: preload},
            pass_fds=[its.fileno()],
        )
    atexit.register(_end, ours, process)
    return ours


def _end(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    process.wait()


def fork_on_request(channel: socket.socket) -> None:
    """Fork a process for each request, until the channel is closed. Return in a forked process, as `logserver`."""
    while True:
        data, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 3)
        if not data:
            sys.exit()
        if os.fork() == 0:
            channel.close()
            return become(json.loads(data), *files)
        for number in files:
            os.close(number)
        with suppress(ChildProcessError):  # none is left
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def become(request: Mapping[str, Any], output: int, errors: int, status: int) -> None:
    """Fork again: the first process reports the pid and the exit code of the second, which is the one asked for."""
    pid = os.fork()
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for number in (output, errors):
        os.close(number)
    if pid:
        os.write(status, f"{pid}\n".encode())
        os.close(1)
        os.close(2)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, f"{code}\n".encode())
        os._exit(0)
    os.close(status)
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["open_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["open_files"], request["open_files"]))
    sys.argv = ["logserver", *request["arguments"]]


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a forked process shares what it does not collect
    fork_on_request(socket.socket(fileno=int(sys.argv[1])))
    main()
