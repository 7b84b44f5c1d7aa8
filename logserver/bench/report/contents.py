"""The contents of a report: its figures, tables and plots by chapter, and its numbers for programs.

Owns the metrics of each chapter. Must not know HTML or Markdown: the template `report.jinja` has the chapters' texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from logserver.bench.report import conclusions
from logserver.bench.report.caveats import LeftOut, left_out, warnings
from logserver.bench.report.figures import Figure, choose_baseline, figures_of, merged
from logserver.bench.report.format import (
    ALONE,
    CHANGING,
    bare_text,
    range_text,
    ratio_text,
    scale_text,
    value_text,
)
from logserver.bench.report.plots import Mark, Plot
from logserver.bench.report.verdicts import Measured, Verdict, verdicts
from logserver.bench.result import METRICS, Environment, Generator, Result

REPORT_VERSION: Final = 2
STAR: Final = "*"  # after a figure that is not comparable, in tables without ratios
PERCENTILES: Final = ("p50_us", "p90_us", "p99_us", "p99_9_us", "max_us", "mean_us")
PLOTTED: Final = ("p50_us", "p99_us", "p99_9_us")
SPREAD_OF: Final = ("p99_us", "p90_us", "p50_us")

# The metrics of each chapter; of a latency the part before the dot.
CHAPTERS: Final[Mapping[str, Sequence[str]]] = {
    "throughput": ("published_records_per_s", "consumed_records_per_s", "catch_up_records_per_s"),
    "latency": ("publish_latency", "publish_service", "end_to_end_latency"),
    "cpu": ("server_cpu_s_per_million_records",),
    "disk": ("disk_bytes_per_record", "server_rss_bytes"),
    "recovery": ("start_s", "restart_s", "recovery_s"),
    "lookups": ("key_lookup_latency", "time_lookup_latency"),
}
_ONE_AT_A_TIME: Final = (
    "append_latency.p50_us",
    "fetch_latency.p50_us",
    "key_lookup_latency.p50_us",
    "time_lookup_latency.p50_us",
    "restart_s",
)
# The metrics of each series, by its axis.
SERIES: Final[Mapping[str, Sequence[str]]] = {
    "topics": (
        "published_records_per_s",
        "publish_latency.p99_us",
        "server_cpu_s_per_million_records",
        "server_rss_bytes",
    ),
    "producers": ("published_records_per_s", "publish_latency.p99_us"),
    "partitions": (*_ONE_AT_A_TIME, "server_rss_bytes"),
    "store_bytes": _ONE_AT_A_TIME,
}


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The first `labels` columns are words, the others formatted numbers. The first cell names its row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 2


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """The plots and tables of a chapter."""

    plots: Sequence[Plot]
    tables: Sequence[Table]


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The report for programs. The names are stable within a `report_version` and carry their units."""

    report_version: int = REPORT_VERSION
    complete: bool
    incomplete_reason: str | None
    quick: bool
    began: str
    command: Sequence[str]
    baseline: str
    environment: Environment
    generators: Sequence[Generator]
    figures: Sequence[Figure]
    goals: Sequence[Verdict]
    left_out: Sequence[LeftOut]
    conclusions: Sequence[str]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `merged` has the runs of all results; `warnings` apply to the report as a whole."""

    results: Sequence[Result]
    merged: Result
    warnings: Sequence[str]
    chapters: Mapping[str, Chapter]
    numbers: Numbers

    @property
    def targets(self) -> list[str]:
        """The names of the targets in order of first appearance."""
        return list(dict.fromkeys(run.target.name for run in self.merged.runs))


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
        goals=verdicts(result, measured),
        left_out=[part for each in results for part in left_out(each)],
        conclusions=conclusions.conclusions(result, figures),
    )
    return Document(
        results=results,
        merged=result,
        warnings=list(warnings(result, results)),
        chapters=dict(_chapters(figures, base)),
        numbers=numbers,
    )


def _chapters(figures: Sequence[Figure], baseline: str) -> Iterator[tuple[str, Chapter]]:
    """Yield the chapters that have a figure, and the series by their axes."""
    plain = [figure for figure in figures if figure.scale is None]
    parts = {
        name: [
            _table(plain, metric, baseline) if metric in METRICS else _latencies(plain, metric)
            for metric in metrics
        ]
        for name, metrics in CHAPTERS.items()
    }
    for axis, metrics in SERIES.items():
        mine = [f for f in figures if f.scale is not None and f.scale.name == axis]
        parts[f"by-{axis}".replace("_", "-")] = [_series(mine, metric, axis) for metric in metrics]
    for name, found in parts.items():
        tables = [table for _, table in found if table]
        if tables:
            yield name, Chapter(plots=[plot for plot, _ in found if plot], tables=tables)


Part = tuple[Plot | None, Table | None]


def _table(figures: Sequence[Figure], metric: str, baseline: str) -> Part:
    """Return the bars and the table of a metric."""
    mine = [figure for figure in figures if figure.metric == metric]
    if not mine:
        return None, None
    groups: dict[str, list[Mark]] = {}
    for figure in mine:
        groups.setdefault(figure.workload, []).append(_mark(figure))
    rows = [
        [
            f.workload,
            f.target,
            bare_text(f.spread.median, f.unit),
            range_text(f.spread, f.unit),
            f"{f.repeats}",
            _ratio(f),
        ]
        for f in mine
    ]
    columns = ["Workload", "Target", "Median", "Min - max", "Repeats", f"Ratio to {baseline}"]
    title = _title(metric)
    return (
        Plot(kind="bars", title=title, unit=mine[0].unit, groups=groups),
        Table(title=title, columns=columns, rows=rows),
    )


def _mark(figure: Figure) -> Mark:
    spread = figure.spread
    values = spread.minimum, spread.median, spread.maximum
    return Mark(figure.target, values, _place(figure), not figure.alike)


def _ratio(figure: Figure) -> str:
    return ratio_text(figure.ratio) if figure.alike else ALONE


def _title(metric: str) -> str:
    found = METRICS[metric]
    unit = "" if found.unit in CHANGING else f", {found.unit}"
    return f"{found.about[0].upper()}{found.about[1:]}{unit}"


def _latencies(figures: Sequence[Figure], metric: str) -> Part:
    """Return the percentiles of a latency, as a plot and as a table."""
    found: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        name, _, percentile = figure.metric.partition(".")
        if name == metric:
            found.setdefault((figure.workload, figure.target), {})[percentile] = figure
    if not found:
        return None, None
    rows: list[Sequence[str]] = []
    groups: dict[str, list[Mark]] = {}
    for (workload, target), at in found.items():
        known = [at[name] for name in PLOTTED if name in at]
        if known:
            alone = not all(figure.alike for figure in known)
            mark = Mark(target, [f.spread.median for f in known], alone=alone)
            groups.setdefault(workload, []).append(mark)
        values = [_latency(at[name]) if name in at else "" for name in PERCENTILES]
        highest = next((at[name] for name in SPREAD_OF if name in at), None)
        rows.append([workload, target, *values, *_spread_cells(highest)])
    names = [_percentile(name) for name in PERCENTILES]
    columns = ["Workload", "Target", *names, "Spread of", "Min - max", "Ratio"]
    title = _title(f"{metric}.p50_us").removesuffix(", p50")
    plot = Plot(kind="percentiles", title=f"{title}: p50, p99, p99.9", unit="us", groups=groups)
    return plot if groups else None, Table(title=title, columns=columns, rows=rows)


def _spread_cells(figure: Figure | None) -> tuple[str, str, str]:
    if figure is None:
        return "", "", ""
    at = _percentile(figure.metric.rpartition(".")[2])
    return at, range_text(figure.spread, "us"), _ratio(figure)


def _percentile(name: str) -> str:
    return name.removesuffix("_us").replace("_", ".")


def _latency(figure: Figure) -> str:
    spread = figure.spread
    return value_text(spread.maximum if figure.metric.endswith(".max_us") else spread.median, "us")


def _series(figures: Sequence[Figure], metric: str, axis: str) -> Part:
    """Return a metric along the axis of a series, as lines and as a table."""
    mine = sorted((figure for figure in figures if figure.metric == metric), key=_place)
    if not mine:
        return None, None
    workloads = {figure.workload: _place(figure) for figure in mine}
    rows, groups = [], {}
    for target in dict.fromkeys(figure.target for figure in mine):
        at = {figure.workload: figure for figure in mine if figure.target == target}
        groups[target] = [_mark(figure) for figure in at.values()]
        cells = [_cell(at[name]) if name in at else "" for name in workloads]
        rows.append([target, *cells, ratio_text(list(at.values())[-1].change)])
    title = _title(metric)
    plot = Plot(kind="lines", title=title, unit=mine[0].unit, groups=groups, axis=axis)
    table = Table(
        title=f"{title}: median (min - max)",
        columns=[
            "Target",
            *(scale_text(place, axis) for place in workloads.values()),
            "Last by first",
        ],
        rows=rows,
        labels=1,
    )
    return plot if len(set(workloads.values())) > 1 else None, table


def _place(figure: Figure) -> float:
    return figure.scale.value if figure.scale else 0.0


def _cell(figure: Figure) -> str:
    median = bare_text(figure.spread.median, figure.unit)
    spread = range_text(figure.spread, figure.unit)
    star = "" if figure.alike else STAR
    return f"{median}{star}" if spread == median else f"{median}{star} ({spread})"
