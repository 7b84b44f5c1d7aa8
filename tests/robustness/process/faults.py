"""System calls of a server that fail on request: builds faults.c and controls it through its control file.

Owns the shim and its rule; must not know the files of a store. A rule applies to calls from the moment it is set.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).with_name("faults.c")
PASS = 0
SHORT = -1
KILL = -9
ACTIONS = {PASS: "pass", SHORT: "short", KILL: "kill"}


class Rule(NamedTuple):
    """The calls that fail, in the terms of faults.c; `pattern` applies to the path."""

    kind: str
    pattern: str
    action: int
    first: int = 1
    times: int = 0

    def __str__(self) -> str:
        action = ACTIONS.get(self.action) or errno.errorcode[self.action]
        return f"{self.kind} {self.pattern} {action}"


class Call(NamedTuple):
    """A call that matches a rule."""

    kind: str
    path: Path
    failed: bool


class Faults:
    """The current rule for one server at a time, and the calls that match it."""

    def __init__(self, library: Path, control: Path) -> None:
        self._control = control
        self._told = control.with_name(f"{control.name}.calls")
        self.environment: Mapping[str, str] = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "FAULTS": str(control),
        }
        self.end()

    def begin(self, rule: Rule) -> None:
        """Set this rule for all calls from now on, and start counting."""
        self._told.unlink(missing_ok=True)
        text = " ".join(map(str, (rule.kind, rule.pattern, rule.first, rule.times, rule.action)))
        self._replace(text)

    def end(self) -> None:
        """Let all calls pass."""
        self._replace("")

    def _replace(self, text: str) -> None:
        new = self._control.with_name(f"{self._control.name}.new")
        new.write_text(text)
        new.rename(self._control)

    def calls(self) -> list[Call]:
        """Return the calls that match the last rule, in order."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        fields = [line.split(" ") for line in lines]
        return [Call(kind, Path(path), reported == "fails") for kind, path, reported in fields]


def build(folder: Path) -> Path:
    """Build the shim as a library in this folder. Skip the test without a compiler, but fail in CI."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        reason = "needs a C compiler (Debian: apt-get install gcc libc6-dev)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    library = folder / "faults.so"
    flags = ["-O2", "-Wall", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, SOURCE, "-ldl"], check=True)
    return library
