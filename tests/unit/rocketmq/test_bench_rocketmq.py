"""The benchmark runs and counts correctly, alone and next to the real store; no test checks its speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 19


@pytest.mark.parametrize(
    "options", [("--no-java",), pytest.param((), marks=pytest.mark.java, id="beside-the-real-one")]
)
def test_quick_counts(repo_root: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    script = repo_root / "scripts" / "bench_rocketmq"
    command = [sys.executable, str(script), "--quick", "--json", "--dir", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["rows"]) == ROWS
    for row in report["rows"]:
        assert row["count_ok"], row
        assert row["counted"] == row["expected"] > 0
        assert row["ratio"] is None
    assert not list(tmp_path.iterdir())
