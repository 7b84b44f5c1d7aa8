"""Figures of other work than requested are marked and stand alone: no ratio, no conclusion."""

from __future__ import annotations

from typing import Any

import pytest

from logserver.bench.report import render
from logserver.bench.report.comparability import (
    falling_cpu,
    full_core_share,
    is_alike,
    rising_rates,
)
from logserver.bench.report.contents import STAR, report
from logserver.bench.report.figures import Figure
from logserver.bench.report.format import ALONE
from logserver.bench.result import (
    ONE_RECORD,
    Kind,
    Latency,
    NotDone,
    Repeat,
    Result,
    Run,
    Scale,
    TargetFacts,
    WorkloadFacts,
    numbers,
)
from tests.bench import results

HOLLOW = "a mark that is hollow and dashed, stands alone"
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


def synced(run: Run) -> Run:
    """Return the same run with requests that wait for the disk."""
    own = {"flush": "sync", "acks": "all"}
    run.workload = WorkloadFacts(name="sync-flush-64", fields={"logserver": own})
    return run


ONE = NotDone("logserver.recordsPerRequest", ONE_RECORD)
BATCHES = NotDone("logserver.recordsPerRequest", "a batch.size that holds about so many")
NO_KEYS = NotDone("keyDistributor", "records of the tool have no key")
NO_READERS = NotDone("subscriptionsPerTopic", "no tool of the broker reports counts")
ONE_PRODUCER = NotDone("producersPerTopic", "one producer with 64 requests under way")
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
        (run_of("kafka", NO_KEYS, **MANY), DISK, False),
        (run_of("kafka", NO_KEYS, **MANY), RATE, True),
        (run_of("http", ONE), RATE, True),
        (run_of("kafka"), "recovery_s", False),
        (synced(run_of("kafka", ONE_PRODUCER)), RATE, False),
        (synced(run_of("kafka")), RATE, True),
        (run_of("kafka", ONE_PRODUCER), RATE, True),
        (synced(run_of("logserver", ONE_PRODUCER)), RATE, True),
        (run_of("rocketmq"), "restart_s", True),
        (run_of("logserver"), "recovery_s", True),
    ],
)
def test_what_is_of_the_work_that_was_asked_for(run: Run, metric: str, alike: bool) -> None:
    assert is_alike(run, metric) is alike


def test_a_full_core_tells_no_cost() -> None:
    """This applies only at a held rate: at full speed the core should be busy."""
    busy: dict[str, Any] = {"seconds": 10.0, "server_cpu_s": 9.8}
    assert full_core_share(run_of("logserver", **busy, rate_held=True)) == pytest.approx(0.98)
    assert full_core_share(run_of("logserver", **busy, rate_held=False)) == 0
    assert full_core_share(run_of("logserver", **busy)) == 0
    idle: dict[str, Any] = {"seconds": 10.0, "server_cpu_s": 5.0}
    assert full_core_share(run_of("logserver", **idle, rate_held=True)) == 0
    full = run_of("logserver", **busy, rate_held=True)
    assert not is_alike(full, CPU)
    assert is_alike(full, RATE)


@pytest.mark.parametrize("kind", ["kafka", "rocketmq", "logserver"])
@pytest.mark.parametrize(
    ("rates", "rising"),
    [
        ([100, 120, 126], True),
        ([100, 120, 124], False),  # less than a quarter
        ([100, 160, 150], False),
        ([100, 160], False),  # of two rates one is always faster
    ],
)
def test_a_broker_that_gets_faster_from_repeat_to_repeat_is_not_warm(
    kind: Kind, rates: list[float], rising: bool
) -> None:
    run = run_of(kind)
    run.repeats = [Repeat(published_records_per_s=rate) for rate in rates]
    stated = rising and kind != "logserver"
    assert rising_rates(run) == (rates if stated else [])
    assert [is_alike(run, metric) for metric in (RATE, CPU)] == [not stated, not stated]
    said = [part.what for part in report([two(run)]).numbers.left_out]
    assert (
        "got faster from repeat to repeat, 100, 120, 126 records/s: it was not warm" in said
    ) is stated


@pytest.mark.parametrize("kind", ["kafka", "logserver"])
@pytest.mark.parametrize(
    ("seconds", "falling"), [([1.5, 1.3, 1.1], True), ([1.5, 1.0, 1.2], False), ([], False)]
)
def test_a_broker_that_takes_less_and_less_processor_time_is_not_warm(
    kind: Kind, seconds: list[float], falling: bool
) -> None:
    """The broker's rates remain comparable."""
    run = run_of(kind)
    run.repeats = [
        Repeat(published_records_per_s=100.0, server_cpu_s_per_million_records=each)
        for each in seconds
    ]
    stated = falling and kind == "kafka"
    assert falling_cpu(run) == (seconds if stated else [])
    assert [is_alike(run, metric) for metric in (RATE, CPU)] == [True, not stated]
    said = [part.what for part in report([two(run)]).numbers.left_out]
    assert (
        any("less processor time from repeat to repeat, 1.5, 1.3, 1.1 s" in s for s in said)
        is stated
    )


@pytest.mark.parametrize("kind", ["kafka", "logserver", "http"])
@pytest.mark.parametrize(
    ("busy", "held", "limit"), [(0.95, None, True), (0.95, True, False), (0.85, None, False)]
)
def test_what_a_generator_without_a_core_left_did_is_not_the_target_s(
    kind: Kind, busy: float, held: bool | None, limit: bool
) -> None:
    run = run_of(kind, generator_busy_share=busy, rate_held=held)
    assert is_alike(run, RATE) is not limit
    assert is_alike(run, DISK)
    said = [part.what for part in report([two(run)]).numbers.left_out]
    assert (f"{run.target.driver} was busy for 95% of a core: it may be the limit" in said) is limit


def test_a_rate_that_was_offered_has_no_ratio() -> None:
    """The rate only repeats the workload's setting, but its cost has a ratio."""
    values: dict[str, Any] = {RATE: 110.0, CPU: 2.0, "consumed_records_per_s": 90.0}
    runs = [run_of("logserver", name=name, **values) for name in ("a", "b")]
    for run in runs:
        run.workload = WorkloadFacts(name="at-rate", fields={"producerRate": 100})
    found = {f.metric: f for f in report([two(*runs)]).numbers.figures if f.target == "b"}
    assert found[RATE].alike
    assert [found[name].ratio for name in (RATE, "consumed_records_per_s")] == [None, None]
    assert found[CPU].ratio is not None


def series(kind: Kind, first: Run, second: Run) -> list[Figure]:
    """Return the figures reported for the second place of a series."""
    for number, run in ((1, first), (2, second)):
        run.workload = results.scaled(f"topics-{number}", Scale("topics", number))
        run.target = TargetFacts(name="t", kind=kind)
    return [f for f in report([two(first, second)]).numbers.figures if f.workload == "topics-2"]


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ([ONE], [ONE, NotDone("topics", "one of 2 partitions")], True),
        ([], [NotDone("producersPerTopic", "one producer")], False),
        ([ONE_PRODUCER], [ONE_PRODUCER], True),
    ],
)
def test_a_target_is_set_against_itself_where_it_did_the_same(
    first: list[NotDone], second: list[NotDone], alike: bool
) -> None:
    before = run_of("rocketmq", *first)
    before.repeats = [Repeat(published_records_per_s=rate) for rate in (90.0, 100.0, 95.0)]
    after = run_of("rocketmq", *second)
    after.repeats = [Repeat(published_records_per_s=rate) for rate in (38.0, 19.0, 57.0)]
    (found,) = series("rocketmq", before, after)
    table = report([two(before, after)]).chapters["by-topics"].tables[0]
    cells = table.rows[0][1:3]
    assert [STAR in cell for cell in cells] == [ONE in first, ONE in second]
    if alike:
        assert found.change is not None
        stated = (found.change.minimum, found.change.median, found.change.maximum)
        assert stated == pytest.approx((0.2, 0.4, 0.6))
    else:
        assert found.change is None


def two(*runs: Run) -> Result:
    result = results.full()
    result.runs = list(runs)
    return result


def test_other_work_has_no_ratio_and_no_conclusion() -> None:
    rates: dict[str, Any] = {RATE: 100.0, "published_records": 200}
    document = report([two(run_of("kafka", BATCHES, **rates), run_of("rocketmq", ONE, **rates))])
    chapter = document.chapters["throughput"]
    (table,), (plot,) = chapter.tables, chapter.plots
    assert [row[-1] for row in table.rows] == ["", ALONE]
    assert [mark.alone for mark in plot.groups["hot-topic"]] == [False, True]
    assert plot.about.endswith("rocketmq 100 records/s (not comparable).")
    assert HOLLOW in results.chapter(document, "Throughput")
    assert render.html(document).count('class="alone"') == 2  # its shape and its bar
    assert not any("one hot topic" in said for said in document.numbers.conclusions)
    alike = report([two(run_of("kafka", BATCHES, **rates), run_of("rocketmq", **rates))])
    assert 'alone"' not in render.html(alike).partition("</style>")[2]
    assert HOLLOW not in results.chapter(alike, "Throughput")
    assert any("one hot topic" in said for said in alike.numbers.conclusions)


def test_what_was_done_instead_is_told_once_for_all_workloads() -> None:
    first, second = run_of("rocketmq", ONE), run_of("rocketmq", ONE)
    second.workload = WorkloadFacts(name="fan-out", fields={})
    text = results.chapter(report([two(first, second)]), "What was left out")
    rows = [line for line in text.splitlines() if line.startswith("| rocketmq")]
    assert rows == [
        f"| rocketmq | logserver.recordsPerRequest: {ONE_RECORD} | hot-topic, fan-out |"
    ]


@pytest.mark.parametrize(("records", "stated"), [(400, True), (1_400, False)])
def test_a_short_burst_is_told(records: int, stated: bool) -> None:
    result = two(run_of("kafka", published_records=records, published_records_per_s=100.0))
    said = [part.what for part in report([result]).numbers.left_out]
    assert any("measured for 4.0 s of 15 s" in what for what in said) is stated


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
    (table,) = report([two(run)]).chapters["latency"].tables
    assert table.rows[0][list(table.columns).index("max")] == "9 us"
