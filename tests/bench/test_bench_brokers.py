"""`logserver bench` on the real Kafka and RocketMQ, with their own tools: counts match, omitted parts are reported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from logserver.__main__ import group
from logserver.bench import run
from logserver.bench.result import Repeat, Result, load
from logserver.bench.targets import broker, kafka, rocketmq

WORKLOAD = """
name = "both"
messageSize = 200
producersPerTopic = 2
producerRate = 1000
subscriptionsPerTopic = 1
consumerBacklogSizeGB = 0.0002
warmupDurationMinutes = 0.01
testDurationMinutes = 0.01

[logserver]
recordsPerRequest = 10
kill = true
"""
FILLED = 1000  # records of the backlog
WARM = 600  # records of the warm-up, at the rate of the workload
LEAST = 3000  # records: ten times as many take RocketMQ's producer the seconds without which it reports no rate
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"


@pytest.mark.java
@pytest.mark.timeout(3600)
def test_the_real_brokers_are_measured_by_their_own_tools(
    tmp_path: Path, repo_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs a single repeat, which is not a quick one: a warm-up is stored and not measured.

    The warm-up of a broker is tested in test_broker.py, and shortened here.
    """
    monkeypatch.setattr(broker, "LEAST_RECORDS", LEAST)
    monkeypatch.setattr(broker, "CALIBRATION_S", 0.001)
    monkeypatch.setattr(broker, "PIECE_S", 0.5)
    monkeypatch.setattr(broker, "MOST_PIECES", 1)
    monkeypatch.setattr(run, "take", taking_once(run.take))
    # JVMs that live for seconds: the compilation of the best code would take longer than it saves.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", FIRST_COMPILER)
    monkeypatch.setenv("PEER_JOPTS", FIRST_COMPILER)
    monkeypatch.setenv("PEER_SHARED", "yes")
    path, found = tmp_path / "both.toml", tmp_path / "result.json"
    path.write_text(WORKLOAD)
    peers = repo_root / "tests" / "interop" / "peers"
    options = ["--no-pin", "--json", found, "--dir", tmp_path, "--peers", peers]
    options += ["--target", "kafka", "--target", "rocketmq"]
    done = CliRunner().invoke(group(), ["bench", *map(str, [path, *options])])
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.output
    result = load(found)
    assert (result.complete, result.environment.kafka) == (True, "4.3.1")
    assert result.environment.rocketmq == "5.5.0"
    assert result.environment.java
    check_kafka(result)
    check_rocketmq(result)
    assert not [inner for inner in tmp_path.iterdir() if inner.is_dir()]


def taking_once(take: Callable[[run.Options, run.Watching, Result], None]) -> Callable[..., None]:
    """Return `take` with one repeat."""
    return lambda asked, watching, result: take(replace(asked, repeats=1), watching, result)


def check_kafka(result: Result) -> None:
    """Check the whole workload, except latencies that Kafka's tools do not report."""
    (of_kafka,) = (found for found in result.runs if found.target.kind == "kafka")
    (repeat,) = of_kafka.repeats
    check_server(repeat)
    assert repeat.published_records == LEAST
    assert repeat.consumed_records == WARM + LEAST
    assert repeat.catch_up_records == FILLED
    assert repeat.stored_records == FILLED + WARM + LEAST
    assert repeat.rate_held is not None
    assert repeat.publish_service is not None
    assert (repeat.publish_service.p99_us or 0) > 0
    assert 0 < (repeat.recovery_load_s or 0) < (repeat.recovery_s or 0)
    assert repeat.consumed_records_per_s is None
    assert {lack.field for lack in of_kafka.not_done} == {
        "logserver.recordsPerRequest",
        "producersPerTopic",
        "producerRate",
        "subscriptionsPerTopic",
    }


def check_rocketmq(result: Result) -> None:
    """Check RocketMQ: its client publishes as fast as it can and reports means.

    It reports nothing for so few records that they took no measurable time.
    """
    (of_rocketmq,) = (found for found in result.runs if found.target.kind == "rocketmq")
    (repeat,) = of_rocketmq.repeats
    check_server(repeat)
    published, stored = repeat.published_records, repeat.stored_records
    assert published is not None
    assert stored is not None
    assert 0 < published < stored - FILLED
    assert (repeat.publish_service is None) == (repeat.published_records_per_s is None)
    assert repeat.consumed_records is None
    assert repeat.rate_held is None
    assert {lack.field for lack in of_rocketmq.not_done} == {
        "logserver.recordsPerRequest",
        "logserver.flush",
        "producerRate",
        "subscriptionsPerTopic",
    }


def check_server(repeat: Repeat) -> None:
    """Check the values that are measured around the tools."""
    assert repeat.errors == []
    for value in (
        repeat.server_cpu_s,
        repeat.server_rss_bytes,
        repeat.disk_bytes,
        repeat.recovery_s,
        repeat.restart_s,
    ):
        assert (value or 0) > 0


def test_what_kafkas_producer_tells_is_read() -> None:
    stated = (
        "60000 records sent, 14048.2 records/sec (1.34 MB/sec), 575.42 ms avg latency, 1718.00 ms max latency, "
        "631 ms 50th, 780 ms 95th, 789 ms 99th, 798 ms 99.9th.\n"
        "40000 steady state records sent, 24213.5 records/sec (2.31 MB/sec), 657.96 ms avg latency, "
        "800.00 ms max latency, 679 ms 50th, 782 ms 95th, 792 ms 99th, 798 ms 99.9th.\n"
    )
    produced = kafka.produced(stated)
    assert (produced.records, produced.records_per_s) == (40000, 24213.5)
    latency = produced.latency
    assert latency is not None
    assert (latency.p50_us, latency.p90_us, latency.p99_us) == (679_000, None, 792_000)
    assert latency.max_us == 800_000
    assert latency.mean_us == pytest.approx(657_960)


def test_what_rocketmqs_producer_tells_is_read() -> None:
    stated = (
        "Current Time: 2026-01-01 | Send TPS: 1487 | Max RT(ms): 1959 | Average RT(ms):  10.161 | "
        "Send Failed: 0 | Response Failed: 0\n"
        "[Complete] Send Total: 20000 | Send TPS: 2188 | Max RT(ms): 1959 | Average RT(ms):   7.895 | "
        "Send Failed: 2 | Response Failed: 1\n"
    )
    produced = rocketmq.produced(stated)
    assert (produced.records, produced.records_per_s, produced.failed) == (19998, 2188, 3)
    assert produced.latency is not None
    assert (produced.latency.mean_us, produced.latency.max_us) == (7895, 1_959_000)
    few = rocketmq.produced("[Complete] Send Total: 1000 Send Failed: 0 Response Failed: 0\n")
    assert few == (1000, None, None, 0, 0)


def test_a_broker_without_its_scripts_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "logserver", "bench", "hot-topic", "--target", "kafka"]
    done = subprocess.run(
        [*command, "--peers", tmp_path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 3
    assert f"kafka: {tmp_path}/kafka has no script perf" in done.stderr
    assert "Traceback" not in done.stderr
