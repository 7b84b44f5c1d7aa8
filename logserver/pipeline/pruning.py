"""Filters that Spark pushes down, as bounds of what is planned.

Owns which filters narrow the ranges. Spark applies all of them to the rows once more, so a bound may be too
wide but never too narrow: an upper bound of time prunes nothing, since times need not rise with offsets.
Filters are taken by the names of their classes; must not know Spark, nor read records.
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
    """What rows can pass: these topics and partitions (None: any), offsets [start, end), times from
    `start_ms` on.
    """

    topics: set[str] | None = None
    partitions: set[int] | None = None
    start: int = 0
    end: int = _MAX
    start_ms: int | None = None

    def applied(self, ranges: Iterable[OffsetRange], splitter: Splitter) -> Iterator[OffsetRange]:
        """What is left of the ranges."""
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
        """Without the offsets before the first record of the time."""
        if self.start_ms is None:
            return wanted
        first = splitter.offset_before_time(wanted.partition, self.start_ms)
        return wanted._replace(start=max(wanted.start, first))

    def narrow(self, column: str, kind: str, value: Any) -> None:
        """Take one filter: the name of Spark's class for it, and what it compares the column with."""
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
    """What Spark's filters, all of which a row must pass, leave to be planned."""
    pruning = Pruning()
    for item in filters:
        path, value = list(getattr(item, "attribute", ())), getattr(item, "value", None)
        if len(path) == 1 and value is not None:
            pruning.narrow(path[0].lower(), type(item).__name__, value)
    return pruning
