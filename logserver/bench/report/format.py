"""Formatting of numbers: with a unit and about three figures, in the same way everywhere in a report.

Owns the format of values; must not know a result.
"""

from __future__ import annotations

from logserver.bench.result import Spread

ALONE = "not comparable"  # shown in place of a ratio
CHANGING = frozenset({"us", "s", "bytes"})  # units that are written with each value
SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
MILLISECOND_US = 1_000.0
SECOND_US = 1_000_000.0


def value_text(value: float, unit: str) -> str:
    """Format a value with its unit."""
    if unit == "us":
        return _time(value)
    if unit == "s":
        return f"{_three(value)} s"
    if unit == "bytes":
        number, size = _parts(value)
        return f"{number} {size}B"
    return f"{short(value)} {unit}"


def bare_text(value: float, unit: str) -> str:
    """Format a value whose unit is shown next to it. Times and bytes keep their unit, because it changes with the
    value.
    """
    return value_text(value, unit) if unit in CHANGING else short(value)


def scale_text(value: float, axis: str) -> str:
    """Format the place of a run on the axis of its series."""
    if axis == "store_bytes":
        return value_text(value, "bytes")
    return f"{value:,.0f} {axis.removesuffix('s') if value == 1 else axis}"


def range_text(spread: Spread, unit: str) -> str:
    """Format minimum and maximum; a single value if they are equal."""
    if spread.minimum == spread.maximum:
        return bare_text(spread.median, unit)
    return f"{bare_text(spread.minimum, unit)} - {bare_text(spread.maximum, unit)}"


def ratio_text(ratio: Spread | None) -> str:
    """Format a ratio as its median, with minimum and maximum."""
    if ratio is None:
        return ""
    if ratio.minimum == ratio.maximum:
        return times(ratio.median)
    return f"{times(ratio.median)} ({times(ratio.minimum)} - {times(ratio.maximum)})"


def times(ratio: float) -> str:
    """Format a ratio with two decimals below 10 and none above; below 0.1 with two significant figures."""
    if ratio < 0.1:
        return f"{ratio:.2g}"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def short(value: float) -> str:
    """Format a value with about three figures and k, M or G."""
    return "".join(_parts(value))


def _parts(value: float) -> tuple[str, str]:
    for size, suffix in SIZES:
        if abs(value) >= size:
            return _three(value / size), suffix
    return _three(value), ""


def _time(value_us: float) -> str:
    if value_us >= SECOND_US:
        return f"{_three(value_us / SECOND_US)} s"
    if value_us >= MILLISECOND_US:
        return f"{_three(value_us / MILLISECOND_US)} ms"
    return f"{_three(value_us)} us"


def _three(value: float) -> str:
    """Format three figures, or all digits before the point: `g` alone would make 1e+03 of 999.7."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
