"""The catalogue of findings: the meaning, the severities and the remedy of each code.

Owns the constructor of every Finding and the texts of storage/findings.toml; must not know files or formats. A tool
names the code and the facts of a finding; severity and advice come from the catalogue.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from os import PathLike
from typing import Final, TypedDict

from storage.errors import DamagedStore
from storage.model import Finding

_CATALOGUE: Final = "findings.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """A code of the catalogue. `severities[0]` is the default; `command` is "" if no command helps."""

    code: str
    group: str
    severities: tuple[str, ...]
    meaning: str
    remedy: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """A section of docs/findings.md."""

    name: str
    title: str
    about: str


class Comparison(TypedDict, total=False):
    """Keywords of `finding` that a builder of findings passes on: the expected and the found value."""

    expected: str | None
    found: str | None


class FindingFacts(Comparison, total=False):
    """Keywords of `finding` for a builder that knows only file, topic and partition."""

    position: int | None
    offset: int | None
    message: str


class PartitionFacts(FindingFacts, total=False):
    """Keywords of `finding` for a builder that knows topic and partition."""

    severity: str | None


class RecordFacts(Comparison, total=False):
    """Keywords of `finding` for a builder that knows the file, the position and the message."""

    topic: str | None
    partition: int | None
    offset: int | None


def finding(
    code: str,
    path: str | PathLike[str],
    *,
    severity: str | None = None,
    position: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    expected: str | None = None,
    found: str | None = None,
    message: str = "",
) -> Finding:
    """Return a finding of a code in the catalogue, with the code's default severity unless one is given.

    `message` describes this case; without a message the finding has the code's meaning. Raises KeyError for an unknown
    code and ValueError for a severity that the catalogue does not list for it. Both are programming errors of the
    caller.
    """
    kind = catalogue()[code]
    if severity is not None and severity not in kind.severities:
        raise ValueError(f"{code} cannot be {severity!r}: the catalogue lists {kind.severities}")
    return Finding(
        code=code,
        severity=severity or kind.severities[0],
        path=str(path),
        position=position,
        topic=topic,
        partition=partition,
        offset=offset,
        expected=expected,
        found=found,
        message=message or kind.meaning,
    )


@cache
def catalogue() -> Mapping[str, FindingKind]:
    """Return every code with its texts, in alphabetical order."""
    return {
        code: FindingKind(
            code=code,
            group=entry["group"],
            severities=tuple(entry["severity"]),
            meaning=entry["meaning"],
            remedy=entry["remedy"],
            command=entry.get("command", ""),
        )
        for code, entry in _document()["findings"].items()
    }


@cache
def groups() -> tuple[FindingGroup, ...]:
    """Return the sections of docs/findings.md, in their order."""
    return tuple(
        FindingGroup(name=name, title=entry["title"], about=entry["about"])
        for name, entry in _document()["groups"].items()
    )


@cache
def _document() -> dict[str, dict[str, dict[str, str]]]:
    text = resources.files("storage").joinpath(_CATALOGUE).read_text("utf-8")
    document: dict[str, dict[str, dict[str, str]]] = tomllib.loads(text)
    return document


def damaged_store(found: Sequence[Finding]) -> DamagedStore:
    """Return the error that refuses a writable start before any change; it names the first of these findings."""
    path = found[0].path
    others = (
        f" {len(found) - 1} more such places: `logserver verify` lists them." if found[1:] else ""
    )
    return DamagedStore(
        f"{path}: {found[0].message}; or serve the store with --read-only.{others} Nothing has been changed",
        path=path,
        position=0,
        findings=found,
    )
