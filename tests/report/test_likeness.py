"""Figures of other work than was asked for stand alone: no ratio, no conclusion; and they are marked."""

from __future__ import annotations

from typing import Any

import pytest

from logserver.bench.report.contents import OTHER_WORK, report
from logserver.bench.report.likeness import full_core_share, is_alike
from logserver.bench.result import (
    ONE_RECORD,
    Kind,
    Latency,
    NotDone,
    Repeat,
    Result,
    Run,
    TargetFacts,
    WorkloadFacts,
    numbers,
)
from tests.report import results

RATE = "published_records_per_s"
CPU = "server_cpu_s_per_million_records"
DISK = "disk_bytes_per_record"


def run_of(kind: Kind, *not_done: NotDone, name: str = "", **values: Any) -> Run:
    return Run(
        workload=WorkloadFacts(name="hot-topic", fields={"testDurationMinutes": 0.25}),
        target=TargetFacts(name=name or kind, kind=kind),
        repeats=[Repeat(**values), Repeat(**values)],
        not_done=list(not_done),
    )


ONE = NotDone("logserver.recordsPerRequest", ONE_RECORD)
BATCHES = NotDone("logserver.recordsPerRequest", "a batch.size that holds about so many")
NO_READERS = NotDone("subscriptionsPerTopic", "no tool of the broker tells counts")
MANY: dict[str, Any] = {"disk_bytes": 40_000_000, DISK: 100.0}
FEW: dict[str, Any] = {"disk_bytes": 4_000_000, DISK: 100.0}


@pytest.mark.parametrize(
    ("run", "metric", "alike"),
    [
        (run_of("kafka", BATCHES), RATE, True),
        (run_of("kafka", BATCHES), CPU, True),
        (run_of("kafka", BATCHES), "consumed_records_per_s", False),
        (run_of("kafka", BATCHES), "publish_service.p99_us", False),
        (run_of("rocketmq", ONE), RATE, False),
        (run_of("rocketmq", ONE), CPU, False),
        (run_of("rocketmq"), RATE, True),
        (run_of("rocketmq", NO_READERS), CPU, False),
        (run_of("rocketmq", NO_READERS), RATE, True),
        (run_of("rocketmq"), "server_rss_bytes", False),
        (run_of("kafka"), "server_rss_bytes", True),
        (run_of("rocketmq", **MANY), DISK, True),
        (run_of("rocketmq", **FEW), DISK, False),
        (run_of("kafka", **FEW), DISK, True),
        (run_of("http", ONE), RATE, True),
    ],
)
def test_what_is_of_the_work_that_was_asked_for(run: Run, metric: str, alike: bool) -> None:
    assert is_alike(run, metric) is alike


def test_a_full_core_tells_no_cost() -> None:
    """Only at a rate that was held: as fast as possible the core is to be full."""
    busy: dict[str, Any] = {"seconds": 10.0, "server_cpu_s": 9.8}
    assert full_core_share(run_of("logserver", **busy, rate_held=True)) == pytest.approx(0.98)
    assert full_core_share(run_of("logserver", **busy, rate_held=False)) == 0
    assert full_core_share(run_of("logserver", **busy)) == 0
    idle: dict[str, Any] = {"seconds": 10.0, "server_cpu_s": 5.0}
    assert full_core_share(run_of("logserver", **idle, rate_held=True)) == 0
    full = run_of("logserver", **busy, rate_held=True)
    assert not is_alike(full, CPU)
    assert is_alike(full, RATE)


def two(*runs: Run) -> Result:
    result = results.full()
    result.runs = list(runs)
    return result


def test_other_work_has_no_ratio_and_no_conclusion() -> None:
    rates: dict[str, Any] = {RATE: 100.0, "published_records": 200}
    document = report([two(run_of("kafka", BATCHES, **rates), run_of("rocketmq", ONE, **rates))])
    (table,) = next(s for s in document.sections if s.name == "throughput").tables
    assert [row[-1] for row in table.rows] == ["", OTHER_WORK]
    assert not any("one hot topic" in said for said in document.numbers.conclusions)
    alike = report([two(run_of("kafka", BATCHES, **rates), run_of("rocketmq", **rates))])
    assert any("one hot topic" in said for said in alike.numbers.conclusions)


def test_what_was_done_instead_is_told_once_for_all_workloads() -> None:
    first, second = run_of("rocketmq", ONE), run_of("rocketmq", ONE)
    second.workload = WorkloadFacts(name="fan-out", fields={})
    section = next(s for s in report([two(first, second)]).sections if s.name == "left-out")
    assert section.tables[0].rows == [
        ["rocketmq", f"logserver.recordsPerRequest: {ONE_RECORD}", "hot-topic, fan-out"]
    ]


@pytest.mark.parametrize(("records", "told"), [(400, True), (1_400, False)])
def test_a_short_burst_is_told(records: int, told: bool) -> None:
    result = two(run_of("kafka", published_records=records, published_records_per_s=100.0))
    said = [part.what for part in report([result]).numbers.left_out]
    assert any("measured for 4.0 s of 15 s" in what for what in said) is told


@pytest.mark.parametrize(
    ("count", "carried"),
    [
        (50, {"p50_us", "max_us"}),
        (100, {"p50_us", "p90_us", "max_us"}),
        (9_999, {"p50_us", "p90_us", "p99_us", "max_us"}),
        (10_000, {"p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"}),
    ],
)
def test_a_percentile_needs_values_above_it(count: int, carried: set[str]) -> None:
    values = dict.fromkeys(("p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"), 1.0)
    found = numbers(Repeat(fetch_latency=Latency(count=count, **values)))
    assert {name.partition(".")[2] for name in found} - {"count"} == carried


def test_the_largest_of_all_repeats_is_told_as_the_largest() -> None:
    run = run_of("logserver")
    run.repeats = [
        Repeat(publish_latency=Latency(count=10, p50_us=1.0, max_us=most))
        for most in (5.0, 7.0, 9.0)
    ]
    (table,) = next(s for s in report([two(run)]).sections if s.name == "latency").tables
    assert table.rows[0][list(table.columns).index("max")] == "9 us"
