"""Streaming reads of a store that grows meanwhile: over restarts, in shares, with created and deleted topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage import LogStore, Record, TopicPartition, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
SCHEMA = "topic string, partition int, offset bigint, value binary"

LATE = "Python worker failed to connect back"
"""Spark gives the Python worker of a new query a constant 10 s to connect; none of our code has run by then."""

Row = tuple[str, int, int, bytes]


@pytest.fixture(params=["kafka", "rocketmq"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    """A store with a topic of two partitions, open for writing while queries read it."""
    with open_store(request.param, tmp_path / "store") as opened:
        opened.create_topic("a", 2)
        yield opened


class Lines:
    """A query that reads the store into Parquet files, started repeatedly with one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def start(self, *, once: bool = False, **options: Any) -> StreamingQuery:
        """Start the query, or continue where it stopped; it reads the available records and, with `once`, ends.

        A query with a Python worker that was too late is started again, twice at most.
        """
        from pyspark.errors import StreamingQueryException

        reader = self._spark.readStream.format("logserver").schema(SCHEMA).options(**options)
        writer = reader.load(str(self._folder / "store")).writeStream.format("parquet")
        if once:
            writer = writer.trigger(availableNow=True)
        checkpoint = str(self._folder / "checkpoint")
        writer = writer.option("checkpointLocation", checkpoint)
        again = 2
        while True:
            query = writer.start(str(self._folder / "out"))
            try:
                if once:
                    query.awaitTermination()
                else:
                    query.processAllAvailable()
            except StreamingQueryException as error:
                if again == 0 or LATE not in str(error):
                    raise
                again -= 1
            else:
                return query

    def read(self) -> list[Row]:
        """Return the rows that the query wrote, in order."""
        rows = self._spark.read.schema(SCHEMA).parquet(str(self._folder / "out")).collect()
        return sorted((r.topic, r.partition, r.offset, bytes(r.value)) for r in rows)

    def sizes(self, query: StreamingQuery) -> list[int]:
        """Return the rows of each micro-batch that had any."""
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    def offsets(self) -> Any:
        """Return the offsets of the last micro-batch in the checkpoint."""
        files = (self._folder / "checkpoint" / "offsets").iterdir()
        last = max((path for path in files if path.name.isdigit()), key=lambda path: int(path.name))
        return json.loads(last.read_text().splitlines()[-1])


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    """The query of the test."""
    return Lines(spark, tmp_path)


def append(store: LogStore, address: TopicPartition, first: int, end: int) -> list[Row]:
    """Append the records that must get these offsets; return them as rows."""
    values = [b"%d" % n for n in range(first, end)]
    store.append(address, [Record(key=None, value=value) for value in values])
    store.flush([address])
    return [(*address, first + n, value) for n, value in enumerate(values)]


def test_a_store_that_grows_is_followed_and_a_restart_goes_on(
    store: LogStore, lines: Lines
) -> None:
    expected = append(store, A0, 0, 5)
    query = lines.start(startingOffsets="earliest", subscribePattern="[ab]")
    try:
        query.processAllAvailable()
        expected += append(store, A0, 5, 9) + append(store, A1, 0, 3)
        query.processAllAvailable()
        assert lines.read() == sorted(expected)
        store.create_topic("b", 1)
        expected += append(store, TopicPartition("b", 0), 0, 4)
        query.processAllAvailable()
        assert lines.read() == sorted(expected)
    finally:
        query.stop()
    assert lines.offsets() == {"a": {"0": 9, "1": 3}, "b": {"0": 4}}
    expected += append(store, A1, 3, 6)
    lines.start(once=True, startingOffsets="latest", subscribePattern="[ab]")
    assert lines.read() == sorted(expected)


def test_shares_of_what_is_there(store: LogStore, lines: Lines) -> None:
    expected = append(store, A0, 0, 90) + append(store, A1, 0, 10)
    query = lines.start(once=True, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert lines.sizes(query) == [40, 40, 20]
    assert lines.read() == sorted(expected)


def test_a_new_query_begins_at_the_end(store: LogStore, lines: Lines) -> None:
    append(store, A0, 0, 5)
    lines.start(once=True)
    assert lines.offsets() == {"a": {"0": 5, "1": 0}}
    expected = append(store, A0, 5, 7)
    lines.start(once=True)
    assert lines.read() == expected


def test_a_topic_that_is_gone_is_a_loss(store: LogStore, lines: Lines) -> None:
    from pyspark.errors import StreamingQueryException

    store.create_topic("b", 1)
    expected = append(store, TopicPartition("b", 0), 0, 2)
    lines.start(once=True, startingOffsets="earliest", subscribe="a,b")
    store.delete_topic("b")
    expected += append(store, A0, 0, 3)
    with pytest.raises(StreamingQueryException, match="topic 'b' does not exist"):
        lines.start(once=True, subscribe="a,b")
    lines.start(once=True, subscribe="a,b", failOnDataLoss=False)
    assert lines.read() == sorted(expected)
