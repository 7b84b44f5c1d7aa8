"""The runner of pages: runs the commands that a page shows, in order, and compares what they print.

A `console` block contains `$ command` lines, each followed by its output; `...` in the output matches any text. All
commands of a page run in one bash, in a folder that resembles a clone: scripts/, tests/ and .venv/bin/logserver exist.
`Tools` says what these two commands run: by default the sources, as they are. It must not know any page.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from logserver.bench.targets.tools import free_ports
from tests.sources import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_ADDRESS = "127.0.0.1:8082"
KAFKA_ADDRESS = "127.0.0.1:9092"  # the port for Kafka clients, where a page names one
STARTS_IN_S = 800  # the real script creates its environment first; pytest's own limit is 900 s

needs_clients = pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("kcat") is None,
    reason="curl or kcat is not installed",
)


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (command, expected output) in the page's order."""
    for block in BLOCK.findall(page.read_text()):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def _free_address() -> str:
    return f"127.0.0.1:{free_ports()}"


@dataclass(frozen=True)
class Tools:
    """The commands of a page: bash lines that run `logserver` and `scripts/server` with their arguments "$@"."""

    logserver: str
    server: str

    @classmethod
    def of_command(cls, command: str) -> Tools:
        """Return the tools of a command that starts logserver; scripts/server is its `serve`."""
        serve = f'dir=$1; shift; exec {command} serve --data "$dir" "$@"'
        return cls(f'exec {command} "$@"', serve)

    @classmethod
    def of_clone(cls, clone: Path) -> Tools:
        """Return the tools of a clone, by their own paths: through a link, its scripts would mistake their folder."""
        return cls(f'exec {clone}/.venv/bin/logserver "$@"', f'exec {clone}/scripts/server "$@"')


SOURCES: Final = Tools.of_command(f"env PYTHONPATH={ROOT} {sys.executable} -P -m logserver")


def _clone_like(folder: Path, tools: Tools) -> None:
    """Create the files that the tour's commands expect around them."""
    (folder / "tests").symlink_to(ROOT / "tests")
    for path, line in (
        (folder / "scripts" / "server", tools.server),
        (folder / ".venv" / "bin" / "logserver", tools.logserver),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/usr/bin/env bash\n{line}\n")
        path.chmod(0o755)


def _pattern(expected: str) -> str:
    return ".*".join(re.escape(part) for part in expected.strip().split("..."))


def _wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + STARTS_IN_S
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{address}/readyz") as answer:
                if answer.status == 200:
                    return
        except (URLError, ConnectionError):
            time.sleep(0.05)
    pytest.fail("the server of the tour did not get ready")


class _Shell:
    """One bash for the whole tour, so that `&`, `%1` and `wait` work as they do for a user."""

    END = "--end-of-command--"

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-m"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\nprintf '\\n%s\\n' {self.END}\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(self.END):
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"bash ended at: {command}")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("kill $(jobs -p) 2>/dev/null; exit\n")
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def take_the_tour(
    page: Path,
    folder: Path,
    tools: Tools = SOURCES,
    environment: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Run the page's commands in order, in a folder that resembles a clone; fail at the first unexpected output.

    Return the seconds that each command took. That of a server ends when it is ready.
    """
    _clone_like(folder, tools)
    address, kafka = _free_address(), _free_address()
    ours = {"LOGSERVER_LISTEN": address, "LOGSERVER_URL": f"http://{address}"}
    shell = _Shell(folder, {**os.environ, **(environment or {}), **ours})
    times_s: dict[str, float] = {}
    try:
        for command, expected in steps(page):
            began = time.monotonic()
            command = command.replace(DEFAULT_ADDRESS, address).replace(KAFKA_ADDRESS, kafka)
            if command.endswith("&"):
                shell.run(f"{command[:-1]} > server.out 2>&1 &")
                _wait_until_ready(address)
                printed = (folder / "server.out").read_text()
                expected = f"...{expected}"  # the line for programs comes first where stdout is no terminal
            else:
                printed = shell.run(command)
            times_s[f"{len(times_s) + 1}: {command}"] = time.monotonic() - began
            printed = printed.replace(address, DEFAULT_ADDRESS).replace(kafka, KAFKA_ADDRESS)
            shown = re.fullmatch(_pattern(expected), printed.strip(), re.DOTALL)
            assert shown, f"{command}\n{printed}"
    finally:
        shell.close()
    return times_s
