"""The stream reader's own rules, without a query: waiting for more, and the range of a run with AvailableNow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logserver.pipeline.read.options import parse_read_options
from logserver.pipeline.read.ranges import Chosen
from storage import OffsetBounds, Record, TopicPartition, open_store
from storage.errors import Corrupt, InvalidArgument, OffsetOutOfRange, UnknownTopic
from tests.golden import stores
from tests.pipeline.fakes import FakeSplitter

if TYPE_CHECKING:
    from logserver.pipeline.read.stream import StreamReader

pytestmark = pytest.mark.spark  # needs PySpark's classes

T0 = TopicPartition("t", 0)


def reader_of(
    splitter: FakeSplitter, clock_s: Callable[[], float] = lambda: 0.0, **options: Any
) -> StreamReader:
    """Return a reader of invented partitions."""
    from pyspark.sql.types import StructType

    from logserver.pipeline.read.stream import StreamReader

    given = {name: str(value) for name, value in options.items()}
    parsed = parse_read_options({"path": "/x", **given}, streaming=True)
    reader = StreamReader(parsed, StructType().add("offset", "long"), clock_s)
    reader._chosen = Chosen(splitter, parsed)
    return reader


def store(end: int, start: int = 0) -> FakeSplitter:
    return FakeSplitter({T0: OffsetBounds(start, end, end)})


def grow(splitter: FakeSplitter, end: int) -> None:
    splitter.all_bounds[T0] = OffsetBounds(0, end, end)


def test_it_waits_for_enough() -> None:
    now_s = [100.0]
    splitter = store(5)
    reader = reader_of(splitter, lambda: now_s[0], minOffsetsPerTrigger=10, maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset({"t": {"0": 0}}, limit)
    assert first == {"t": {"0": 5}}  # no earlier batch: the delay counts as over
    grow(splitter, 9)
    assert reader.latestOffset(first, limit) == first
    grow(splitter, 15)
    second = reader.latestOffset(first, limit)
    assert second == {"t": {"0": 15}}
    grow(splitter, 16)
    assert reader.latestOffset(second, limit) == second
    now_s[0] += 31
    assert reader.latestOffset(second, limit) == {"t": {"0": 16}}


def test_a_trigger_that_wants_all_gets_all() -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    reader = reader_of(store(50), maxOffsetsPerTrigger=7)
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert reader.latestOffset({"t": {"0": 0}}, ReadMaxRows(7)) == {"t": {"0": 7}}
    assert reader.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 50}}
    assert reader.reportLatestOffset() == {"t": {"0": 50}}


def test_a_run_of_what_is_there_leaves_what_comes_later() -> None:
    splitter = store(50)
    reader = reader_of(splitter, maxOffsetsPerTrigger=30, minOffsetsPerTrigger=25)
    reader.prepareForTriggerAvailableNow()
    grow(splitter, 90)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"t": {"0": 0}}, limit) == {"t": {"0": 30}}
    assert reader.latestOffset({"t": {"0": 30}}, limit) == {"t": {"0": 50}}
    assert reader.latestOffset({"t": {"0": 50}}, limit) == {"t": {"0": 50}}


def test_every_look_is_a_new_one() -> None:
    splitter = store(5)
    reader = reader_of(splitter)
    for _ in range(3):
        reader.latestOffset({"t": {"0": 0}}, reader.getDefaultReadLimit())
    assert splitter.looks == 3


def test_a_new_partition_is_read_from_its_first_record() -> None:
    reader = reader_of(store(9, start=4))
    (partition,) = reader.partitions({}, {"t": {"0": 9}})
    assert partition.value.plan == (T0, 4, 9)
    assert reader.partitions({"t": {"0": 9}}, {"t": {"0": 9}}) == []


def test_what_is_gone_is_an_error_or_passed_over() -> None:
    start, end = {"t": {"0": 2}}, {"t": {"0": 9}}
    with pytest.raises(OffsetOutOfRange, match="offset 2 of t-0 is out of range"):
        reader_of(store(9, start=4)).partitions(start, end)
    kept = reader_of(store(9, start=4), failOnDataLoss=False)
    (partition,) = kept.partitions(start, end)
    assert partition.value.plan == (T0, 4, 9)


def test_a_store_that_went_back_is_a_loss() -> None:
    start, end = {"t": {"0": 20}}, {"t": {"0": 9}}
    with pytest.raises(OffsetOutOfRange, match="offset 20 of t-0 is out of range"):
        reader_of(store(9)).partitions(start, end)
    assert reader_of(store(9), failOnDataLoss=False).partitions(start, end) == []


@pytest.mark.parametrize("lost", [0, 1])
def test_a_missing_partition_is_an_error_when_the_query_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: int
) -> None:
    """A new query and a restarted one fail; with mode=PERMISSIVE or failOnDataLoss off they log the partition once."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import StructType

    from logserver.pipeline.read.stream import StreamReader

    with open_store("kafka", tmp_path / "store") as made:
        made.create_topic("t", 2)
        for number in range(2):
            made.append(TopicPartition("t", number), [Record(None, b"x")])
    shutil.rmtree(tmp_path / "store" / f"t-{lost}")

    def reader(**options: str) -> StreamReader:
        parsed = parse_read_options({"path": str(tmp_path / "store"), **options}, streaming=True)
        return StreamReader(parsed, StructType().add("offset", "long"))

    begin, end = {"t": {str(1 - lost): 0}}, {"t": {str(1 - lost): 1}}
    refused = reader()
    for _ in range(2):
        with pytest.raises(Corrupt, match=f"t-{lost}.* partition {lost}: .*mode=PERMISSIVE"):
            refused.initialOffset()
        with pytest.raises(Corrupt):
            refused.latestOffset(begin, ReadAllAvailable())
    other = reader(assign=json.dumps({"t": [1 - lost]}))
    assert other.latestOffset(begin, ReadAllAvailable()) == end
    other.stop()
    for quiet in ({"mode": "PERMISSIVE"}, {"failOnDataLoss": "false"}):
        caplog.clear()
        kept = reader(startingOffsets="earliest", **quiet)
        assert kept.initialOffset() == begin
        assert kept.latestOffset(begin, ReadAllAvailable()) == end
        assert len(caplog.records) == 1
        kept.stop()


def test_a_new_query_names_what_is_there() -> None:
    with pytest.raises(InvalidArgument, match="option subscribe: the store has no x"):
        reader_of(store(9), subscribe="x").initialOffset()
    assert reader_of(store(9)).initialOffset() == {"t": {"0": 9}}
    assert reader_of(store(9), startingOffsets="earliest").initialOffset() == {"t": {"0": 0}}


@pytest.mark.parametrize(
    ("options", "column", "reported"),
    [
        ({"endingOffsets": "latest"}, "offset", "option endingOffsets: has no meaning in a stream"),
        ({}, "ofset", "schema: column 'ofset' is unknown: did you mean offset"),
    ],
)
def test_what_is_wrong_is_raised_where_spark_hands_it_on(
    options: dict[str, str], column: str, reported: str
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import StructType

    from logserver.pipeline.source import LogServerSource

    path = str(stores.KAFKA / "codecs" / "data")
    source = LogServerSource({"path": path, **options})
    reader = source.streamReader(StructType().add(column, "long"))
    for asked in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(InvalidArgument, match=reported):
            asked()
    reader.stop()


def test_a_planned_batch_of_a_topic_that_is_gone() -> None:
    start, end = {"t": {"0": 0}, "gone": {"0": 0}}, {"t": {"0": 5}, "gone": {"0": 3}}
    with pytest.raises(UnknownTopic, match="topic 'gone' does not exist"):
        reader_of(store(5)).partitions(start, end)
    (left,) = reader_of(store(5), failOnDataLoss="false").partitions(start, end)
    assert left.value.plan == (T0, 0, 5)
