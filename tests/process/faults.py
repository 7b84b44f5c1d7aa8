"""System calls of a server that fail on request: builds faults.c and steers it through its control file.

Owns the shim and its rule; must not know which files a store has. A rule holds for calls from the moment it is set.
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
    """Which calls fail, in the words of faults.c; `pattern` is of the path."""

    kind: str
    pattern: str
    action: int
    first: int = 1
    times: int = 0

    def __str__(self) -> str:
        action = ACTIONS.get(self.action) or errno.errorcode[self.action]
        return f"{self.kind} {self.pattern} {action}"


class Call(NamedTuple):
    """A call that a rule fits."""

    kind: str
    path: Path
    failed: bool


class Faults:
    """The rule that one server at a time is under, and the calls that it fits."""

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
        """Calls are under this rule from now on, counted from here."""
        self._told.unlink(missing_ok=True)
        text = " ".join(map(str, (rule.kind, rule.pattern, rule.first, rule.times, rule.action)))
        self._replace(text)

    def end(self) -> None:
        """All calls pass."""
        self._replace("")

    def _replace(self, text: str) -> None:
        new = self._control.with_name(f"{self._control.name}.new")
        new.write_text(text)
        new.rename(self._control)

    def calls(self) -> list[Call]:
        """The calls that the last rule fits, in order."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        fields = [line.split(" ") for line in lines]
        return [Call(kind, Path(path), told == "fails") for kind, path, told in fields]


def build(folder: Path) -> Path:
    """The shim as a library in this folder. Skips where there is no compiler, but fails in CI."""
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
