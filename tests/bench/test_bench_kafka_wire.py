"""The benchmark of Kafka's protocol runs and counts correctly; no test checks its speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.java
def test_quick_counts(repo_root: Path) -> None:
    """Some rows of each kind of load: all of them would take minutes."""
    script = repo_root / "scripts" / "bench_kafka_wire"
    command = [sys.executable, str(script), "--quick", "--json", "--only"]
    for chosen in ("64 KB, acks=all", "consume 100 B: CPU", "single"):
        done = subprocess.run([*command, chosen], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        assert rows
        for row in rows:
            assert chosen in row["name"]
            assert row["count_ok"], row
            assert row["counted"] == row["expected"] > 0
