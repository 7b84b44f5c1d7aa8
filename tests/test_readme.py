"""The README is true: every command of its tour prints the shown output, every program runs, every link is good.

tests/tour.py runs the commands on the sources; tests/test_first_hour.py runs them from a clone and from a wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tour import needs_clients, steps, take_the_tour

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
LAYERS = ("api", "logserver", "storage")
PICTURED = ("ARCHITECTURE.md", "architecture.svg")


@needs_clients
def test_tour(tmp_path: Path) -> None:
    """Every command of the tour prints the output in the README."""
    assert len(list(steps(README))) >= 8
    take_the_tour(README, tmp_path)


def test_every_block_of_the_readme_is_run() -> None:
    """The blocks are commands (test_tour), programs (test_programs) and Spark jobs (tests/pipeline/test_docs.py)."""
    kinds = re.findall(r"^```(.*)\n(.*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    jobs = [first for kind, first in kinds if kind == "sh"]
    assert {kind for kind, _ in kinds} == {"", "console", "python", "sh"}
    assert [first for first in jobs if not first.startswith("scripts/pipeline ")] == []


def test_the_index_lists_every_page() -> None:
    docs = ROOT / "docs"
    linked = {(docs / link).resolve() for link in links(docs / "index.md")}
    pages = [*docs.glob("*.md"), *docs.glob("*/README.md"), *ROOT.glob("*.md")]
    assert [page.name for page in pages if page not in linked and page != docs / "index.md"] == []


PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs() -> list[str]:
    """Return the programs shown in the pages."""
    pages = (ROOT / "README.md", ROOT / "docs" / "clients.md", ROOT / "docs" / "transactions.md")
    return [program for page in pages for program in PYTHON.findall(page.read_text())]


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.split("\n")[0])
def test_programs(program: str, tmp_path: Path) -> None:
    """Each program runs unchanged, and its assertions hold; shown tests are run by pytest with the project's plugin."""
    path = tmp_path / "test_shown.py"
    path.write_text(program)
    command: list[str | Path] = [sys.executable, "-P", "-W", "error", path]
    if "def test_" in program:
        plugins = ("no:logserver", "logserver.pytest_plugin", "no:cacheprovider")
        options = [part for plugin in plugins for part in ("-p", plugin)]
        modes = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
        options += [part for mode in modes for part in ("-o", mode)]
        command = [sys.executable, "-P", "-m", "pytest", "-q", *options, path]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_there_are_programs() -> None:
    assert len(programs()) > 3


PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / ".github").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every file that a page links to or shows exists, and so does the linked heading in it."""
    broken = [link for link in links(page) if not leads_somewhere(page, link)]
    assert broken == []


def test_there_are_links() -> None:
    assert sum(len(links(page)) for page in PAGES) > 50


def links(page: Path) -> list[str]:
    """Return the links of a page to other files of the project, code blocks left out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\((?!https?:)([^)]+)\)", text)


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not heading or heading in headings(target))


def headings(page: Path) -> set[str]:
    """Return the headings of a page in the form that links use."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_are_there(page: Path) -> None:
    """Every path such as `tests/...` in a page matches a file or folder; paths with placeholders are not checked."""
    names = re.findall(r"`((?:api|logserver|scripts|storage|tests)/[\w./*-]+)`", page.read_text())
    assert [name for name in names if not any(ROOT.glob(name.rstrip("/")))] == []


def test_every_decision_is_listed() -> None:
    """Decisions are listed in order, under their own titles, and numbered without a gap."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text().splitlines()[1:]
    expected = []
    for number, page in enumerate(pages, start=1):
        assert page.name.startswith(f"{number:04}-")
        title = page.read_text().splitlines()[0].removeprefix(f"# {number}. ")
        expected.append(f"{number}. [{title}]({page.name})")
    assert listed == expected


def test_the_architecture_names_what_exists() -> None:
    """Names after a file, as in `storage/a.py`: `Name`, `Class.method`, are defined in that file."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"`([\w/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", page)
    missing = []
    for path, names in rows:
        text = (ROOT / path).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            defined = rf"^ *(?:async )?(?:def|class) {name.split('.')[-1]}\b|^{name}\b.* = "
            if not re.search(defined, text, re.MULTILINE):
                missing.append(f"{path}: {name}")
    assert len(rows) > 20
    assert missing == []


def test_the_architecture_shows_every_folder() -> None:
    shown = "".join((ROOT / "docs" / name).read_text() for name in PICTURED)
    folders = [marker.parent for layer in LAYERS for marker in (ROOT / layer).glob("*/__init__.py")]
    assert len(folders) > 5
    missing = [folder.name for folder in folders if not re.search(rf"\b{folder.name}\b", shown)]
    assert missing == []
