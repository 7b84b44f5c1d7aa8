"""The RocketMQ pages under docs/formats: their examples are bytes of the golden files, and our codecs read them so.

test_docs_examples.py explains the blocks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.rocketmq.format import names
from tests.formats.files.test_docs_examples import LINK, blocks, golden_bytes, run_doctest

ROOT = Path(__file__).resolve().parents[3]
FORMATS = ROOT / "docs" / "formats"
GOLDEN = ROOT / "tests" / "golden" / "rocketmq"
PAGES = sorted(path.name for path in FORMATS.glob("rocketmq-*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_examples_hold(page: str) -> None:
    known: dict[str, object] = {}
    for block in blocks((FORMATS / page).read_text()):
        if block.language == "hex":
            known["example"] = golden_bytes(GOLDEN, block)
        elif block.language == "text":  # a file may end without a newline, a block cannot
            content = (GOLDEN / block.argument).read_bytes()
            assert content in {block.text.encode(), block.text.encode()[:-1]}
            known["example"] = content
        elif block.language == "files":
            listed = sorted(line.split()[0] for line in block.text.splitlines())
            assert listed == sorted(path.name for path in (GOLDEN / block.argument).iterdir())
        else:
            assert block.language == "python", f"{page}:{block.line}"
            run_doctest(block, known, page)


def test_every_kind_of_file_has_an_example() -> None:
    examples = {
        block.argument.split(" @")[0].partition("/store/")[2].split("/")[0]
        for page in PAGES
        for block in blocks((FORMATS / page).read_text())
        if block.language in {"hex", "text"}
    }
    assert examples >= {names.CONSUME_QUEUE, names.INDEX, names.CHECKPOINT, names.CONFIG}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for name, _ in LINK.findall((FORMATS / page).read_text()):
        assert (FORMATS / name).is_file(), name


def test_every_page_is_in_the_index() -> None:
    index = (FORMATS / "README.md").read_text()
    listed = {name for name, _ in LINK.findall(index) if name.startswith("rocketmq-")}
    assert listed == set(PAGES)
