"""The pages in docs/ are true: their commands print the shown output, and every block is run by a test.

tests/tour.py runs the commands; the README has its own test, tests/test_readme.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT, modules, text_of
from tests.tour import needs_clients, steps, take_the_tour

DOCS = ROOT / "docs"
TOURS = ("tutorial.md", "howto.md", "security.md")
GENERATED = {"cli.md", "findings.md", "licences.md"}
MAX_LINES = 3_900  # of the pages written by hand, without formats/ and decisions/: so they stay worth reading


@needs_clients
@pytest.mark.slow
@pytest.mark.parametrize("page", TOURS)
def test_tour(page: str, tmp_path: Path) -> None:
    """Every command of the page prints the output in the page."""
    assert len(list(steps(DOCS / page))) >= 5
    take_the_tour(DOCS / page, tmp_path)


def test_every_block_is_run() -> None:
    """A page with commands or programs is in TOURS, or the test module of another room names it."""
    shown = {page.name for page in DOCS.glob("*.md") if _blocks(page) & {"console", "python", "sh"}}
    others = [path for path in modules("tests") if path.parent != Path("tests/docs")]
    tested = {page for page in shown if any(f'"{page}"' in text_of(path) for path in others)}
    assert shown - tested <= set(TOURS) <= shown
    assert {"pipeline.md", "clients.md"} <= tested


def test_a_tour_has_commands_alone() -> None:
    for page in TOURS:
        assert _blocks(DOCS / page) <= {"console", ""}


def _blocks(page: Path) -> set[str]:
    """Return the languages of the page's blocks; "" is the end of a block."""
    return set(re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE))


def test_the_pages_are_short() -> None:
    pages = [page for page in DOCS.glob("*.md") if page.name not in GENERATED]
    lines = {page.name: len(page.read_text().splitlines()) for page in pages}
    assert sum(lines.values()) <= MAX_LINES, lines


@pytest.mark.slow
def test_the_recording_is_current() -> None:
    """The commands of the recording print today what it shows."""
    subprocess.run([sys.executable, "-P", "scripts/rescue_cast", "--check"], cwd=ROOT, check=True)


def test_the_recording_can_be_played() -> None:
    """It is asciicast v2: a header, then events in the order of their times."""
    header, *events = map(json.loads, (DOCS / "rescue.cast").read_text().splitlines())
    assert header["version"] == 2
    assert all(kind == "o" and text for _, kind, text in events)
    times = [time_s for time_s, _, _ in events]
    assert times == sorted(times)
    assert times[-1] > 10
