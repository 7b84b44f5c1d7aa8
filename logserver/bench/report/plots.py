"""Plots as SVG text, drawn with matplotlib: bars, percentiles, and lines over an axis.

Owns the drawing; must not compute a figure. A plot is as wide as a phone, with readable letters, and scales with its
container. Its colours become CSS variables, so the page's style sets them for light and dark mode. Each target also has
its own shape. The plot's description says its content in words.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from logserver.bench.report.format import ALONE, bare_text, scale_text, value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour and one shape for each of six targets: --s0 to --s5 of the style sheet. The last shape is a ring.
COLOURS: Final = ("#1f6fb4", "#c2540a", "#0c7a68", "#84409c", "#6a6f00", "#5b6570")
SHAPES: Final = "osD^vo"
TEXT, SOFT, LINE = "#1c2127", "#59636e", "#d5dae0"
VARIABLES: Final = {TEXT: "text", SOFT: "soft", LINE: "line"} | {
    colour: f"s{number}" for number, colour in enumerate(COLOURS)
}
WIDTH: Final = 360  # pixels, as all lengths below; matplotlib counts 72 of them in an inch
BARS: Final = (18, 278)  # left and right end of the longest bar; its value is written after it
LABEL, ROW, GAP = 19, 18, 9  # heights: the label of a group, a mark, the space after a group
TICKS: Final = 18  # height of the labels of a horizontal axis
LINES: Final = (62, 34, 338, 190)  # left, bottom, right and top of lines
LINES_HEIGHT: Final = 234
PERCENTILES: Final = ("p50", "p99", "p99.9")


class Mark(msgspec.Struct, frozen=True):
    """The mark of one target. `values`: minimum, median and maximum; of percentiles p50, p99 and p99.9.

    `x` is set only where the plot has an x axis. `alone`: not comparable with the others, and drawn hollow.
    """

    target: str
    values: Sequence[float]
    x: float = 0.0
    alone: bool = False


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A plot: groups of marks, such as the targets of one workload. `axis` names the x axis of lines."""

    kind: Literal["bars", "percentiles", "lines"]
    title: str
    unit: str
    groups: Mapping[str, Sequence[Mark]]
    axis: str = ""

    @property
    def alone(self) -> bool:
        """Whether any mark is not comparable."""
        return any(mark.alone for marks in self.groups.values() for mark in marks)

    @property
    def about(self) -> str:
        """The content in words, for readers who cannot see the plot."""
        if self.kind == "lines":
            ends = ((name, marks[0], marks[-1]) for name, marks in self.groups.items())
            return "; ".join(
                f"{name} from {self._end(first)} to {self._end(last)}" for name, first, last in ends
            )
        groups = (
            f"{label}: {', '.join(self._mark(mark) for mark in marks)}"
            for label, marks in self.groups.items()
        )
        return f"Middle values: {'; '.join(groups)}."

    def _end(self, mark: Mark) -> str:
        return f"{value_text(mark.values[1], self.unit)} at {scale_text(mark.x, self.axis)}"

    def _mark(self, mark: Mark) -> str:
        if self.kind == "bars":
            value = value_text(mark.values[1], self.unit)
        else:
            ends = dict.fromkeys((0, len(mark.values) - 1))
            value = " to ".join(
                f"{PERCENTILES[n]} {value_text(mark.values[n], 'us')}" for n in ends
            )
        return f"{mark.target} {value}{f' ({ALONE})' if mark.alone else ''}"


def svg(plot: Plot, targets: Sequence[str], name: str) -> str:
    """Draw a plot; `name` must be unique on the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = sum(LABEL + ROW * len(marks) + GAP for marks in plot.groups.values())
    height = {"bars": rows, "percentiles": rows + TICKS, "lines": LINES_HEIGHT}[plot.kind]
    data = io.StringIO()
    with mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 11.5, "text.color": TEXT}
    ):
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        figure.patch.set_visible(False)
        _Drawing(plot, targets, figure, height).draw()
        figure.savefig(data, format="svg", dpi=72, metadata={"Date": None})
    return _inline(data.getvalue(), plot, name, height)


class _Drawing:
    """One plot on one figure."""

    def __init__(self, plot: Plot, targets: Sequence[str], figure: Figure, height: float) -> None:
        self._plot = plot
        self._targets = targets
        self._figure = figure
        self._height = height

    def draw(self) -> None:
        """Draw the plot according to its kind."""
        {"bars": self._bars, "percentiles": self._percentiles, "lines": self._lines}[
            self._plot.kind
        ]()

    def _axes(self, left: float, bottom: float, right: float, top: float) -> Axes:
        """Add axes at these pixels, without a frame: nothing is drawn but what the caller draws."""
        box = (left / WIDTH, bottom / self._height)
        size = ((right - left) / WIDTH, (top - bottom) / self._height)
        axes = self._figure.add_axes((*box, *size))
        axes.set_axis_off()
        return axes

    def _number(self, mark: Mark) -> int:
        return self._targets.index(mark.target) % len(COLOURS)

    def _shape(self, axes: Axes, mark: Mark, x: float, y: float, **more: Any) -> None:
        """Draw the shape of a target; `more` are further properties of the marker."""
        number = self._number(mark)
        hollow = mark.alone or number == len(COLOURS) - 1
        (line,) = axes.plot(
            [x], [y], SHAPES[number], color=COLOURS[number], markersize=7, clip_on=False,
            markerfacecolor="none" if hollow else COLOURS[number], **more,
        )  # fmt: skip
        if mark.alone:
            line.set_gid("alone")

    def _rows(self, axes: Axes) -> Sequence[tuple[float, Mark, Sequence[Mark]]]:
        """Write the labels of all groups; return the height of each mark, the mark, and its group."""
        rows: list[tuple[float, Mark, Sequence[Mark]]] = []
        top = 0.0
        for label, marks in self._plot.groups.items():
            y = 1 - (top + LABEL - 5) / self._height
            axes.text(0, y, label, transform=self._figure.transFigure, fontsize=13)
            rows += [(top + LABEL + ROW * (n + 0.5), mark, marks) for n, mark in enumerate(marks)]
            top += LABEL + ROW * len(marks) + GAP
        axes.set_ylim(top, 0)
        return rows

    def _bars(self) -> None:
        """Draw bars from zero, each group scaled to its own largest value; a whisker spans minimum to maximum."""
        left, right = BARS
        axes = self._axes(left, 0, right, self._height)
        axes.set_xlim(0, 1)
        for y, mark, marks in self._rows(axes):
            most = max(other.values[2] for other in marks) or 1.0
            least, middle, largest = (value / most for value in mark.values)
            colour = COLOURS[self._number(mark)]
            self._shape(axes, mark, (7 - left) / (right - left), y)
            (bar,) = axes.barh(y, max(middle, 0.002), 10, color=colour, alpha=0.55, clip_on=False)
            if mark.alone:
                bar.set(facecolor="none", edgecolor=colour, linestyle="--", alpha=1, gid="alone")
            axes.plot([least, largest], [y, y], color=TEXT, marker="|", linewidth=1, clip_on=False)
            value = bare_text(mark.values[1], self._plot.unit)
            axes.text(1 + 8 / (right - left), y, value, color=SOFT, va="center_baseline")

    def _percentiles(self) -> None:
        """Draw percentiles on one logarithmic axis: a mark at p50, lines at p99 and p99.9."""
        axes = self._axes(BARS[0], TICKS, WIDTH - 14, self._height)
        values = [v for marks in self._plot.groups.values() for mark in marks for v in mark.values]
        low, high = limits(values)
        axes.set(xscale="log", xlim=(low, high))
        rows = self._rows(axes)
        bottom = max(axes.get_ylim())
        for tick in ticks(low, high):
            axes.plot([tick, tick], [0, bottom], color=LINE, linewidth=0.7, clip_on=False)
            label = value_text(tick, self._plot.unit)
            axes.text(tick, bottom + 13, label, color=SOFT, ha="center")
        for y, mark, _ in rows:
            colour = COLOURS[self._number(mark)]
            at = [max(value, low) for value in mark.values]
            axes.plot(
                at, [y] * len(at), color=colour, linewidth=1.8, clip_on=False,
                marker="|", markersize=12, markevery=slice(1, None),
            )  # fmt: skip
            self._shape(axes, mark, at[0], y)

    def _lines(self) -> None:
        """Draw a line for each group, both axes logarithmic; a whisker spans minimum to maximum."""
        axes = self._axes(*LINES)
        groups = self._plot.groups.values()
        places = sorted({mark.x for marks in groups for mark in marks})
        low, high = limits([value for marks in groups for mark in marks for value in mark.values])
        axes.set(xscale="log", yscale="log", xlim=limits(places), ylim=(low, high))
        left, right = axes.get_xlim()
        for tick in ticks(low, high):
            axes.plot([left, right], [tick, tick], color=LINE, linewidth=0.7, clip_on=False)
            label = f"{bare_text(tick, self._plot.unit)} "
            axes.text(left, tick, label, color=SOFT, ha="right", va="center_baseline")
        below: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "color": SOFT}
        for place in places:
            axes.annotate(bare_text(place, ""), (place, low), (0, -14), **below)
        name = self._plot.axis.replace("_", " ")
        axes.annotate(name, ((left * right) ** 0.5, low), (0, -28), **below)
        for marks in groups:
            colour = COLOURS[self._number(marks[0])]
            for mark in marks:
                least, middle, most = (max(value, low) for value in mark.values)
                axes.plot([mark.x] * 2, [least, most], color=colour, clip_on=False)
                self._shape(axes, mark, mark.x, middle)
            points = [(mark.x, max(mark.values[1], low)) for mark in marks]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.8, clip_on=False)


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis: values of zero or less are drawn at the smallest value above zero."""
    above = [value for value in values if value > 0] or [1.0]
    low, high = min(above), max(above)
    return (low / 1.5, high * 1.5) if high / low < 2 else (low, high)


def ticks(low: float, high: float) -> list[float]:
    """Return at most five round numbers between two values; the closer the values, the finer the steps."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    inside: list[float] = []
    for steps in [(1,), (1, 2, 5), [n / 2 for n in range(2, 20)]][0 if high / low >= 50 else 1 :]:
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        inside = [tick for tick in found if low <= tick <= high]
        if len(inside) > 1:
            break
    return inside[:: math.ceil(len(inside) / 5)]


def _inline(data: str, plot: Plot, name: str, height: float) -> str:
    """Turn matplotlib's document into a part of a page: unique names, and variables in place of colours."""
    _, _, body = data.partition("<svg ")
    _, _, body = body.partition(">")
    body = re.sub(
        r"<metadata>.*?</metadata>|<style .*?</style>|<!--.*?-->", "", body, flags=re.DOTALL
    )
    body = body.replace('id="alone"', 'class="alone"')
    body = re.sub(
        r' id="[a-zA-Z0-9.]+_[\d_]+"', "", body
    )  # names of groups, which nothing refers to
    body = re.sub(r'(id="|href="#)', rf"\1{name}-", body)
    # The page's style has the font; labels are bold there alone, so that no second font is loaded to measure them.
    body = re.sub(r"font(-size)?: ([\d.]+)px( [^;\"]*)?", r"font-size: \2px", body)
    body = re.sub(r"font-family: [^;\"]*; | transform=\"rotate\(-?0 [^\"]*\"", "", body)
    body = body.replace("font-size: 13px", "font-size: 13px; font-weight: 600")
    body = re.sub(r"\s*\n\s*", " ", body)
    body = re.sub(r"(\.\d\d)\d+", r"\1", body)
    body = re.sub("|".join(VARIABLES), lambda found: f"var(--{VARIABLES[found[0]]})", body)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(plot.title)}</title>'
        f'<desc id="{name}-d">{escape(plot.about)}</desc>{body}'
    )
