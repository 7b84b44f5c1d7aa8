"""What a report says: figures, ratios, goals and warnings, the same in each of its forms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from logserver.bench import goals
from logserver.bench.report import html, markdown
from logserver.bench.report.contents import report
from logserver.bench.report.document import Document, Numbers
from logserver.bench.report.figures import Figure
from logserver.bench.report.telling import told
from logserver.bench.report.verdicts import read_measured
from logserver.bench.result import (
    Latency,
    Repeat,
    Result,
    Run,
    Scale,
    Spread,
    TargetFacts,
    WorkloadFacts,
)
from storage.errors import InvalidArgument
from tests.report import results


class Cells(HTMLParser):
    """The texts of a page's table cells, and all of its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.text: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"td", "th"}:
            self._inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self._inside = False

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._inside:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def document() -> Document:
    return report([results.full()])


def figure(document: Document, workload: str, target: str, metric: str) -> Figure:
    (found,) = (
        f
        for f in document.numbers.figures
        if (f.workload, f.target, f.metric) == (workload, target, metric)
    )
    return found


def small(values: dict[str, Sequence[float]]) -> Result:
    """One workload on each of these targets, with the records a second of each repeat."""
    result = results.full()
    result.runs = [
        Run(
            workload=WorkloadFacts(name="w", fields={}),
            target=TargetFacts(name=name, kind="logserver"),
            repeats=[Repeat(published_records_per_s=value) for value in rates],
        )
        for name, rates in values.items()
    ]
    return result


def test_spread_and_ratio_are_taken_repeat_by_repeat() -> None:
    document = report([small({"a": [100, 200, 400], "b": [300, 200, 100]})])
    rates = figure(document, "w", "b", "published_records_per_s")
    assert (rates.spread.minimum, rates.spread.median, rates.spread.maximum) == (100, 200, 300)
    assert rates.ratio is not None
    assert (rates.ratio.minimum, rates.ratio.median, rates.ratio.maximum) == (0.25, 1, 3)
    assert (rates.baseline, rates.repeats) == ("a", 3)
    assert figure(document, "w", "a", "published_records_per_s").ratio is None


def test_the_baseline_is_chosen() -> None:
    document = report([small({"a": [100], "b": [300]})], baseline="b")
    ratio = figure(document, "w", "a", "published_records_per_s").ratio
    assert ratio is not None
    assert ratio.median == pytest.approx(1 / 3)
    with pytest.raises(InvalidArgument, match="'c' is none of the targets a, b") as refused:
        report([small({"a": [100], "b": [300]})], baseline="c")
    assert refused.value.facts()["field"] == "baseline"


def test_a_value_that_was_not_measured_is_left_out_and_not_0(document: Document) -> None:
    metrics = {f.metric for f in document.numbers.figures if f.workload == "recovery-after-kill"}
    assert metrics == {"restart_s", "recovery_s"}


def test_every_figure_stands_in_all_forms(document: Document) -> None:
    """The middle value and the ratio of each figure that has a table; JSON has every one."""
    cells = set(Cells(html.page(document)).cells)
    text = markdown.text(document)
    data = json.loads(msgspec.json.encode(document.numbers))
    assert len(data["figures"]) == len(document.numbers.figures) > 300
    for metric in ("server_cpu_s_per_million_records", "recovery_s", "disk_bytes_per_record"):
        for found in document.numbers.figures:
            if found.metric == metric and found.scale is None:
                value = told(found.spread.median, found.unit)
                assert value in cells
                assert f"| {found.workload} | {found.target} | {value} |" in text
    again = msgspec.json.decode(msgspec.json.encode(document.numbers), type=Numbers)
    assert again == document.numbers


def test_tables_of_both_forms_are_the_same(document: Document) -> None:
    """Cell by cell, in their order."""
    shown = [cell.strip() for cell in Cells(html.page(document)).cells]
    lines = [line for line in markdown.text(document).splitlines() if line.startswith("|")]
    rows = [line.strip("|").replace("\\|", "\0").split("|") for line in lines if "---" not in line]
    cells = [c.strip().replace("\0", "|").replace("&lt;", "<") for row in rows for c in row]
    assert shown == cells


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (999.7, "us", "1,000 us"), (999_960.0, "us", "1,000 ms"), (1.2e9, "us", "1,200 s"), (123.4, "us", "123 us"),
        (999.7, "records/s", "1,000 records/s"), (999_960.0, "records/s", "1,000k records/s"),
        (999.9, "bytes", "1,000 B"), (1.234, "s", "1.23 s"), (0.0, "s", "0 s"), (1e12, "bytes", "1,000 GB"),
    ],
)  # fmt: skip
def test_a_number_is_told_without_powers_of_ten(value: float, unit: str, said: str) -> None:
    assert told(value, unit) == said


def test_series_are_told_along_their_axis(document: Document) -> None:
    (section,) = (s for s in document.sections if s.name == "by-topics")
    table = section.tables[0]
    assert list(table.columns[1:-1]) == ["1 topic", *(f"{n:,} topics" for n in results.TOPICS[1:])]
    kafka = next(row for row in table.rows if row[0] == "kafka")
    assert kafka[-2] == ""  # 10,000 were left out
    assert re.fullmatch(r"0\.1\d \(0\.1\d - 0\.1\d\)", kafka[-1])


@pytest.mark.parametrize("form", ["page", "markdown", "json"])
def test_a_partial_result_is_marked(form: str) -> None:
    document = report([results.partial()])
    if form == "json":
        assert not document.numbers.complete
        assert document.numbers.incomplete_reason == "interrupted"
        return
    text = html.page(document) if form == "page" else markdown.text(document)
    assert "Partial result: interrupted." in text
    whole = report([results.full()])
    assert "Partial" not in (html.page(whole) if form == "page" else markdown.text(whole))


def test_a_quick_run_says_nothing_about_speed() -> None:
    result = results.full()
    result.quick = True
    document = report([result])
    assert any("Quick run" in warning for warning in document.warnings)
    assert len(document.numbers.conclusions) == 1
    assert not any(verdict.ratio for verdict in document.numbers.goals)


def test_what_did_not_hold_and_what_was_left_out_is_told(document: Document) -> None:
    told_of = [(part.target, part.what) for part in document.numbers.left_out]
    assert ("kafka", "keyDistributor: the peer's tool has no keys") in told_of
    assert any("100k records/s was NOT held in 1 of 3" in what for _, what in told_of)
    assert any("busy for 95%" in what for _, what in told_of)


def test_a_generator_that_held_its_rate_was_not_the_limit() -> None:
    result = small({"a": [100]})
    (run,) = result.runs
    for held, told_of in ((True, False), (False, True), (None, True)):
        run.repeats = [Repeat(rate_held=held, offered_records_per_s=100, generator_busy_share=0.99)]
        found = [part.what for part in report([result]).numbers.left_out]
        assert any("busy for 99%" in what for what in found) is told_of


def test_nothing_of_a_result_becomes_markup(document: Document) -> None:
    page = html.page(document)
    assert "<script" not in page
    assert results.HOSTILE in "".join(Cells(page).text)
    assert (
        "| logserver-kafka | &lt;script>alert('1')&lt;/script> & \\| \"quoted\" | hot-topic-at-rate |"
        in markdown.text(document)
    )


def test_conclusions_follow_from_the_figures(document: Document) -> None:
    (hot,) = (c for c in document.numbers.conclusions if c.startswith("In this server, one hot"))
    assert hot.endswith("records/s in RocketMQ's: 1.64 times (1.56 - 1.92) as much in Kafka's.")
    (real,) = (c for c in document.numbers.conclusions if c.startswith("Of the real servers, one"))
    assert real.endswith("(not quite the same work: see what was left out).")
    assert not any("real servers, a start" in c for c in document.numbers.conclusions)
    result = small({"logserver-kafka": [90, 100, 110], "logserver-rocketmq": [95, 99, 120]})
    for run in result.runs:
        run.workload = WorkloadFacts(name="hot-topic", fields={})
    (only,) = report([result]).numbers.conclusions
    assert only.endswith("no difference beyond the spread.")


def test_runs_with_errors_carry_no_conclusion_and_no_goal() -> None:
    result = results.full()
    found = report([result])
    said = "In this server, a start after kill -9"
    assert any(c.startswith(said) for c in found.numbers.conclusions)
    for run in result.runs:
        if (run.workload.name, run.target.name) == ("recovery-after-kill", "logserver-kafka"):
            run.repeats = [Repeat(recovery_s=0.1, errors=["1 acknowledged, 0 after kill -9"])] * 3
    found = report([result])
    assert not any(c.startswith(said) for c in found.numbers.conclusions)
    (verdict,) = (v for v in found.numbers.goals if v.path.startswith("recovery after kill -9"))
    assert verdict.ratio is None
    assert any("recovery-after-kill on logserver-kafka: their" in w for w in found.warnings)


def test_a_goal_is_measured_only_by_what_it_names() -> None:
    """A small series says nothing of a large store, a start on a store that holds something nothing of an empty one."""
    result = results.full()
    result.runs = [
        run
        for run in result.runs
        if run.workload.scale
        and run.workload.scale.name == "store_bytes"
        and run.workload.scale.value < 1e9
    ]
    for run in result.runs:
        run.repeats = [
            msgspec.structs.replace(r, start_s=None, empty_rss_bytes=None) for r in run.repeats
        ]
    assert len(result.runs) == 4
    assert not any(verdict.ratio for verdict in report([result]).numbers.goals)


def test_a_single_repeat_is_no_verdict() -> None:
    result = small({"logserver-kafka": [100], "logserver-rocketmq": [50]})
    for run in result.runs:
        run.workload = WorkloadFacts(name="hot-topic", fields={})
    (only,) = report([result]).numbers.conclusions
    assert "of a single repeat" in only
    assert "times as much" not in only


def test_topics_are_told_as_far_as_the_spread_carries() -> None:
    for rates, said in (
        ([50, 51, 52], "keeps 51% (50% - 52%) of what it publishes."),
        ([90, 95, 99], "keeps what it publishes: no difference beyond the spread."),
        ([50], ""),
    ):
        result, many = small({"a": [98, 100, 102]}), small({"a": rates})
        result.runs += many.runs
        for run, topics in zip(result.runs, (1, 64), strict=True):
            run.workload = results.scaled(f"topics-{topics}", Scale("topics", topics))
        (only,) = report([result]).numbers.conclusions
        wanted = f"From 1 to 64 topics a {said}" if said else "This run has nothing"
        assert only.startswith(wanted)


def test_results_of_different_machines_are_told() -> None:
    first, second = small({"a": [1]}), small({"b": [2]})
    assert not report([first, second]).warnings
    second.environment = msgspec.structs.replace(
        second.environment, cpu="Another", generator_cores=None
    )
    (warning,) = report([first, second]).warnings
    assert "cpu, generator cores differ" in warning


def test_results_of_different_moments_are_told_each_with_its_generator() -> None:
    """The one in which the machine did less stands beside the other, and a warning above them."""
    first, second = small({"a": [1]}), small({"b": [2]})
    assert second.generator is not None
    document = report([first, second])
    (section,) = (s for s in document.sections if s.name == "generator")
    assert [table.title for table in section.tables] == [f"Ceiling and error, {first.began}"] * 2
    slower = Spread(minimum=60_000, median=70_000, maximum=80_000)
    second.generator = msgspec.structs.replace(second.generator, ceiling_requests_per_s=slower)
    second.began = "2026-01-03T00:00:00Z"
    document = report([first, second])
    (warning,) = document.warnings
    assert "did 70k to 150k requests/s" in warning
    (section,) = (s for s in document.sections if s.name == "generator")
    assert [table.rows[0][1] for table in section.tables] == ["150k", "70k"]
    assert [fact for fact in document.facts if fact.startswith("Taken 2026-01-03")]
    (alone,) = (s for s in report([first]).sections if s.name == "generator")
    assert alone.tables[0].title == "Ceiling and error"


def test_each_row_of_latencies_tells_the_spread_of_its_highest_percentile() -> None:
    """Of 200 values there is no p99."""
    result = small({"a": [1], "b": [1]})
    for run, count in zip(result.runs, (10_000, 200), strict=True):
        run.repeats = [
            Repeat(publish_latency=Latency(count=count, p50_us=us, p90_us=2 * us, p99_us=3 * us))
            for us in (10.0, 20.0)
        ]
    (table,) = next(s for s in report([result]).sections if s.name == "latency").tables
    at = list(table.columns).index("Spread of")
    assert [row[at:] for row in table.rows] == [
        ["p99", "30 us - 60 us", ""],
        ["p90", "20 us - 40 us", "1.00"],
    ]


def test_goals_have_their_ratios_and_say_why_they_are_missed(tmp_path: Path) -> None:
    spread = {"minimum": 0.5, "median": 0.6, "maximum": 0.7}
    row = {"name": "encode 100 B", "ratio": spread}
    path = tmp_path / "codecs.json"
    for bench, compiled, verdict in (
        ("bench_codecs", False, "reached"),
        ("bench_codecs", True, "missed"),
        ("bench_rocketmq", True, "reached"),
    ):
        path.write_bytes(msgspec.json.encode({"bench": bench, "compiled": compiled, "rows": [row]}))
        document = report([results.full()], measured=read_measured(path))
        (found,) = (v for v in document.numbers.goals if v.command.endswith(bench) and v.ratio)
        assert found.ratio is not None
        assert (found.ratio.median, found.compiled) == (0.6, compiled)
        assert found.reached is (verdict == "reached")
        shown = markdown.text(document)
        kind = "compiled" if compiled else "plain Python"
        assert f"{'reached' if found.reached else 'NOT reached'} ({kind})" in shown
    flat_goals = report([results.full()]).numbers.goals
    flat = [v for v in flat_goals if v.path == "key lookup in a store of 1 GB or more"]
    assert [(v.target, v.reached) for v in flat] == [
        ("logserver-kafka", False),
        ("logserver-rocketmq", True),
    ]
    assert flat[0].why


def test_recovery_is_what_a_kill_adds_beside_the_time_of_the_broker_s_log(
    document: Document,
) -> None:
    """By record: ours hold twice as many. 0.4 s of 500,000 by 1.0 and 1.1 s of a million."""
    found = [v for v in document.numbers.goals if v.path.startswith("recovery after kill -9")]
    (verdict,) = found
    assert verdict.ratio is not None
    assert verdict.ratio.minimum == pytest.approx(0.8 / 1.1)
    assert verdict.ratio.maximum == pytest.approx(0.8)
    assert verdict.reached is False


def test_a_goal_within_the_spread_says_so(tmp_path: Path) -> None:
    path = tmp_path / "codecs.json"
    for least, said in (
        (1.1, "reached (compiled, within the spread)"),
        (1.2, "reached (compiled)"),
    ):
        spread = {"minimum": least, "median": 1.3, "maximum": 1.4}
        row = {"name": "encode 100 B", "ratio": spread}
        path.write_bytes(
            msgspec.json.encode({"bench": "bench_codecs", "compiled": True, "rows": [row]})
        )
        text = markdown.text(report([results.full()], measured=read_measured(path)))
        assert f"| encode 100 B | {said} |" in text


def test_results_are_put_together_but_not_twice_the_same() -> None:
    first, second = small({"a": [1]}), small({"b": [2]})
    second.complete, second.incomplete_reason = False, "interrupted"
    document = report([first, second])
    assert list(document.targets) == ["a", "b"]
    assert not document.numbers.complete
    with pytest.raises(InvalidArgument, match="two of the results have w on a"):
        report([first, first])
    with pytest.raises(InvalidArgument, match="no runs"):
        report([small({})])


def test_goals_are_found_in_the_json_of_a_load_test(tmp_path: Path) -> None:
    def server(records_per_s: float, share: float | None) -> dict[str, object]:
        rates = dict.fromkeys(("minimum", "median", "maximum"), records_per_s)
        shares = {} if share is None else {"no-store": dict.fromkeys(rates, share)}
        return {"records_per_s": rates, "bytes_per_s": rates, "ratios": shares}

    servers = {
        "kafka": server(143_000.0, 0.7),
        "rocketmq": server(28_600.0, 0.1),
        "no-store": server(200_000.0, None),
    }
    row = {"operation": "produce", "records": 100, "acks": "1", "loop": "closed", "concurrency": 16}
    rows = [row | {"servers": servers}, row | {"loop": "open", "servers": {}}]
    rows += [row | {"servers": servers, "concurrency": other} for other in (1, 64)]
    path = tmp_path / "load.json"
    path.write_bytes(
        msgspec.json.encode({"bench": "load_test", "compiled": True, "about": {}, "rows": rows})
    )
    document = report([results.full()], measured=read_measured(path))
    found = {
        (v.path, v.yardstick.split(",")[0]): (v.ratio.median, v.reached)
        for v in document.numbers.goals
        if v.ratio is not None and "load_test" in v.command
    }
    assert found == {
        ("HTTP produce, 100 a request", "Karapace"): (10, False),
        ("HTTP produce, kafka, 100 a request", "the same stack without a store"): (0.7, True),
        ("HTTP produce, rocketmq, 100 a request", "the same stack without a store"): (0.1, False),
        ("HTTP produce, rocketmq, 100 a request", "the Kafka backend"): (pytest.approx(0.2), False),
    }


@pytest.mark.slow
@pytest.mark.parametrize("bench", [goals.CODECS, goals.ROCKETMQ])
def test_every_goal_of_a_benchmark_is_one_of_its_rows(bench: str, repo_root: Path) -> None:
    """A quick run has all rows; but its dump is smaller, and says so in its name."""
    command = [sys.executable, str(repo_root / "scripts" / bench), "--quick", "--no-java", "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    rows = {row["name"]: row["goal"] for row in json.loads(done.stdout)["rows"]}
    wanted = {goal.row: goal.goal for goal in goals.GOALS if goal.source == bench}
    wanted.pop("dump of 197 MB", None)
    assert {name: rows.get(name) for name in wanted} == wanted


def test_goals_differ() -> None:
    keys = [(goal.source, goal.row) for goal in goals.GOALS]
    assert len(keys) == len(set(keys))
