"""The files for containers and services as data, and the image of the Dockerfile run as processes of this machine.

Owns the reading of these files, and the test's own paths and addresses in place of an image's. Must not know what the
processes should do.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.sources import ROOT

DEPLOY: Final = ROOT / "docs" / "deploy"
UNIT: Final = DEPLOY / "logserver.service"
KUBERNETES: Final = DEPLOY / "kubernetes.yaml"
ACTION: Final = DEPLOY / "github-action" / "action.yml"
WORKFLOW: Final = DEPLOY / "github-workflow.yml"
GITLAB: Final = DEPLOY / "gitlab-ci.yml"
COMPOSE: Final = ROOT / "compose.yaml"

VOLUME: Final = "/var/lib/logserver"
PORT: Final = 8082
READY_IN_S: Final = 120.0
ADDRESSES: Final = (f"0.0.0.0:{PORT}", f"127.0.0.1:{PORT}", f"logserver:{PORT}", f"server:{PORT}")


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file as YAML 1.1 reads it, where 0440 is octal: so does Kubernetes."""
    return list(yaml.safe_load_all(path.read_text()))


class Instruction(NamedTuple):
    """An instruction of a Dockerfile: its name and the rest."""

    name: str
    text: str


def instructions() -> list[Instruction]:
    """Return the instructions of the Dockerfile in order."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    kept = "\n".join(line for line in lines if not line.startswith("#"))
    joined = kept.replace("\\\n", " ").splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in joined if line.strip()]


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """The part of the Dockerfile that a container runs with."""

    environment: dict[str, str]
    command: list[str]
    health: list[str]
    user: str
    volume: str
    port: int


def image_config() -> ImageConfig:
    """Return the configuration of the last stage."""
    found = instructions()
    start = max(at for at, instruction in enumerate(found) if instruction.name == "FROM")
    stage: dict[str, list[str]] = {}
    for name, text in found[start:]:
        stage.setdefault(name, []).append(text)
    words = [word for text in stage["ENV"] for word in shlex.split(text)]
    (health,) = stage["HEALTHCHECK"]
    (port,) = stage["EXPOSE"]
    return ImageConfig(
        environment=dict(word.split("=", 1) for word in words),
        command=yaml.safe_load(stage["ENTRYPOINT"][0]) + yaml.safe_load(stage["CMD"][0]),
        health=yaml.safe_load(health.partition("CMD ")[2]),
        user=stage["USER"][0],
        volume=stage["VOLUME"][0],
        port=int(port),
    )


class Machine:
    """Runs commands of the files with `logserver` and `python` on the PATH, a folder for the volume, and a free port.

    All processes end with `stop`.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.volume = folder / "volume"
        self.volume.mkdir()
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        self._running: list[subprocess.Popen[str]] = []
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name, words in (("logserver", "-P -m logserver "), ("python", "")):
            program = self.programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
            program.chmod(0o755)

    def local(self, text: str) -> str:
        """Return a text of a file with the paths and addresses of this machine."""
        for address in ADDRESSES:
            text = text.replace(address, self.address)
        return text.replace(VOLUME, str(self.volume))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process with these variables of a file."""
        kept = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        changed = {name: self.local(value) for name, value in variables.items() if name != "PATH"}
        return {**kept, **changed, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def start(self, words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a command of a file."""
        process = subprocess.Popen(
            [self.local(word) for word in words],
            env=self.environment(variables),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def run(
        self, words: Sequence[str], variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of a file to its end."""
        process = self.start(words, variables)
        output, errors = process.communicate(timeout=READY_IN_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def status(self, path: str) -> int:
        """Return the status of the server's answer; 0 if no server listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (urllib.error.URLError, ConnectionError):
            return 0

    def wait_until_ready(self, server: subprocess.Popen[str]) -> None:
        """Wait until the server accepts requests."""
        deadline = time.monotonic() + READY_IN_S
        while self.status("/readyz") != 200:
            assert server.poll() is None, server.communicate()
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.05)

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Stop a process as a service manager does; return exit code and standard error."""
        process.terminate()
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def stop(self) -> None:
        """End all processes that still run, with the processes that they started."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
