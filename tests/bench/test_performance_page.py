"""The performance page and the report match the stored results: scripts/performance_page writes them, or reports a
difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logserver.bench.goals import goal_of
from logserver.bench.report.verdicts import read_measured
from logserver.bench.result import to_json
from tests.bench import results


def script(repo_root: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repo_root / "scripts" / "performance_page"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page without its table, next to a result of each kind."""
    folder = tmp_path / "performance"
    folder.mkdir()
    row = {"name": "encode 100 B", "ratio": {"minimum": 0.9, "median": 1.0, "maximum": 1.1}}
    bench = {"bench": "bench_codecs", "about": {"cpu": "X"}, "compiled": True, "rows": [row]}
    (folder / "codecs.json").write_text(json.dumps(bench))
    (folder / "compare-all.json").write_bytes(to_json(results.full()))
    found = tmp_path / "page.md"
    found.write_text("# Words\n<!-- goals -->\n<!-- end of goals -->\nlast words\n")
    return found


def test_the_pages_match_their_results(repo_root: Path) -> None:
    ended = script(repo_root, "--check")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["codecs-compiled", "rocketmq-plain"])
def test_kept_results_tell_goals(repo_root: Path, name: str) -> None:
    path = repo_root / "docs" / "performance" / f"{name}.json"
    measured = {found.row: found for found in read_measured(path)}
    for row in json.loads(path.read_bytes())["rows"]:
        goal = goal_of(measured[row["name"]].source, row["name"])
        reported = measured[row["name"]]
        assert reported.ratio.median == row["ratio"]["median"]
        if goal is not None:
            assert goal.reached(reported.ratio.median, compiled=reported.compiled) is row["reached"]


def test_the_table_is_written_between_its_marks(repo_root: Path, page: Path) -> None:
    before = page.read_text()
    ended = script(repo_root, "--check", "--page", page)
    assert ended.returncode == 1
    assert "run" in ended.stdout
    assert page.read_text() == before
    report = page.parent / "report.html"
    assert not report.exists()
    assert script(repo_root, "--page", page).returncode == 0
    text = page.read_text()
    assert "| encode 100 B | aiokafka's C | - | 0.4 | **1.00 (0.90 - 1.10)** | 1.15 |" in text
    assert text.startswith("# Words\n")
    assert text.endswith("last words\n")
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert "NOT reached (compiled)" in report.read_text()
    assert script(repo_root, "--check", "--page", page).returncode == 0
    page.write_text(text.replace("1.00", "1.10"))
    assert script(repo_root, "--check", "--page", page).returncode == 1
