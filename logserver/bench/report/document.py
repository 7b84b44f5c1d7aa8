"""What a report is made of: sections of paragraphs, plots and tables, and the numbers behind them.

Owns these shapes, which every form is written from; must not know HTML, SVG or Markdown. A text is plain: what is
shown is escaped by who writes it.
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
    """The first `labels` columns are words, the last `remarks` too, the others numbers as they are shown. The first
    cell names its row.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 2
    remarks: int = 0
    about: str = ""


class Mark(msgspec.Struct, frozen=True):
    """One target in a plot: what is drawn for it. `x` only where a plot has an axis for it."""

    target: str
    values: Sequence[
        float
    ]  # bars and lines: minimum, median, maximum; percentiles: p50, p99, p99.9
    x: float = 0.0
    alone: bool = False  # not to be compared with the others: drawn hollow


class Group(msgspec.Struct, frozen=True):
    """What stands together in a plot, such as one workload."""

    label: str
    marks: Sequence[Mark]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """`about` says in words what is to be seen, for those who do not see it."""

    kind: PlotKind
    title: str
    about: str
    unit: str
    groups: Sequence[Group]
    x_name: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A chapter. `name` is its anchor. `points` are single statements."""

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


class LeftOut(msgspec.Struct, frozen=True):
    """What was not done, did not hold, or went wrong."""

    workload: str
    target: str
    what: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `warnings` say what is wrong with it as a whole, such as that it is partial."""

    title: str
    warnings: Sequence[str]
    facts: Sequence[str]
    targets: Sequence[str]
    sections: Sequence[Section]
    numbers: Numbers


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The report for programs. The names are stable within a `report_version`, and carry their units."""

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
    """As a mark of bars or lines has it."""
    return spread.minimum, spread.median, spread.maximum
