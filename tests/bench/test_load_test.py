"""scripts/load_test as CI runs it: it ends, its JSON has all fields, and its counts match the stores' contents."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logserver.bench.load_loops import Sample
from scripts.bench import http_load
from scripts.bench.http_report import Figures, Measured, Row
from scripts.bench.http_work import RAW_RECORDS, Case, Work

SPREAD = {"minimum", "median", "maximum"}
FIGURES = {
    "requests_per_s", "records_per_s", "bytes_per_s", "cpu_s_per_million", "generator_busy", "latency_us", "service_us",
    "answered", "refused", "unsent", "records", "stored", "count_ok", "ratios", "cpu_shares", "goal", "reached",
}  # fmt: skip

# An open loop never gives up: a loop of 0.05 s would if the machine stalls for a moment.
PATIENT = (
    "import runpy, sys; from logserver.bench import load_loops; load_loops.LATE = 1000; del sys.argv[0];"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def load_test(
    root: Path, *options: str, python: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `python`: arguments before the script."""
    script = str(root / "scripts" / "load_test")
    command = [sys.executable, "-P", *python, script, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
def test_every_row_of_a_quick_run_is_sane(repo_root: Path, tmp_path: Path) -> None:
    reported, picture = tmp_path / "report.json", tmp_path / "picture.svg"
    options = ("http", "--quick", "--json", str(reported), "--plot", str(picture))
    done = load_test(repo_root, *options, python=("-c", PATIENT))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "produce 100 acks=all c=4" in done.stdout
    assert "9 of 9" in done.stderr
    assert picture.read_text().lstrip().startswith("<?xml")
    report = json.loads(reported.read_text())
    assert report.keys() == {
        "format",
        "bench",
        "compiled",
        "about",
        "settings",
        "generator",
        "rows",
    }
    assert report["generator"]["requests_per_s"].keys() == SPREAD
    assert len(report["rows"]) == 18
    for row in report["rows"]:
        check_row(row)
    rows = {(row["name"], row["loop"]): row["servers"] for row in report["rows"]}
    raw = rows["raw in 1 MB acks=1 c=4", "closed"]
    assert raw.keys() == {"kafka", "no-store", "bare"}  # the other backend accepts no batches
    assert raw["kafka"]["records"] == raw["kafka"]["answered"] * RAW_RECORDS
    kafka = rows["produce 100 acks=1 c=4", "closed"]["kafka"]
    assert (kafka["goal"], kafka["ratios"].keys()) == (0.5, {"no-store", "bare"})


def check_row(row: dict[str, Any]) -> None:
    """Check that the counts agree, and the figures with them."""
    produces = row["operation"] in {"produce", "raw in"}
    for name, figures in row["servers"].items():
        assert figures.keys() == FIGURES
        assert figures["count_ok"]
        assert (figures["refused"], figures["unsent"]) == (0, 0)
        assert figures["records"] == figures["answered"] * row["records"] > 0
        is_counted = produces and name in {"kafka", "rocketmq"}
        assert figures["stored"] == (figures["records"] if is_counted else None)
        latency = figures["latency_us"]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
        rates = figures["records_per_s"]
        assert 0 < rates["minimum"] <= rates["median"] <= rates["maximum"]
        assert (
            figures["bytes_per_s"]["median"] >= rates["median"] * 100
        )  # the smallest size of a value
        assert bool(figures["service_us"]) == (row["loop"] == "open") == (row["rate"] is not None)


def test_the_report_can_go_to_standard_output(repo_root: Path) -> None:
    options = [
        "--backend",
        "kafka",
        "--no-ceiling",
        "--loop",
        "closed",
        "--only",
        "produce 100 acks=1",
    ]
    done = load_test(repo_root, "http", "--quick", "--json", "-", *options)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["servers"].keys() == {"kafka"}
    check_row(row)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--url", "nowhere"], "is not http://host:port"),
        (["--concurrency", "many"], "argument --concurrency"),
        (["--concurrency", "0"], "argument --concurrency"),
        (["--rate", "0"], "argument --rate"),
        (["--operations", "guess"], "argument --operations"),
        (["--plot", "picture.txt"], "argument --plot"),
    ],
)
def test_bad_options_are_refused(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    http_load.add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(options)
    assert problem in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told(repo_root: Path) -> None:
    done = load_test(repo_root, "http", "--quick", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr


def measured(answered: int, seconds: float, *, stored: int | None = None) -> Measured:
    """Return a turn of single records."""
    sample = Sample(seconds=seconds, answered=answered)
    sample.latencies_ns.extend([1000] * answered)
    return Measured(sample, Work([b""], 1, 10, "t"), 0.5, stored)


def test_what_is_acknowledged_must_be_stored() -> None:
    assert Figures.of([measured(5, 1, stored=5), measured(6, 1, stored=6)]).count_ok
    assert not Figures.of([measured(5, 1, stored=5), measured(6, 1, stored=5)]).count_ok
    assert not Figures.of([measured(0, 1, stored=0)]).count_ok


def test_a_ratio_is_taken_turn_by_turn() -> None:
    """A slow moment affects both servers: here the machine was ten times slower in the second turn."""
    turns = {
        "kafka": [measured(70, 1), measured(7, 1)],
        "no-store": [measured(100, 1), measured(10, 1)],
    }
    row = Row.of(Case("produce", 1, 16, "1"), None, turns)
    ratio = row.ratios["kafka"]["no-store"]
    assert (ratio.minimum, ratio.maximum) == pytest.approx((0.7, 0.7))
    assert row.reached("kafka") is True
    assert row.figures["kafka"].cpu_s_per_million is not None
    slower = Row.of(Case("produce", 1, 16, "1"), None, turns | {"kafka": [measured(50, 1)] * 2})
    assert slower.ratios["kafka"]["no-store"].median == pytest.approx(2.75)
    assert slower.cpu_share("kafka", "no-store") == pytest.approx(2.75)
    assert slower.cpu_share("kafka", "bare") is None
    assert Row.of(Case("produce", 1, 16, "all"), None, turns).goal("kafka") is None
