"""Running commands: within this process (fast, the default) and as a process of their own."""

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
    """The result of a command. Standard output is bytes, because commands promise bytes."""

    code: int
    out: bytes
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Standard output decoded as a JSON value per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        """Standard output decoded as a single JSON value."""
        return json.loads(self.out)


def run(*arguments: object) -> Ended:
    """Run `logserver ARGUMENTS...` in this process."""
    result = CliRunner().invoke(group(), list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout_bytes, result.stderr)


def fine(*arguments: object) -> Ended:
    """Run a command that must exit with 0 and print no errors; only the summary line of `verify` is allowed."""
    ended = run(*arguments)
    said = CHECKED.sub("", ended.err) if arguments[0] == "verify" else ended.err
    assert (ended.code, said) == (0, "")
    return ended


def command_line(*arguments: object) -> list[str]:
    """Return the command line of a process that runs `logserver ARGUMENTS...`."""
    return [sys.executable, "-P", "-m", "logserver", *map(str, arguments)]


def run_process(*arguments: object, cwd: Path | None = None) -> Ended:
    """Run `logserver ARGUMENTS...` as a process."""
    done = subprocess.run(command_line(*arguments), capture_output=True, cwd=cwd, check=False)
    return Ended(done.returncode, done.stdout, done.stderr.decode())


def settings_options(settings: Mapping[str, str]) -> list[str]:
    """Return `--set NAME=VALUE` for each setting."""
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def place_of(address: tuple[str, int]) -> list[object]:
    """Return `--topic T --partition N`."""
    return ["--topic", address[0], "--partition", address[1]]
