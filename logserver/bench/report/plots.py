"""Plots as SVG text: bars, percentiles, and lines over an axis.

Owns the drawing; must not compute a figure. A plot is as wide as a phone, with readable letters, and scales with its
container. Colours are CSS classes, so the page's style sets them for light and dark mode. Each target also has its own
shape. The plot's description says its content in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from logserver.bench.report.document import Plot, PlotGroup, PlotMark
from logserver.bench.report.format import told, told_bare

WIDTH: Final = 360.0
LEFT: Final = 18.0
BAR_END: Final = 278.0
ROW: Final = 18.0
HEAD: Final = 19.0
GAP: Final = 9.0
LINES_HEIGHT: Final = 200.0
LINES_LEFT: Final = 62.0
AXIS: Final = 34.0
SERIES: Final = 6  # number of colours and shapes; must match the style sheet
Scale = Callable[[float], float]


class Shapes(NamedTuple):
    """The number of each target, which selects its colour and its shape."""

    targets: Sequence[str]

    def number(self, target: str) -> int:
        """Return the number of a target, from 0."""
        return self.targets.index(target) % SERIES

    def at(self, mark: PlotMark, x: float, y: float) -> str:
        """Draw the shape of the mark's target."""
        return shape(self.number(mark.target), x, y, hollow=mark.alone)


def shape(number: int, x: float, y: float, r: float = 4.2, *, hollow: bool = False) -> str:
    """Draw a mark: disc, square, diamond, triangle up, triangle down, ring."""
    found = f'class="s{number}{" alone" if hollow else ""}" '
    corners = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -r * 1.35), (r * 1.35, 0), (0, r * 1.35), (-r * 1.35, 0)],
        3: [(0, -r * 1.2), (r * 1.2, r), (-r * 1.2, r)],
        4: [(0, r * 1.2), (r * 1.2, -r), (-r * 1.2, -r)],
    }.get(number)
    if corners is None:
        ring = ' fill-opacity="0"' if number else ""
        return f'<circle {found}cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"{ring}/>'
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon {found}points="{points}"/>'


def svg(plot: Plot, shapes: Shapes, name: str) -> str:
    """Draw a plot; `name` must be unique on the page."""
    draw = {"bars": _bars, "percentiles": _percentiles, "lines": _lines}[plot.kind]
    parts, height = draw(plot, shapes)
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-labelledby="{name}-t {name}-d" '
        f'preserveAspectRatio="xMidYMid meet"><title id="{name}-t">{escape(plot.title)}</title>'
        f'<desc id="{name}-d">{escape(plot.about)}</desc>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", name: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{name}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{name}"/>'


def _rows(
    groups: Sequence[PlotGroup],
) -> Iterator[tuple[float, PlotGroup, Sequence[tuple[float, PlotMark]]]]:
    """Yield the y positions of each group's label and of its marks, from the top."""
    top = 0.0
    for group in groups:
        rows = [(top + HEAD + ROW * (n + 0.5), mark) for n, mark in enumerate(group.marks)]
        yield top + HEAD - 5, group, rows
        top += HEAD + ROW * len(group.marks) + GAP


def _height(groups: Sequence[PlotGroup]) -> float:
    return sum(HEAD + ROW * len(group.marks) + GAP for group in groups)


def _bars(plot: Plot, shapes: Shapes) -> tuple[list[str], float]:
    """Draw bars from zero, each group scaled to its own largest value; a whisker spans minimum to maximum."""
    parts: list[str] = []
    for label_y, group, rows in _rows(plot.groups):
        parts.append(_text(0, label_y, group.label, name="label"))
        most = max(mark.values[2] for mark in group.marks) or 1.0
        for y, mark in rows:
            least, middle, largest = (
                LEFT + value / most * (BAR_END - LEFT) for value in mark.values
            )
            kind = "alone" if mark.alone else "bar"
            number, width = shapes.number(mark.target), max(middle - LEFT, 0.5)
            bar = f'class="s{number} {kind}" width="{width:.1f}"'
            parts += [
                shapes.at(mark, 7, y),
                f'<rect {bar} x="{LEFT}" y="{y - 5:.1f}" height="10"/>',
                _line(least, y, largest, y, "whisker"),
                _line(least, y - 3, least, y + 3, "whisker"),
                _line(largest, y - 3, largest, y + 3, "whisker"),
                _text(BAR_END + 8, y + 4, told_bare(mark.values[1], plot.unit), name="value"),
            ]
    return parts, _height(plot.groups)


def _percentiles(plot: Plot, shapes: Shapes) -> tuple[list[str], float]:
    """Draw percentiles on one logarithmic axis: a mark at p50, lines at p99 and p99.9."""
    values = [value for group in plot.groups for mark in group.marks for value in mark.values]
    height = _height(plot.groups)
    x_of, ticks = _logarithmic(values, LEFT, WIDTH - 14)
    parts = [_line(x_of(tick), 0, x_of(tick), height, "grid") for tick in ticks]
    for label_y, group, rows in _rows(plot.groups):
        parts.append(_text(0, label_y, group.label, name="label"))
        for y, mark in rows:
            number = shapes.number(mark.target)
            at = [x_of(value) for value in mark.values]
            parts.append(_line(at[0], y, at[-1], y, f"s{number} line"))
            parts += [_line(x, y - 6, x, y + 6, f"s{number} line") for x in at[1:]]
            parts.append(shapes.at(mark, at[0], y))
    parts += [
        _text(x_of(tick), height + 12, told(tick, plot.unit), "middle", "tick") for tick in ticks
    ]
    return parts, height + 18


def _lines(plot: Plot, shapes: Shapes) -> tuple[list[str], float]:
    """Draw a line for each group, both axes logarithmic; a whisker spans minimum to maximum."""
    marks = [mark for group in plot.groups for mark in group.marks]
    places = sorted({mark.x for mark in marks})
    x_of, _ = _logarithmic(places, LINES_LEFT + 8, WIDTH - 22)
    y_of, ticks = _logarithmic([v for mark in marks for v in mark.values], LINES_HEIGHT, 10)
    parts = [_line(LINES_LEFT, y_of(tick), WIDTH - 6, y_of(tick), "grid") for tick in ticks]
    parts += [
        _text(LINES_LEFT - 5, y_of(tick) + 4, told_bare(tick, plot.unit), "end", "tick")
        for tick in ticks
    ]
    for place in places:
        parts.append(_line(x_of(place), LINES_HEIGHT, x_of(place), LINES_HEIGHT + 4, "axis"))
        parts.append(_text(x_of(place), LINES_HEIGHT + 16, _short(place), "middle", "tick"))
    parts.append(_line(LINES_LEFT, LINES_HEIGHT, WIDTH - 6, LINES_HEIGHT, "axis"))
    name = plot.x_name.replace("_", " ")
    parts.append(_text((LINES_LEFT + WIDTH) / 2, LINES_HEIGHT + 30, name, "middle", "tick"))
    for group in plot.groups:
        number = shapes.number(group.marks[0].target)
        points = " ".join(f"{x_of(m.x):.1f},{y_of(m.values[1]):.1f}" for m in group.marks)
        parts.append(f'<polyline class="s{number} line" points="{points}"/>')
        for mark in group.marks:
            x, (least, middle, most) = x_of(mark.x), map(y_of, mark.values)
            parts.append(_line(x, least, x, most, f"s{number} line"))
            parts.append(shapes.at(mark, x, middle))
    return parts, LINES_HEIGHT + AXIS


def _short(value: float) -> str:
    return told_bare(value, "")


def _logarithmic(values: Sequence[float], begin: float, end: float) -> tuple[Scale, list[float]]:
    """Return a scale from values to positions between `begin` and `end`, and the ticks of its axis. Values of zero or
    less are drawn at the smallest value above zero.
    """
    above = [value for value in values if value > 0] or [1.0]
    low, high = min(above), max(above)
    if high / low < 2:
        low, high = low / 1.5, high * 1.5
    span = math.log(high / low)

    def place(value: float) -> float:
        return begin + (end - begin) * math.log(max(value, low) / low) / span

    return place, _ticks(low, high)


def _ticks(low: float, high: float) -> list[float]:
    """Return at most five round numbers between two values; the closer the values, the finer the steps."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    inside: list[float] = []
    for steps in [(1,), (1, 2, 5), [n / 2 for n in range(2, 20)]][0 if high / low >= 50 else 1 :]:
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) > 1:
            break
    return inside[:: math.ceil(len(inside) / 5)]
