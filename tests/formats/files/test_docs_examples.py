"""The pages under docs/formats: their examples are bytes of the golden files, and our codecs read them as described.

A fenced block `hex FILE [@POSITION]` is a part of a golden file, and `text FILE` a whole file. `files FOLDER` lists
the names in a folder. The Python blocks that follow run as doctests with the bytes as `example`.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PAGES = (
    "README.md",
    "kafka-record-batch.md",
    "kafka-indexes.md",
    "kafka-producer-snapshot.md",
    "kafka-checkpoints.md",
    "kafka-consumer-offsets.md",
    "kafka-directory.md",
    "kafka-recovery.md",
)
FENCE = re.compile(r"^```(\w+)[ ]*(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
HEX_LINE = re.compile(r"([0-9a-f]{8})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})  +(\S.*)")
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


class Block(NamedTuple):
    """A fenced block: its language, the argument after it, its text, and the number of its first line."""

    language: str
    argument: str
    text: str
    line: int


@pytest.fixture
def formats_dir(repo_root: Path) -> Path:
    return repo_root / "docs" / "formats"


def blocks(page: str) -> Iterator[Block]:
    for match in FENCE.finditer(page):
        yield Block(match[1], match[2], match[3], page.count("\n", 0, match.start()) + 1)


def parse_hex(text: str, start: int) -> bytes:
    """Return the bytes of a hex dump; its lines begin with their position and must have no gap."""
    data = b""
    for line in text.splitlines():
        match = HEX_LINE.fullmatch(line)
        assert match is not None, line
        assert int(match[1], 16) == start + len(data), line
        data += bytes.fromhex(match[2])
    return data


def golden_bytes(golden_dir: Path, block: Block) -> bytes:
    """Return the bytes of the block; check that the golden file contains them."""
    name, _, position = block.argument.partition(" @")
    content = (golden_dir / name).read_bytes()
    if block.language == "text":
        assert content == block.text.encode()
        return content
    start = int(position or 0)
    data = parse_hex(block.text, start)
    assert content[start : start + len(data)] == data
    return data


def run_doctest(block: Block, names: dict[str, object], page: str) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line)
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    failed, attempted = runner.run(test, out=said.append, clear_globs=False)
    assert not failed, "".join(said)
    assert attempted
    names.update(test.globs)


@pytest.mark.parametrize("page", PAGES)
def test_examples_hold(formats_dir: Path, golden_dir: Path, page: str) -> None:
    names: dict[str, object] = {}
    for block in blocks((formats_dir / page).read_text()):
        if block.language in {"hex", "text"}:
            names["example"] = golden_bytes(golden_dir, block)
        elif block.language == "files":
            listed = sorted(line.split()[0] for line in block.text.splitlines())
            assert listed == sorted(p.name for p in (golden_dir / block.argument).iterdir())
        else:
            assert block.language == "python", f"{page}:{block.line}"
            run_doctest(block, names, page)


def test_every_kind_of_file_has_an_example(formats_dir: Path) -> None:
    files = {
        block.argument.split(" @")[0]
        for page in PAGES
        for block in blocks((formats_dir / page).read_text())
        if block.language in {"hex", "text"}
    }
    kinds = {Path(name).suffix or Path(name).name for name in files}
    assert kinds >= {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
        ".metadata",
        ".kafka_cleanshutdown",
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
    }


def test_every_page_is_listed_here_and_in_the_index(formats_dir: Path) -> None:
    kafka_pages = {path.name for path in formats_dir.glob("kafka-*.md")}
    assert kafka_pages | {"README.md"} == set(PAGES)
    index = (formats_dir / "README.md").read_text()
    assert kafka_pages == {name for name, _ in LINK.findall(index) if name.startswith("kafka-")}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(formats_dir: Path, page: str) -> None:
    for name, anchor in LINK.findall((formats_dir / page).read_text()):
        target = formats_dir / name
        assert target.is_file(), name
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        slugs = {"#" + re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
        assert not anchor or anchor in slugs, anchor


def test_every_damaged_variant_is_on_the_recovery_page(formats_dir: Path, golden_dir: Path) -> None:
    page = (formats_dir / "kafka-recovery.md").read_text()
    missing = [
        path.name for path in (golden_dir / "torn").iterdir() if f"`{path.name}`" not in page
    ]
    assert missing == []
