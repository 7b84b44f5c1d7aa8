"""The performance page has the tables of its results: scripts/performance_page writes them, or reports a difference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logserver.bench.goals import goal_of
from logserver.bench.report.verdicts import read_measured
from logserver.bench.result import Spread, to_json
from scripts._load_report import Figures, Report, Row, from_json
from scripts._load_work import Case
from tests.bench import results

CHAPTER = "<!-- chapter {} -->\n<!-- end of table -->\n"
TABLE = "<!-- table performance/{}.json -->\n{}<!-- end of table -->\n"


def script(repo_root: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repo_root / "scripts" / "performance_page"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with an unwritten table of each kind."""
    folder = tmp_path / "performance"
    folder.mkdir()
    spread = {"minimum": 2.0e6, "median": 2.5e6, "maximum": 3.0e6}
    row = {
        "name": "encode 100 B",
        "unit": "rec",
        "counted": 5,
        "expected": 5,
        "peer_name": "peer",
        "floor": 0.4,
        "goal": 1.15,
        "target": 1.15,
        "ours": spread,
        "peer": spread,
        "ratio": {"minimum": 0.9, "median": 1.0, "maximum": 1.1},
        "reached": False,
    }
    bench = {"bench": "bench_codecs", "about": {"cpu": "X"}, "compiled": True, "rows": [row]}
    (folder / "codecs.json").write_text(json.dumps(bench))
    (folder / "http.json").write_text(load_report().to_json())
    (folder / "compare-all.json").write_bytes(to_json(results.full()))
    found = tmp_path / "page.md"
    tables = "\nwords\n".join(TABLE.format(name, "") for name in ("codecs", "http"))
    chapters = "\nwords\n".join(CHAPTER.format(name) for name in ("goals", "recovery"))
    found.write_text(f"# Words\n{tables}{chapters}last words\n")
    return found


def load_report() -> Report:
    spread = Spread(minimum=1000.0, median=1100.0, maximum=1200.0)
    figures = Figures(
        requests_per_s=spread,
        records_per_s=spread,
        bytes_per_s=spread,
        cpu_s_per_million=None,
        generator_busy=0.5,
        latency_us={"p50": 1.0, "p99": 2.0, "p99.9": 3.0},
        service_us={"p50": 1.0},
        answered=10,
        refused=0,
        unsent=0,
        records=10,
        stored=None,
    )
    row = Row(
        case=Case("produce", 1, 16, "1"),
        loop="closed",
        rate=None,
        figures={"kafka": figures, "no-store": figures},
        ratios={
            "kafka": {"no-store": Spread(minimum=0.5, median=0.7, maximum=0.8)},
            "no-store": {},
        },
    )
    return Report(about={"cpu": "X"}, settings={}, generator_requests_per_s=spread, rows=[row])


def test_the_pages_are_what_their_results_say(repo_root: Path) -> None:
    pages = [repo_root / "docs" / name for name in ("performance.md", "performance-http.md")]
    for page in pages:
        ended = script(repo_root, "--check", "--page", page)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    text = "".join(page.read_text() for page in pages)
    kept = {path.name for path in (repo_root / "docs" / "performance").glob("*.json")}
    assert kept
    compared = {name for name in kept if name.startswith("compare-")}
    assert all(f"<!-- table performance/{name} -->" in text for name in kept - compared)
    assert not compared or "<!-- chapter goals -->" in text


@pytest.mark.parametrize("name", ["codecs-compiled", "rocketmq-plain"])
def test_kept_results_tell_goals(repo_root: Path, name: str) -> None:
    path = repo_root / "docs" / "performance" / f"{name}.json"
    measured = {found.row: found for found in read_measured(path)}
    for row in json.loads(path.read_bytes())["rows"]:
        goal = goal_of(measured[row["name"]].source, row["name"])
        told = measured[row["name"]]
        assert told.ratio.median == row["ratio"]["median"]
        if goal is not None:
            assert goal.reached(told.ratio.median, compiled=told.compiled) is row["reached"]


def test_tables_are_written_between_their_marks(repo_root: Path, page: Path) -> None:
    before = page.read_text()
    ended = script(repo_root, "--check", "--page", page)
    assert ended.returncode == 1
    assert "run" in ended.stdout
    assert page.read_text() == before
    assert not (page.parent / "report.md").exists()
    assert script(repo_root, "--page", page).returncode == 0
    text = page.read_text()
    assert (
        "scripts/bench_codecs --json, by the Python of an environment with the installed wheel"
        in text
    )
    assert (
        "| encode 100 B | 2.00M / 2.50M / 3.00M rec/s | 2.50M | 1.00 (0.90-1.10) | 0.40 | 1.15 |"
        in text
    )
    assert "| produce 1 acks=1 c=16 | closed | kafka |" in text
    assert "| recovery-after-kill | logserver-kafka |" in text
    report = (page.parent / "report.md").read_text()
    assert all(line in report for line in text.splitlines() if line.startswith("| recovery-after"))
    assert "| encode 100 B | NOT reached (compiled) | 1.00 (0.90 - 1.10)" in text
    assert (page.parent / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert text.startswith("# Words\n")
    assert text.endswith("last words\n")
    assert script(repo_root, "--check", "--page", page).returncode == 0
    page.write_text(text.replace("2.50M", "2.60M"))
    assert script(repo_root, "--check", "--page", page).returncode == 1


def test_a_load_report_is_read_back(repo_root: Path) -> None:
    report = load_report()
    again = from_json(report.to_json().encode())
    assert again == report
