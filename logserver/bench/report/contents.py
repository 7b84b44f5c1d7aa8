"""The contents of a report: from a result to a document.

Owns the chapters, their order, titles and metrics; must not know HTML, SVG or Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from logserver.bench.report import conclusions, environment
from logserver.bench.report.document import (
    Document,
    Numbers,
    Plot,
    PlotGroup,
    PlotKind,
    PlotMark,
    Section,
    Table,
    ranges,
)
from logserver.bench.report.figures import Figure, choose_baseline, figures_of, merged, targets
from logserver.bench.report.format import (
    CHANGING,
    range_told,
    ratio_told,
    told,
    told_bare,
)
from logserver.bench.report.verdicts import Measured, verdicts
from logserver.bench.result import METRICS, Result

TITLE: Final = "Two designs of a log, side by side"
ALONE: Final = "not comparable"  # shown in place of a ratio
STAR: Final = "*"  # after a figure that is not comparable, in tables without ratios
HOLLOW: Final = (
    f"What has a {STAR}, is called {ALONE} or drawn hollow and dashed stands alone: it is of other work than was asked "
    "for, or not the target's own. The chapter of what was left out, or the words above, say why."
)
OF_WAYS: Final = (
    "Our servers are asked over HTTP, records in base64 inside JSON; the real brokers over protocols of their own, in "
    "binary: what stands between ours and theirs is that too, and not the design alone."
)
PERCENTILES: Final = ("p50_us", "p99_us", "p99_9_us")
SPREAD_OF: Final = ("p99_us", "p90_us", "p50_us")
ALL_PERCENTILES: Final = ("p50_us", "p90_us", "p99_us", "p99_9_us", "max_us", "mean_us")

# Chapter, title, text, and metrics; of a latency the part before the dot.
CHAPTERS: Final = (
    ("throughput", "Throughput",
     f"Records a second: more is better. {OF_WAYS} A real broker is driven by its own tool, on one core; it is warmed "
     "up until it gets no faster, for two minutes at most, and stays up over the repeats. The clocks of its readers "
     "of new records begin before these come, so that no ratio is drawn from them, nor of a rate that was offered.",
     ("published_records_per_s", "consumed_records_per_s", "catch_up_records_per_s")),
    ("latency", "Latency",
     "From when a request was due, sent or not: less is better. A stall is charged with every request that was due "
     "meanwhile; from when it was sent, it is not. Of an unlimited rate (hot-topic) both count from when it was "
     "sent. A real broker's tool counts each record from when it was handed over, the wait in the tool's own "
     "buffer included: no ratio is drawn from it. A percentile is told where ten values or more lie above it.",
     ("publish_latency", "publish_service", "end_to_end_latency")),
    ("cpu", "Processor time",
     f"Of the server, for a million records published and consumed: less is better. {OF_WAYS} Of the real ones the "
     "compiling of a young JVM is in it, and what passes while their tools start.",
     ("server_cpu_s_per_million_records",)),
    ("disk", "Disk and memory",
     "What the files take on the disk, holes left out, and what the server holds in memory. A JVM's heap has a "
     "fixed size, and RocketMQ maps its files, also those of earlier repeats; of few records its files of a fixed "
     "size are most of the disk.",
     ("disk_bytes_per_record", "server_rss_bytes")),
    ("recovery", "Start and recovery",
     "From the start of the process to its first answer: on a new store, on the store that the load left when it "
     "was ended cleanly, and when it was ended by kill -9. Of the real ones most of it is the start of a JVM, of "
     "RocketMQ's two; and Kafka's waits after kill -9 until the session of the one that was killed has run out, "
     "nine seconds, so that no ratio is drawn of that.",
     ("start_s", "restart_s", "recovery_s")),
    ("lookups", "Lookups",
     "One at a time, by key and by time, over the one topic that the store holds. A scan costs by the record, so that "
     "its size counts too: see the workloads at the end.",
     ("key_lookup_latency", "time_lookup_latency")),
)  # fmt: skip
# Axis of a series, title, text, and metrics.
SERIES: Final = (
    ("topics", "Scaling with topics", "The same load, spread over more and more topics; with the real brokers' tools, "
     "which know one topic, over its partitions. \"Last by first\" sets each repeat of the last against the middle of "
     "the first, of the same target; none where it did other work there.",
     ("published_records_per_s", "publish_latency.p99_us", "server_cpu_s_per_million_records", "server_rss_bytes")),
    ("producers", "Scaling with producers", "Each producer waits until its record is on disk. Kafka's tool is one "
     "producer, with so many requests under way, which the broker takes one after another.",
     ("published_records_per_s", "publish_latency.p99_us")),
    ("partitions", "Scaling with partitions", "One append, page or lookup at a time, in a store that has the same "
     "records in the same batches over more and more partitions, each of a topic of its own: flat is best. A lookup by "
     "key asks one topic, so that where it is scanned there is less and less to scan.",
     ("append_latency.p50_us", "fetch_latency.p50_us", "key_lookup_latency.p50_us", "time_lookup_latency.p50_us",
      "restart_s", "server_rss_bytes")),
    ("store_bytes", "Scaling with size", "One append, page or lookup at a time, in larger and larger stores of one "
     "topic: flat is best. The workloads at the end tell how many records of what size.",
     ("append_latency.p50_us", "fetch_latency.p50_us", "key_lookup_latency.p50_us", "time_lookup_latency.p50_us",
      "restart_s")),
)  # fmt: skip


def report(
    results: Sequence[Result],
    *,
    baseline: str | None = None,
    measured: Sequence[Measured] = (),
) -> Document:
    """Build the report of one or more results. `measured`: ratios of goals from other benchmarks.

    Raises InvalidArgument for results without runs, for two results with the same run, and for an unknown baseline.
    """
    result = merged(results)
    base = choose_baseline(result, baseline)
    figures = figures_of(result, base)
    verdicts_found = verdicts(result, measured)
    left_out = [part for each in results for part in environment.left_out(each)]
    numbers = Numbers(
        complete=result.complete,
        incomplete_reason=result.incomplete_reason,
        quick=result.quick,
        began=result.began,
        command=result.command,
        baseline=base,
        environment=result.environment,
        generators=[each.generator for each in results if each.generator],
        figures=figures,
        goals=verdicts_found,
        left_out=left_out,
        conclusions=conclusions.conclusions(result, figures),
    )
    return Document(
        title=TITLE,
        warnings=[*environment.warnings(result), *environment.mixed(results)],
        facts=list(environment.facts(results, base)),
        targets=targets(result),
        sections=[
            conclusions.section(result, figures),
            *_chapters([f for f in figures if f.scale is None], base),
            *_series([f for f in figures if f.scale is not None]),
            environment.goals(verdicts_found),
            environment.generator(results),
            environment.not_done(left_out, complete=result.complete),
            environment.environment(result),
        ],
        numbers=numbers,
    )


# ---- figures -------------------------------------------------------------------------------------


def _chapters(figures: Sequence[Figure], baseline: str) -> Iterator[Section]:
    for name, title, about, metrics in CHAPTERS:
        latencies = [m for m in metrics if m not in METRICS]
        plots = [
            plot
            for metric in metrics
            if (
                plot := _percentiles(figures, metric)
                if metric in latencies
                else _bars(figures, metric)
            )
        ]
        tables = [
            table
            for metric in metrics
            if (
                table := _latency_table(figures, metric)
                if metric in latencies
                else _table(figures, metric, baseline)
            )
        ]
        if tables:
            yield Section(
                name=name,
                title=title,
                paragraphs=_told_of(about, plots),
                plots=plots,
                tables=tables,
            )


def _told_of(about: str, plots: Sequence[Plot]) -> list[str]:
    """Return the first paragraphs of a chapter: its subject and, if a mark is hollow, how to read its plots."""
    marks = (mark for plot in plots for group in plot.groups for mark in group.marks)
    return [about, HOLLOW] if any(mark.alone for mark in marks) else [about]


def _of(figures: Sequence[Figure], metric: str) -> list[Figure]:
    return [figure for figure in figures if figure.metric == metric]


def _grouped(figures: Sequence[Figure], kind: PlotKind, metric: str, title: str) -> Plot:
    """Build a plot with a group for each workload and a mark for each of its targets."""
    groups = [
        PlotGroup(
            workload,
            [
                PlotMark(f.target, ranges(f.spread), alone=not f.alike)
                for f in figures
                if f.workload == workload
            ],
        )
        for workload in dict.fromkeys(figure.workload for figure in figures)
    ]
    unit = figures[0].unit
    seen = "; ".join(
        f"{group.label}: "
        + ", ".join(
            f"{mark.target} {told(mark.values[1], unit)}{_alone_told(mark)}" for mark in group.marks
        )
        for group in groups
    )
    return Plot(kind=kind, title=title, about=f"Middle values: {seen}.", unit=unit, groups=groups)


def _alone_told(mark: PlotMark) -> str:
    return f" ({ALONE})" if mark.alone else ""


def _bars(figures: Sequence[Figure], metric: str) -> Plot | None:
    mine = _of(figures, metric)
    return _grouped(mine, "bars", metric, _title(metric)) if mine else None


def _title(metric: str) -> str:
    found = METRICS[metric]
    unit = "" if found.unit in CHANGING else f", {found.unit}"
    return f"{found.about[0].upper()}{found.about[1:]}{unit}"


def _latency_title(metric: str) -> str:
    return _title(f"{metric}.p50_us").removesuffix(", p50")


def _percentiles(figures: Sequence[Figure], metric: str) -> Plot | None:
    found = {(f.workload, f.target, f.metric): f for f in figures}
    groups = []
    for workload in dict.fromkeys(f.workload for f in figures):
        marks = []
        for target in dict.fromkeys(f.target for f in figures):
            at = [found.get((workload, target, f"{metric}.{name}")) for name in PERCENTILES]
            known = [figure for figure in at if figure is not None]
            if known:
                alone = not all(figure.alike for figure in known)
                marks.append(PlotMark(target, [f.spread.median for f in known], alone=alone))
        if marks:
            groups.append(PlotGroup(workload, marks))
    if not groups:
        return None
    seen = "; ".join(
        f"{group.label}: "
        + ", ".join(
            f"{mark.target} {_ends_told(mark.values)}{_alone_told(mark)}" for mark in group.marks
        )
        for group in groups
    )
    return Plot(
        kind="percentiles",
        title=f"{_latency_title(metric)}: p50, p99, p99.9",
        about=f"Middle values: {seen}.",
        unit="us",
        groups=groups,
    )


def _ends_told(values: Sequence[float]) -> str:
    ends = dict.fromkeys((0, len(values) - 1))
    return " to ".join(f"{_percentile(PERCENTILES[at])} {told(values[at], 'us')}" for at in ends)


def _table(figures: Sequence[Figure], metric: str, baseline: str) -> Table | None:
    mine = _of(figures, metric)
    if not mine:
        return None
    rows = [
        [
            f.workload,
            f.target,
            told_bare(f.spread.median, f.unit),
            range_told(f.spread, f.unit),
            f"{f.repeats}",
            ratio_told(f.ratio) if f.alike else ALONE,
        ]
        for f in mine
    ]
    columns = ["Workload", "Target", "Median", "Min - max", "Repeats", f"Ratio to {baseline}"]
    return Table(title=_title(metric), columns=columns, rows=rows)


def _latency_table(figures: Sequence[Figure], metric: str) -> Table | None:
    found = {(f.workload, f.target, f.metric): f for f in figures}
    pairs = dict.fromkeys(
        (f.workload, f.target) for f in figures if f.metric.startswith(f"{metric}.")
    )
    if not pairs:
        return None
    rows = []
    for workload, target in pairs:
        cells = [found.get((workload, target, f"{metric}.{name}")) for name in ALL_PERCENTILES]
        spread_of = next(
            (f for name in SPREAD_OF if (f := found.get((workload, target, f"{metric}.{name}")))),
            None,
        )
        rows.append(
            [
                workload,
                target,
                *("" if f is None else _latency_told(f) for f in cells),
                *(("", "", "") if spread_of is None else _spread_cells(spread_of)),
            ]
        )
    names = [_percentile(name) for name in ALL_PERCENTILES]
    columns = ["Workload", "Target", *names, "Spread of", "Min - max", "Ratio"]
    about = (
        "The middle one of the repeats; of max the largest. Spread and ratio are those of p99, or of the highest "
        "percentile below that there is."
    )
    return Table(title=_latency_title(metric), columns=columns, rows=rows, about=about)


def _spread_cells(figure: Figure) -> tuple[str, str, str]:
    at = _percentile(figure.metric.rpartition(".")[2])
    return at, range_told(figure.spread, "us"), ratio_told(figure.ratio) if figure.alike else ALONE


def _percentile(name: str) -> str:
    return name.removesuffix("_us").replace("_", ".")


def _latency_told(figure: Figure) -> str:
    spread = figure.spread
    return told(spread.maximum if figure.metric.endswith(".max_us") else spread.median, "us")


def _series(figures: Sequence[Figure]) -> Iterator[Section]:
    for axis, title, about, metrics in SERIES:
        mine = [f for f in figures if f.scale is not None and f.scale.name == axis]
        parts = [
            (_lines(mine, metric, axis), _series_table(mine, metric, axis)) for metric in metrics
        ]
        if any(table for _, table in parts):
            plots = [plot for plot, _ in parts if plot]
            yield Section(
                name=f"by-{axis}".replace("_", "-"),
                title=title,
                paragraphs=_told_of(about, plots),
                plots=plots,
                tables=[table for _, table in parts if table],
            )


def _lines(figures: Sequence[Figure], metric: str, axis: str) -> Plot | None:
    mine = sorted(_of(figures, metric), key=_place)
    if len({_place(figure) for figure in mine}) < 2:
        return None
    groups = [
        PlotGroup(
            target,
            [
                PlotMark(target, ranges(f.spread), _place(f), not f.alike)
                for f in mine
                if f.target == target
            ],
        )
        for target in dict.fromkeys(figure.target for figure in mine)
    ]
    unit = mine[0].unit
    seen = "; ".join(
        f"{group.label} from {told(group.marks[0].values[1], unit)} at {scale_told(group.marks[0].x, axis)} "
        f"to {told(group.marks[-1].values[1], unit)} at {scale_told(group.marks[-1].x, axis)}"
        for group in groups
    )
    return Plot(
        kind="lines", title=_title(metric), about=f"{seen}.", unit=unit, groups=groups, x_name=axis
    )


def _place(figure: Figure) -> float:
    return figure.scale.value if figure.scale else 0.0


def scale_told(value: float, axis: str) -> str:
    """Format the place of a run on its axis."""
    if axis == "store_bytes":
        return told(value, "bytes")
    return f"{value:,.0f} {axis.removesuffix('s') if value == 1 else axis}"


def _middle_told(figure: Figure) -> str:
    middle = told_bare(figure.spread.median, figure.unit)
    spread = range_told(figure.spread, figure.unit)
    star = "" if figure.alike else STAR
    return f"{middle}{star}" if spread == middle else f"{middle}{star} ({spread})"


def _series_table(figures: Sequence[Figure], metric: str, axis: str) -> Table | None:
    mine = _of(figures, metric)
    if not mine:
        return None
    workloads = sorted({(_place(f), f.workload) for f in mine})
    rows = []
    for target in dict.fromkeys(f.target for f in mine):
        at = {f.workload: f for f in mine if f.target == target}
        cells = [_middle_told(f) if (f := at.get(workload)) else "" for _, workload in workloads]
        last = [at[workload] for _, workload in workloads if workload in at][-1]
        rows.append([target, *cells, ratio_told(last.change)])
    names = [scale_told(value, axis) for value, _ in workloads]
    return Table(
        title=f"{_title(metric)}: median (min - max)",
        columns=["Target", *names, "Last by first"],
        rows=rows,
        labels=1,
    )
