"""The pages in docs/ are true: their commands print the shown output, and every block is run by a test.

tests/tour.py runs the commands; the README has its own test, tests/test_readme.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.tour import needs_curl, steps, take_the_tour

DOCS = ROOT / "docs"
TOURS = ("tutorial.md", "howto.md", "security.md")
ELSEWHERE = {
    "pipeline.md": "tests/pipeline/test_docs.py",
    "clients.md": "tests/test_readme.py",
}
MAX_LINES = 3_500  # of all pages but formats/ and decisions/, so that the pages stay worth reading


@needs_curl
@pytest.mark.slow
@pytest.mark.parametrize("page", TOURS)
def test_tour(page: str, tmp_path: Path) -> None:
    """Every command of the page prints the output in the page."""
    assert len(list(steps(DOCS / page))) >= 5
    take_the_tour(DOCS / page, tmp_path, real=False)


def test_every_block_is_run() -> None:
    """A page with commands or programs is in TOURS, or another module's test runs it."""
    shown = {page.name for page in DOCS.glob("*.md") if _blocks(page) & {"console", "python", "sh"}}
    assert shown == {*TOURS, *ELSEWHERE}
    assert [module for module in ELSEWHERE.values() if not (ROOT / module).is_file()] == []


def test_a_tour_has_commands_alone() -> None:
    for page in TOURS:
        assert _blocks(DOCS / page) <= {"console", ""}


def _blocks(page: Path) -> set[str]:
    """Return the languages of the page's blocks; "" is the end of a block."""
    return set(re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE))


def test_the_pages_are_short() -> None:
    lines = {page.name: len(page.read_text().splitlines()) for page in DOCS.glob("*.md")}
    assert sum(lines.values()) <= MAX_LINES, lines
