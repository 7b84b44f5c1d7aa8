"""The plot of a load test: the rate and the latency of each server next to the ceilings.

Owns the drawing; must not measure. Each row has a line on both sides. Left: records a second in the closed loop, from
slowest to fastest turn, with a dot at the median. Right: p50, p99 and p99.9 of the open loop. Both axes are
logarithmic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scripts.bench.http_report import CLOSED, OPEN, Report, Row

COLOURS: Final = {
    "kafka": "#1f77b4",
    "rocketmq": "#d9601a",
    "no-store": "#555555",
    "bare": "#aaaaaa",
}
OTHER_COLOUR: Final = "#2a9d55"
MARKS: Final = (("p50", "o"), ("p99", "D"), ("p99.9", "|"))
WIDTH_INCHES: Final = 13.0
ROW_INCHES: Final = 0.42
FRAME_INCHES: Final = 1.6


def draw(report: Report, path: Path) -> None:
    """Write the plot; the suffix selects the file type. Raises OSError, and ValueError for another suffix."""
    closed = [row for row in report.rows if row.loop == CLOSED]
    opened = [row for row in report.rows if row.loop == OPEN]
    height = FRAME_INCHES + ROW_INCHES * max(len(closed), len(opened), 1)
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _rates(left, closed)
    _latencies(right, opened)
    facts = (report.about.get(name, "") for name in ("cpu", "python", "package"))
    figure.suptitle(f"HTTP load: {', '.join(facts)}", fontsize=10)
    figure.savefig(path)


def _rates(axes: Axes, rows: Sequence[Row]) -> None:
    for height, server, row in _places(rows):
        rates = row.figures[server].records_per_s
        colour = COLOURS.get(server, OTHER_COLOUR)
        axes.plot([rates.minimum, rates.maximum], [height, height], color=colour, linewidth=2)
        axes.plot([rates.median], [height], "o", color=colour, markersize=4, label=server)
    _finish(axes, rows, "records a second, closed loop")


def _latencies(axes: Axes, rows: Sequence[Row]) -> None:
    for height, server, row in _places(rows):
        latency = row.figures[server].latency_us
        colour = COLOURS.get(server, OTHER_COLOUR)
        values = [latency.get(name, 0.0) for name, _ in MARKS]
        axes.plot(values, [height] * len(values), color=colour, linewidth=1, label=server)
        for (_, mark), value in zip(MARKS, values, strict=True):
            axes.plot([value], [height], mark, color=colour, markersize=4)
    _finish(axes, rows, "microseconds from due to answered, open loop: p50, p99, p99.9")


def _places(rows: Sequence[Row]) -> Iterator[tuple[float, str, Row]]:
    """Yield the position of each server of each row, from the top; servers of one row are close together."""
    for index, row in enumerate(rows):
        for place, server in enumerate(row.figures):
            yield -index - 0.7 * (place + 0.5) / len(row.figures), server, row


def _finish(axes: Axes, rows: Sequence[Row], about: str) -> None:
    axes.set_xlabel(about, fontsize=8)
    axes.set_yticks([-index - 0.35 for index in range(len(rows))])
    axes.set_yticklabels([row.case.name for row in rows], fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=True, axis="x", which="major", linewidth=0.3)
    if rows:
        axes.set_xscale("log")
        handles, labels = axes.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        axes.legend(once.values(), once.keys(), fontsize=7, loc="best")
