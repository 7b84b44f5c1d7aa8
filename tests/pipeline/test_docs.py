"""docs/pipeline.md and the README are correct: examples run in order, in one session; every option is in a table."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from logserver.__main__ import group
from logserver.cli.spark import JOBS
from logserver.pipeline.read.options import NAMES as READ_NAMES
from logserver.pipeline.write.options import NAMES as WRITE_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "pipeline.md").read_text()
README = (ROOT / "README.md").read_text()
PICTURE = Path("docs/pipeline-times.svg")
EXAMPLE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.slow
def test_the_examples(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the run looks like a clone; the picture is the one that the page shows."""
    pytest.importorskip("matplotlib")
    shutil.copytree(ROOT / "tests" / "golden", tmp_path / "tests" / "golden", symlinks=True)
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in EXAMPLE.finditer(PAGE):
        kind, text = example.groups()
        if kind == "python":
            before = "\n" * PAGE.count(
                "\n", 0, example.start(2)
            )  # errors name the line of the page
            exec(compile(before + text, "docs/pipeline.md", "exec"), names)
        else:
            run_commands(text)
    run_commands(readme_commands())
    assert names["spark"] is spark
    assert points(PICTURE) == points(ROOT / PICTURE) > 500


def readme_commands() -> str:
    """Return the commands of the README's section, in the form of `logserver pipeline`."""
    lines = re.findall(r"^scripts/pipeline ([^#\n]*)", README, re.MULTILINE)
    assert len(lines) > 1
    return "\n".join(f"$ logserver pipeline {line}" for line in lines)


def run_commands(text: str) -> None:
    """Run each `$ logserver ...` line in the current session."""
    for line in re.findall(r"^\$ logserver (.*)$", text, re.MULTILINE):
        done = CliRunner().invoke(group(), line.split(), catch_exceptions=False)
        assert done.exit_code == 0, (line, done.output)


def points(picture: Path) -> int:
    """Return the number of points of the lines."""
    return picture.read_text().count("\nL ")


@pytest.mark.parametrize("name", sorted({*READ_NAMES, *WRITE_NAMES}))
def test_every_option_is_told(name: str) -> None:
    tables = PAGE.partition("## Options")[2]
    assert re.search(rf"^\|[^|]*`{name}`", tables, re.MULTILINE)


@pytest.mark.parametrize("name", JOBS)
def test_every_job_is_told(name: str) -> None:
    assert f"### {name}\n" in PAGE
