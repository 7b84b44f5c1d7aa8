"""Running commands: within this process (fast, the rule) and as a process of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from click.testing import CliRunner

from logserver.__main__ import group

CHECKED: Final = re.compile(r"\Achecked: .+ s\n\Z")


class Ended(NamedTuple):
    """How a command ended. Standard output is bytes, since bytes are what it promises."""

    code: int
    out: bytes
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Standard output as one JSON value per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)


def run(*arguments: object) -> Ended:
    """Run `logserver ARGUMENTS...` in this process."""
    result = CliRunner().invoke(group(), list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout_bytes, result.stderr)


def fine(*arguments: object) -> Ended:
    """The same, and it must end well and silently, but for the line in which `verify` says what it checked."""
    ended = run(*arguments)
    said = CHECKED.sub("", ended.err) if arguments[0] == "verify" else ended.err
    assert (ended.code, said) == (0, "")
    return ended


def command_line(*arguments: object) -> list[str]:
    """The command line of a process that runs `logserver ARGUMENTS...`."""
    return [sys.executable, "-P", "-m", "logserver", *map(str, arguments)]


def run_process(*arguments: object, cwd: Path | None = None) -> Ended:
    """Run it as a process."""
    done = subprocess.run(command_line(*arguments), capture_output=True, cwd=cwd, check=False)
    return Ended(done.returncode, done.stdout, done.stderr.decode())


def settings_options(settings: Mapping[str, str]) -> list[str]:
    """`--set NAME=VALUE` for each."""
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def place_of(address: tuple[str, int]) -> list[object]:
    """`--topic T --partition N`."""
    return ["--topic", address[0], "--partition", address[1]]
