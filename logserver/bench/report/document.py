"""The structure of a report: sections of paragraphs, plots and tables, and the numbers they show.

Owns the structs that every output form is written from; must not know HTML, SVG or Markdown. Text is plain: each writer
escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from logserver.bench.report.figures import Figure
from logserver.bench.report.verdicts import Verdict
from logserver.bench.result import Environment, Generator, Spread

REPORT_VERSION = 2

PlotKind: TypeAlias = Literal["bars", "percentiles", "lines"]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The first `labels` columns and the last `remarks` columns are words, the other columns formatted
    numbers. The first cell names its row.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 2
    remarks: int = 0
    about: str = ""


class PlotMark(msgspec.Struct, frozen=True):
    """The mark of one target in a plot. `x` is set only where the plot has an x axis."""

    target: str
    values: Sequence[
        float
    ]  # bars and lines: minimum, median, maximum; percentiles: p50, p99, p99.9
    x: float = 0.0
    alone: bool = False  # not comparable with the others: drawn hollow


class PlotGroup(msgspec.Struct, frozen=True):
    """A group of marks in a plot, such as one workload."""

    label: str
    marks: Sequence[PlotMark]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A plot. `about` describes its content in words, for readers who cannot see it."""

    kind: PlotKind
    title: str
    about: str
    unit: str
    groups: Sequence[PlotGroup]
    x_name: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A chapter. `name` is its anchor; `points` are separate statements."""

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


class LeftOut(msgspec.Struct, frozen=True):
    """A part of a run that was left out, did not hold, or failed."""

    workload: str
    target: str
    what: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `warnings` apply to the report as a whole, such as that it is partial."""

    title: str
    warnings: Sequence[str]
    facts: Sequence[str]
    targets: Sequence[str]
    sections: Sequence[Section]
    numbers: Numbers


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


def ranges(spread: Spread) -> tuple[float, float, float]:
    """Return the values of a mark of bars or lines."""
    return spread.minimum, spread.median, spread.maximum
