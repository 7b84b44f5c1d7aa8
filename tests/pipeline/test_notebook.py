"""The notebook runs, its outputs are those that it shows, and it is small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "docs" / "pipeline.ipynb"
MAX_BYTES = 200_000
MAX_PICTURE_BYTES = 60_000


@pytest.mark.spark
@pytest.mark.slow
def test_the_outputs_are_those_of_a_run() -> None:
    pytest.importorskip("nbclient")
    from tests.pipeline.classes import java_options

    command = [sys.executable, "-P", "scripts/run_notebook", "--check"]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": java_options()}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def cells() -> list[dict[str, Any]]:
    """Return the cells of the committed notebook that have code."""
    notebook = json.loads(NOTEBOOK.read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_it_is_small_and_shows_pictures() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    outputs = [output for cell in cells() for output in cell["outputs"]]
    pictures = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 3
    assert max(map(len, pictures)) < MAX_PICTURE_BYTES
    assert [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"] == []


def test_it_was_run_from_first_to_last() -> None:
    assert [cell["execution_count"] for cell in cells()] == list(range(1, len(cells()) + 1))
    assert "/tmp" not in NOTEBOOK.read_text()


def test_the_page_links_to_it() -> None:
    assert "(pipeline.ipynb)" in (ROOT / "docs" / "pipeline.md").read_text()
