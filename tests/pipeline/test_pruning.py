"""Filters as bounds: never narrower than the filter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from logserver.pipeline.pruning import pruning_of
from storage import OffsetBounds, OffsetRange, TopicPartition
from tests.pipeline.fakes import FakeSplitter

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ALL = [OffsetRange(A0, 0, 20), OffsetRange(A1, 5, 10), OffsetRange(B0, 0, 3)]
BOUNDS = {at: OffsetBounds(start, end, end) for at, start, end in ALL}


@dataclass
class Named:
    attribute: tuple[str, ...]
    value: Any


def item(kind: str, column: str, value: Any) -> Any:
    """An instance of a class named like Spark's."""
    return type(kind, (Named,), {})((column,), value)


def left(*filters: Any, time_axis: str = "timestamp") -> list[OffsetRange]:
    splitter = FakeSplitter(BOUNDS, time_axis=time_axis)
    return list(pruning_of(filters).applied(ALL, splitter))


def at_s(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ALL),
        ([item("EqualTo", "topic", "b")], ALL[2:]),
        ([item("In", "topic", ("b", "c"))], ALL[2:]),
        ([item("EqualTo", "topic", "b"), item("EqualNullSafe", "topic", "a")], []),
        ([item("EqualTo", "Partition", 1)], [ALL[1]]),
        ([item("In", "partition", (1, 2))], [ALL[1]]),
        ([item("GreaterThan", "partition", 0)], ALL),
        ([item("EqualTo", "offset", 7)], [OffsetRange(A0, 7, 8), OffsetRange(A1, 7, 8)]),
        ([item("In", "offset", (2, None, 6))], [(A0, 2, 7), (A1, 5, 7), (B0, 2, 3)]),
        ([item("In", "offset", (None,))], []),
        ([item("GreaterThan", "offset", 8)], [OffsetRange(A0, 9, 20), OffsetRange(A1, 9, 10)]),
        ([item("GreaterThanOrEqual", "offset", 9)], [(A0, 9, 20), (A1, 9, 10)]),
        ([item("LessThan", "offset", 6)], [(A0, 0, 6), (A1, 5, 6), (B0, 0, 3)]),
        ([item("LessThanOrEqual", "offset", 0)], [(A0, 0, 1), (B0, 0, 1)]),
        ([item("EqualTo", "offset", None)], ALL),
        ([item("Not", "offset", 3), item("StringStartsWith", "topic", "b")], ALL),
        ([item("GreaterThanOrEqual", "timestamp", at_s(9))], [(A0, 9, 20), (A1, 9, 10)]),
        ([item("GreaterThan", "timestamp", at_s(9.0005))], [(A0, 9, 20), (A1, 9, 10)]),
        ([item("GreaterThan", "timestamp", at_s(99))], []),
        ([item("LessThan", "timestamp", at_s(1))], ALL),
    ],
)
def test_what_is_left(filters: list[Any], expected: list[Any]) -> None:
    assert left(*filters) == [OffsetRange(*each) for each in expected]


def test_another_time_axis_prunes_nothing() -> None:
    wanted = item("GreaterThan", "timestamp", at_s(9))
    assert left(wanted, time_axis="store_timestamp") == ALL


def test_a_column_in_a_structure_prunes_nothing() -> None:
    nested = type("EqualTo", (Named,), {})(("offset", "x"), 1)
    assert left(nested) == ALL
