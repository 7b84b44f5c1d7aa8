"""scripts/soak: the fault matrix that runs for hours, here for seconds."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest


def soak(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script to its end."""
    command = [sys.executable, "-P", str(root / "scripts" / "soak"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--share", "0"], "--share must be above 0"),
        (["--workers", "0"], "--workers at least 1"),
        (["--only", "luck"], "invalid choice: 'luck'"),
    ],
)
def test_bad_options_are_refused(repo_root: Path, options: list[str], problem: str) -> None:
    done = soak(repo_root, *options)
    assert done.returncode == 2
    assert problem in done.stderr


@pytest.mark.slow
def test_crash_states_are_counted_in_the_report(repo_root: Path) -> None:
    done = soak(repo_root, "--share", "0.0001", "--only", "crash states", "--json")
    assert done.returncode == 0, done.stderr
    (part,) = json.loads(done.stdout)
    assert (part["name"], part["complete"], part["broken"]) == ("crash states", True, [])
    assert [line.split(" states")[0] for line in part["figures"]] == ["kafka: 100", "rocketmq: 100"]


def test_every_shortened_test_is_reached(repo_root: Path) -> None:
    """CI takes a share of some tests: the soak, which takes all of them, runs each module with such a test."""
    rows = runpy.run_path(str(repo_root / "scripts" / "soak"))["TESTS"].values()
    reached = [repo_root / path for row in rows for path in row]
    share = re.compile(
        r"@pytest\.mark\.one_in\(|\b(?:turn: Callable\[\[int\], slice|amount: Callable\[\[int, int)"
    )
    modules = (repo_root / "tests").rglob("test_*.py")
    shortened = {path for path in modules if share.search(path.read_text())}
    assert len(shortened) > 20
    assert {p for p in shortened if not any(p.is_relative_to(row) for row in reached)} == set()
