"""A server in a process of its own, as a user starts it.

Owns how it is started, called, measured and stopped; must not know what it should answer.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tests.http.harness import JSON
from tests.robustness.process.forked import Forked

LISTEN = ("--listen", "127.0.0.1:0")


class Running:
    """A server in a process of its own.

    It is forked, or run by an interpreter that imports everything: `interpreter`.
    """

    def __init__(self, *options: str | Path, interpreter: bool = False) -> None:
        words = ["serve", *LISTEN, *map(str, options)]
        self.process = interpreted(words) if interpreter else Forked(words)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.facts: dict[str, Any] = json.loads(line)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; return status and decoded body."""
        request = urllib.request.Request(
            self.facts["url"] + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": JSON, "Accept": JSON},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def values(self, topic: str) -> list[Any]:
        status, rows = self.call("GET", f"/topics/{topic}/partitions/0/records?max_records=10000")
        assert status == 200
        return [row["value"] for row in rows]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait for the end; return exit code and standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        code = self.process.returncode
        assert code is not None
        return code, errors

    def peak_bytes(self) -> int:
        """Return the server's peak memory so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def interpreted(words: Sequence[str]) -> subprocess.Popen[str]:
    """Start `logserver` as a user does."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "logserver", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def not_started(*options: str | Path) -> tuple[int | None, str]:
    """Return the exit code and the standard error of a server that does not start."""
    process = Forked(["serve", *map(str, options)])
    output, errors = process.communicate()
    assert output == ""
    return process.returncode, errors


Serve: TypeAlias = Callable[..., Running]
