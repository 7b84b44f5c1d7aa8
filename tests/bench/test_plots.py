"""Axes of plots have marks at round numbers, however close their values are to each other."""

from __future__ import annotations

import math
import re

import pytest

from logserver.bench.report.document import Plot, PlotGroup, PlotMark
from logserver.bench.report.plots import Shapes, svg

LEAST = [10.0**power * first for power in range(-3, 7) for first in (1.0, 1.7, 2.05, 3.1, 5.2, 9.6)]


@pytest.mark.parametrize("times", [1.0, 1.01, 2.0, 3.0, 49.0, 50.0, 1e6])
def test_an_axis_has_two_to_five_marks(times: float) -> None:
    for least in LEAST:
        values = (least, least * math.sqrt(times), least * times)
        marks = [PlotMark("a", values, x=1.0), PlotMark("a", values, x=10.0)]
        plot = Plot(
            kind="lines", title="t", about="d", unit="", groups=[PlotGroup("", marks)], x_name="x"
        )
        lines = len(re.findall(r'class="grid"', svg(plot, Shapes(["a"]), "p")))
        assert 2 <= lines <= 5, values
