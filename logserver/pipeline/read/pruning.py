"""Filters that Spark pushes down, converted to bounds of the planned ranges.

Owns the choice of filters that narrow the ranges. Spark applies all filters to the rows again, so a bound may be too
wide but never too narrow. An upper bound of time prunes nothing, because times need not rise with offsets. Must not
know Spark (filters are recognised by their class names), nor read records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from storage import OffsetRange, Splitter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX: Final = 1 << 63
_EQUAL: Final = ("EqualTo", "EqualNullSafe")


@dataclass(slots=True, kw_only=True)
class Pruning:
    """Bounds of the rows that can pass: topics and partitions (None: all), offsets [start, end), times from `start_ms`
    on.
    """

    topics: set[str] | None = None
    partitions: set[int] | None = None
    start: int = 0
    end: int = _MAX
    start_ms: int | None = None

    def applied(self, ranges: Iterable[OffsetRange], splitter: Splitter) -> Iterator[OffsetRange]:
        """Yield the ranges that remain, narrowed."""
        for address, start, end in ranges:
            if self.topics is not None and address.topic not in self.topics:
                continue
            if self.partitions is not None and address.partition not in self.partitions:
                continue
            narrowed = OffsetRange(address, max(start, self.start), min(end, self.end))
            narrowed = self._in_time(narrowed, splitter)
            if narrowed.start < narrowed.end:
                yield narrowed

    def _in_time(self, wanted: OffsetRange, splitter: Splitter) -> OffsetRange:
        """Remove the offsets before the first record that can be at or after the time."""
        if self.start_ms is None:
            return wanted
        first = splitter.offset_before_time(wanted.partition, self.start_ms)
        return wanted._replace(start=max(wanted.start, first))

    def narrow(self, column: str, kind: str, value: Any) -> None:
        """Apply one filter. `kind` is the name of Spark's class, `value` is what the column is compared with."""
        values = set(value) if kind == "In" else {value}
        if column == "topic" and (kind == "In" or kind in _EQUAL):
            self.topics = values if self.topics is None else self.topics & values
        elif column == "partition" and (kind == "In" or kind in _EQUAL):
            self.partitions = values if self.partitions is None else self.partitions & values
        elif column == "offset":
            self._narrow_offset(kind, value)
        elif column == "timestamp" and kind in ("GreaterThan", "GreaterThanOrEqual", *_EQUAL):
            self._narrow_time(value)

    def _narrow_offset(self, kind: str, value: Any) -> None:
        if kind == "In":
            numbers = [number for number in value if number is not None]
            low, high = min(numbers, default=_MAX), max(numbers, default=-1) + 1
        elif kind in _EQUAL:
            low, high = value, value + 1
        else:
            low = {"GreaterThan": value + 1, "GreaterThanOrEqual": value}.get(kind, self.start)
            high = {"LessThan": value, "LessThanOrEqual": value + 1}.get(kind, self.end)
        self.start, self.end = max(self.start, low), min(self.end, high)

    def _narrow_time(self, value: datetime) -> None:
        when = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        first_ms = (when - _EPOCH) // timedelta(milliseconds=1)  # rounded down: never too narrow
        self.start_ms = first_ms if self.start_ms is None else max(self.start_ms, first_ms)


def pruning_of(filters: Iterable[Any]) -> Pruning:
    """Return the bounds of rows that pass all of Spark's filters."""
    pruning = Pruning()
    for item in filters:
        path, value = list(getattr(item, "attribute", ())), getattr(item, "value", None)
        if len(path) == 1 and value is not None:
            pruning.narrow(path[0].lower(), type(item).__name__, value)
    return pruning
