"""Counted findings: one for each file, code and severity, whichever reader counted which part."""

from __future__ import annotations

from itertools import permutations

from storage.model import Finding
from storage.shared.diagnostics import Tallies


def _finding(severity: str, path: str, position: int, message: str) -> Finding:
    return Finding(
        code="suspect-header", severity=severity, path=path, position=position, message=message
    )


LATER_ERROR = _finding("error", "log", 900, "a wrong length")
WARNING = _finding("warning", "log", 100, "an odd host")
SECOND_WARNING = _finding("warning", "log", 500, "an odd host")
OTHER_FILE = _finding("warning", "log2", 1, "an odd host")
ALL = (LATER_ERROR, WARNING, SECOND_WARNING, OTHER_FILE)


def test_a_warning_does_not_hide_a_later_error() -> None:
    for order in permutations(ALL):
        tallies = Tallies()
        for finding in order:
            tallies.add(finding)
        assert [(found.severity, found.position, found.path) for found in tallies.all()] == [
            ("warning", 100, "log"),
            ("error", 900, "log"),
            ("warning", 1, "log2"),
        ]


def test_readers_count_together() -> None:
    first, second = Tallies(), Tallies()
    first.add(SECOND_WARNING)
    second.add(WARNING)
    second.add(LATER_ERROR)
    first.merge(second)
    assert [found.message for found in first.all()] == [
        "an odd host; 1 more like it in this file",
        "a wrong length",
    ]
