"""The place of a finding, and the command that helps, for the store that a command or a server has opened.

Owns the command line with the names of that store in it; must not define the commands, which are in the catalogue of
findings (storage/findings.toml), nor print.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from storage import Finding
from storage.display import one_line
from storage.findings import catalogue


class Inspected(NamedTuple):
    """The PATH and the store options given to a command: the commands in its findings repeat them."""

    path: Path
    settings: Mapping[str, str]

    def command(self, template: str, place: str = "") -> str:
        """Return a command of the catalogue for this PATH. It names a folder, since rebuild and salvage need one.

        `place` is the path of the finding; it replaces FOLDER in a command about that folder alone.
        """
        folder = str(self.path if self.path.is_dir() else self.path.parent)
        options = [
            word
            for name, value in self.settings.items()
            for word in ("--set", shlex.quote(f"{name}={value}"))
        ]
        names = {"PATH": folder, "FOLDER": place}
        words = (_quoted(names[word]) if word in names else word for word in template.split())
        return " ".join([*words, *options])


def _quoted(name: str) -> str:
    """Quote a name for a command line. A name that is not UTF-8 or cannot be printed is written in bash's notation with
    escapes.
    """
    shown = one_line(name)
    if shown == name:
        return shlex.quote(name)
    return "$'" + one_line(name.replace("\\", r"\\").replace("'", r"\'")) + "'"


def is_wrong(finding: Finding) -> bool:
    """Return whether a finding is a warning or an error."""
    return finding.severity != "info"


def help_command(finding: Finding, inspected: Inspected) -> str | None:
    """Return the command that helps. None if nothing is wrong, or no command helps."""
    kind = catalogue().get(finding.code)
    if kind is None or not kind.command or not is_wrong(finding):
        return None
    return inspected.command(kind.command, finding.path)


def place_of(finding: Finding) -> str:
    """Return file and position, then topic, partition and offset if they are known."""
    place = finding.path if finding.position is None else f"{finding.path} at {finding.position}"
    if finding.topic is None:
        return place
    named = finding.topic if finding.partition is None else f"{finding.topic}-{finding.partition}"
    return f"{place}: {named}" + ("" if finding.offset is None else f" offset {finding.offset}")
