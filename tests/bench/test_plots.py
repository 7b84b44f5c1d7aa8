"""Axes of plots have marks at round numbers, however close their values are to each other."""

from __future__ import annotations

import math

import pytest

from logserver.bench.report.plots import Mark, Plot, limits, svg, ticks

LEAST = [10.0**power * first for power in range(-3, 7) for first in (1.0, 1.7, 2.05, 3.1, 5.2, 9.6)]


@pytest.mark.parametrize("times", [1.0, 1.01, 2.0, 3.0, 49.0, 50.0, 1e6])
def test_an_axis_has_two_to_five_marks(times: float) -> None:
    for least in LEAST:
        values = (least, least * math.sqrt(times), least * times)
        low, high = limits(values)
        assert 2 <= len(ticks(low, high)) <= 5, values


@pytest.mark.parametrize("times", [1.0, 50.0])
def test_each_mark_of_an_axis_is_drawn(times: float) -> None:
    """A mark is a line in the colour of lines, and a label."""
    values = (1.0, math.sqrt(times), times)
    marks = [Mark("a", values, x=1.0), Mark("a", values, x=10.0)]
    drawn = svg(Plot(kind="lines", title="t", unit="s", groups={"a": marks}, axis="x"), ["a"], "p")
    wanted = len(ticks(*limits(values)))
    assert drawn.count("stroke: var(--line)") == wanted
    assert drawn.count(" s </text>") == wanted
