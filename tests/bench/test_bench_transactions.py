"""The benchmark of transactions runs and counts correctly; no test checks its speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROWS = 5


def test_quick_counts(repo_root: Path) -> None:
    script = repo_root / "scripts" / "bench_transactions"
    command = [sys.executable, str(script), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["rows"]) == ROWS
    for row in report["rows"]:
        assert row["count_ok"], row
        assert row["counted"] == row["expected"] > 0
