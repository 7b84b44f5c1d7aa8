"""The benchmark of a request runs and counts correctly, and a request takes no more calls than it did."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Calls per request of one connection, measured with plain Python in November 2026: produce 41, 48 to 52 and 57; fetch
# 50 and 36. The margin is for the requests whose append goes to the thread, on a machine with other load.
MOST_PRODUCE = {"api": 46, "logserver": 62, "storage": 75}
MOST_FETCH = {"api": 56, "logserver": 44}


def measured(repo_root: Path, only: str) -> dict[str, Any]:
    script = str(repo_root / "scripts" / "bench_http")
    command = [sys.executable, script, "--quick", "--json", "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for row in report["rows"]:
        assert row["counted"] == row["expected"] > 0
        assert row["ratio"] is None
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("only", "most"),
    [("kafka produce 1 acks=1 c=1", MOST_PRODUCE), ("kafka fetch 5 c=1", MOST_FETCH)],
    ids=["produce", "fetch"],
)
def test_calls_per_request(repo_root: Path, only: str, most: dict[str, int]) -> None:
    about = measured(repo_root, only)["about"]
    calls = {
        layer: int(count)
        for layer, count in re.findall(r"(\w+) (\d+)[,;]", about[f"calls of {only}"])
    }
    assert calls.keys() == {"api", "logserver", "storage"}
    for layer, limit in most.items():
        assert limit / 2 < calls[layer] <= limit
