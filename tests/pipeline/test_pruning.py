"""Filters as offset bounds are never narrower than the filter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from logserver.pipeline.read.pruning import pruning_of
from storage import OffsetBounds, OffsetRange, Record, TopicPartition, open_splitter, open_store
from tests.pipeline.fakes import FakeSplitter

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ALL = [OffsetRange(A0, 0, 20), OffsetRange(A1, 5, 10), OffsetRange(B0, 0, 3)]
BOUNDS = {at: OffsetBounds(start, end, end) for at, start, end in ALL}


@dataclass
class Named:
    attribute: tuple[str, ...]
    value: Any


def item(kind: str, column: str, value: Any) -> Any:
    """Return an instance of a class with the name of a Spark filter."""
    return type(kind, (Named,), {})((column,), value)


def left(*filters: Any) -> list[OffsetRange]:
    return list(pruning_of(filters).applied(ALL, FakeSplitter(BOUNDS)))


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


def pruned(path: Path, wanted: Any) -> list[OffsetRange]:
    """Return the ranges that the filter leaves of all records of a store."""
    splitter = open_splitter(path)
    try:
        every = [OffsetRange(at, *splitter.bounds(at)[::2]) for at in splitter.partitions()]
        return list(pruning_of([wanted]).applied(every, splitter))
    finally:
        splitter.close()


def timed(path: Path, backend: str, times_ms: Iterable[int]) -> None:
    """Create a store of one partition, with one record for each time."""
    with open_store(backend, path) as store:
        store.create_topic("a", 1)
        for time_ms in times_ms:
            store.append(A0, [Record(None, b"x" * 400_000, timestamp_ms=time_ms)])


def test_a_store_that_looks_up_another_time_prunes_nothing(tmp_path: Path) -> None:
    timed(tmp_path, "rocketmq", [1000, 2000])
    assert pruned(tmp_path, item("GreaterThan", "timestamp", at_s(99))) == [(A0, 0, 2)]


def test_the_largest_time_of_a_segment_may_be_of_a_deleted_record(tmp_path: Path) -> None:
    with open_store("kafka", tmp_path) as store:
        store.create_topic("a", 1, configs={"segment.bytes": "1048576"})
        for time_ms in (9000, 1000, 2000, 5000, 6000):
            store.append(A0, [Record(None, b"x" * 400_000, timestamp_ms=time_ms)])
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\na 0 1\n")
    assert len(list((tmp_path / "a-0").glob("*.log"))) > 1
    found = pruned(tmp_path, item("GreaterThanOrEqual", "timestamp", at_s(5)))
    assert found == [(A0, 3, 5)]
    assert pruned(tmp_path, item("GreaterThan", "timestamp", at_s(99))) == []


def test_damage_may_be_of_any_time(tmp_path: Path) -> None:
    timed(tmp_path, "kafka", [1000, 2000, 3000])
    log = tmp_path / "a-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    assert pruned(tmp_path, item("GreaterThan", "timestamp", at_s(2.5))) == [(A0, 1, 3)]


def test_a_column_in_a_structure_prunes_nothing() -> None:
    nested = type("EqualTo", (Named,), {})(("offset", "x"), 1)
    assert left(nested) == ALL
