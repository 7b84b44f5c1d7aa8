"""The contents of a report: figures, ratios, goals and warnings, the same in each of its forms."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from logserver.bench.report import conclusions, render
from logserver.bench.report.contents import Document, Numbers, report
from logserver.bench.report.figures import Figure
from logserver.bench.report.format import value_text
from logserver.bench.result import (
    ONE_RECORD,
    Latency,
    NotDone,
    Repeat,
    Scale,
    Spread,
    TargetFacts,
    WorkloadFacts,
)
from storage.errors import InvalidArgument
from tests.bench import results

GENERATOR = "The load generator itself"


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


@pytest.fixture(scope="module")
def page(document: Document) -> str:
    return render.html(document)


def figure(document: Document, workload: str, target: str, metric: str) -> Figure:
    (found,) = (
        f
        for f in document.numbers.figures
        if (f.workload, f.target, f.metric) == (workload, target, metric)
    )
    return found


def test_spread_and_ratio_are_taken_repeat_by_repeat() -> None:
    document = report([results.small({"a": [100, 200, 400], "b": [300, 200, 100]})])
    rates = figure(document, "w", "b", "published_records_per_s")
    assert (rates.spread.minimum, rates.spread.median, rates.spread.maximum) == (100, 200, 300)
    assert rates.ratio is not None
    assert (rates.ratio.minimum, rates.ratio.median, rates.ratio.maximum) == (0.25, 1, 3)
    assert (rates.baseline, rates.repeats) == ("a", 3)
    assert figure(document, "w", "a", "published_records_per_s").ratio is None


def test_the_baseline_is_chosen() -> None:
    document = report([results.small({"a": [100], "b": [300]})], baseline="b")
    ratio = figure(document, "w", "a", "published_records_per_s").ratio
    assert ratio is not None
    assert ratio.median == pytest.approx(1 / 3)
    with pytest.raises(InvalidArgument, match="'c' is none of the targets a, b") as refused:
        report([results.small({"a": [100], "b": [300]})], baseline="c")
    assert refused.value.facts()["field"] == "baseline"


def test_a_value_that_was_not_measured_is_left_out_and_not_0(document: Document) -> None:
    metrics = {f.metric for f in document.numbers.figures if f.workload == "recovery-after-kill"}
    assert metrics == {"restart_s", "recovery_s"}


def test_every_figure_stands_in_all_forms(document: Document, page: str) -> None:
    """This covers the median and the ratio of each figure that has a table; JSON has every figure."""
    cells = set(Cells(page).cells)
    text = render.markdown(document)
    data = json.loads(msgspec.json.encode(document.numbers))
    assert len(data["figures"]) == len(document.numbers.figures) > 300
    for metric in ("server_cpu_s_per_million_records", "recovery_s", "disk_bytes_per_record"):
        for found in document.numbers.figures:
            if found.metric == metric and found.scale is None:
                value = value_text(found.spread.median, found.unit)
                assert value in cells
                assert f"| {found.workload} | {found.target} | {value} |" in text
    again = msgspec.json.decode(msgspec.json.encode(document.numbers), type=Numbers)
    assert again == document.numbers


def test_tables_of_both_forms_are_the_same(document: Document, page: str) -> None:
    """The comparison is cell by cell, in order."""
    shown = [cell.strip() for cell in Cells(page).cells]
    lines = [line for line in render.markdown(document).splitlines() if line.startswith("|")]
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
    assert value_text(value, unit) == said


def test_series_are_told_along_their_axis(document: Document) -> None:
    table = document.chapters["by-topics"].tables[0]
    assert list(table.columns[1:-1]) == ["1 topic", *(f"{n:,} topics" for n in results.TOPICS[1:])]
    kafka = next(row for row in table.rows if row[0] == "kafka")
    assert kafka[-2] == ""  # 10,000 were left out
    assert re.fullmatch(r"0\.1\d \(0\.1\d - 0\.1\d\)", kafka[-1])


@pytest.mark.parametrize("form", ["page", "markdown", "json"])
def test_a_partial_result_is_marked(form: str, document: Document, page: str) -> None:
    partial = report([results.partial()])
    if form == "json":
        assert not partial.numbers.complete
        assert partial.numbers.incomplete_reason == "interrupted"
        return
    text = render.html(partial) if form == "page" else render.markdown(partial)
    assert "Partial result: interrupted." in text
    assert "Partial" not in (page if form == "page" else render.markdown(document))


def test_what_was_cut_short_is_told() -> None:
    """Entries that were not left out are not reported as such."""
    result = results.small({"a": [1, 2, 3], "b": [1]})
    assert not report([result]).numbers.left_out
    result.complete = False
    (part,) = report([result]).numbers.left_out
    assert (part.target, part.what) == ("b", "cut short: 1 of 3 repeats")
    result.runs[1].repeats, result.runs[1].notes = [], ["left out: onlyOurs"]
    whole = results.small({"a": [1, 2, 3, 4, 5]}, "other")
    (part,) = report([result, whole]).numbers.left_out
    assert (part.target, part.what) == ("b", "left out: onlyOurs")
    result.runs = result.runs[:1]
    text = results.chapter(report([result]), "What was left out")
    assert text.strip() == "Nothing of what was begun; the run was cut short."


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
    result = results.small({"a": [100]})
    (run,) = result.runs
    for held, told_of in ((True, False), (False, True), (None, True)):
        run.repeats = [Repeat(rate_held=held, offered_records_per_s=100, generator_busy_share=0.99)]
        found = [part.what for part in report([result]).numbers.left_out]
        assert any("busy for 99%" in what for what in found) is told_of


def test_nothing_of_a_result_becomes_markup(document: Document, page: str) -> None:
    assert "<script" not in page
    assert results.HOSTILE in "".join(Cells(page).text)
    assert (
        "| logserver-kafka | &lt;script>alert('1')&lt;/script> & \\| \"quoted\" | hot-topic-at-rate |"
        in render.markdown(document)
    )


def test_conclusions_follow_from_the_figures(document: Document) -> None:
    (hot,) = (c for c in document.numbers.conclusions if c.startswith("In this server, one hot"))
    assert hot.endswith("records/s in RocketMQ's: 1.64 times (1.56 - 1.92) as much in Kafka's.")
    (real,) = (c for c in document.numbers.conclusions if c.startswith("Of the real servers, one"))
    assert real.endswith("(not quite the same work: see what was left out).")
    assert not any("real servers, a start" in c for c in document.numbers.conclusions)
    result = results.small({"logserver-kafka": [90, 100, 110], "logserver-rocketmq": [95, 99, 120]})
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


def test_nothing_is_concluded_of_brokers_whose_tools_do_other_work() -> None:
    """The report states this if it has conclusions about our server."""
    result = results.small({name: [100.0, 101.0] for name, _, _ in results.TARGETS})
    for run, (name, kind, _) in zip(result.runs, results.TARGETS, strict=True):
        run.workload = WorkloadFacts(name="hot-topic", fields={"messageSize": 100})
        run.target = TargetFacts(name=name, kind=kind)
    ours, real = report([result]).numbers.conclusions
    assert ours.endswith("(values of 100 bytes).")
    assert real.startswith("Of the real servers, one hot topic")
    result.runs[-1].not_done.append(NotDone("logserver.recordsPerRequest", ONE_RECORD))
    assert report([result]).numbers.conclusions == [ours, conclusions.NOTHING_OF_REAL]


def test_a_single_repeat_is_no_verdict() -> None:
    result = results.small({"logserver-kafka": [100], "logserver-rocketmq": [50]})
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
        result, many = results.small({"a": [98, 100, 102]}), results.small({"a": rates})
        result.runs += many.runs
        for run, topics in zip(result.runs, (1, 64), strict=True):
            run.workload = results.scaled(f"topics-{topics}", Scale("topics", topics))
        (only,) = report([result]).numbers.conclusions
        wanted = f"From 1 to 64 topics a {said}" if said else "This run has nothing"
        assert only.startswith(wanted)


def test_results_of_different_machines_are_told() -> None:
    first, second = results.small({"a": [1]}), results.small({"b": [2]}, "other")
    assert not report([first, second]).warnings
    second.environment = msgspec.structs.replace(
        second.environment, cpu="Another", generator_cores=None
    )
    (warning,) = report([first, second]).warnings
    one = first.environment
    assert f"cpu {one.cpu} and Another; generator cores 1 and any." in warning


def test_targets_that_did_not_take_turns_are_told() -> None:
    first, second = results.small({"a": [1]}), results.small({"b": [2]})
    (warning,) = report([first, second]).warnings
    assert warning.startswith("Not all targets of w are of one result")


def test_what_the_first_environment_does_not_tell_is_that_of_the_others() -> None:
    first, second = results.small({"a": [1]}), results.small({"b": [2]}, "other")
    replace = msgspec.structs.replace
    first.environment = replace(first.environment, kafka=None, file_system=None, python="3.11.1")
    second.environment = replace(second.environment, kafka="4.3.1", file_system="xfs")
    value_text = report([first, second]).numbers.environment
    assert (value_text.kafka, value_text.file_system, value_text.python) == (
        "4.3.1",
        "xfs",
        "3.11.1",
    )


def test_results_of_different_brokers_are_told_where_they_took_part() -> None:
    first, second = results.small({"a": [1]}), results.small({"b": [2]}, "other")
    made = first.environment
    for kafka, differs in ((None, False), (made.kafka, False), ("4.2.0", True)):
        second.environment = msgspec.structs.replace(made, kafka=kafka)
        said = " ".join(report([first, second]).warnings)
        assert (f"kafka {made.kafka} and 4.2.0" in said) is differs
        assert bool(said) is differs


def test_results_of_different_moments_are_told_each_with_its_generator() -> None:
    """The slower generator is shown next to the other, with a warning above both."""
    first, second = results.small({"a": [1]}), results.small({"b": [2]}, "other")
    assert second.generator is not None
    document = report([first, second])
    text = results.chapter(document, GENERATOR)
    assert re.findall("### (.*)", text) == [f"Ceiling and error, {first.began}"] * 2
    slower = Spread(minimum=60_000, median=70_000, maximum=80_000)
    second.generator = msgspec.structs.replace(second.generator, ceiling_requests_per_s=slower)
    second.began = "2026-01-03T00:00:00Z"
    document = report([first, second])
    (warning,) = document.warnings
    assert "did 70k to 150k requests/s" in warning
    text = results.chapter(document, GENERATOR)
    assert re.findall(r"\| As fast as possible, requests/s \| (\w+) ", text) == ["150k", "70k"]
    assert "\n- Measured 2026-01-03" in render.markdown(document)
    alone = results.chapter(report([first]), GENERATOR)
    assert re.findall("### (.*)", alone) == ["Ceiling and error"]


def test_each_row_of_latencies_tells_the_spread_of_its_highest_percentile() -> None:
    """200 values have no p99."""
    result = results.small({"a": [1], "b": [1]})
    for run, count in zip(result.runs, (10_000, 200), strict=True):
        run.repeats = [
            Repeat(publish_latency=Latency(count=count, p50_us=us, p90_us=2 * us, p99_us=3 * us))
            for us in (10.0, 20.0)
        ]
    (table,) = report([result]).chapters["latency"].tables
    at = list(table.columns).index("Spread of")
    assert [row[at:] for row in table.rows] == [
        ["p99", "30 us - 60 us", ""],
        ["p90", "20 us - 40 us", "1.00"],
    ]


def test_results_are_put_together_but_not_twice_the_same() -> None:
    first, second = results.small({"a": [1]}), results.small({"b": [2]})
    second.complete, second.incomplete_reason = False, "interrupted"
    document = report([first, second])
    assert list(document.targets) == ["a", "b"]
    assert not document.numbers.complete
    with pytest.raises(InvalidArgument, match="two of the results have w on a"):
        report([first, first])
    with pytest.raises(InvalidArgument, match="no runs"):
        report([results.small({})])
