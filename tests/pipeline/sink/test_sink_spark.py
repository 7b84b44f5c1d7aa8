"""Writing through Spark: the rows that Spark passes are read back, by our store and by Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logserver.testing import ServerForTests
from storage import StoredRecord, TopicPartition, open_store, partition_for_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BACKENDS = ["kafka", "rocketmq"]
COUNT = 5000


def save(frame: DataFrame, path: Path, **options: Any) -> None:
    frame.write.format("logserver").options(**options).mode("append").save(str(path))


def load(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("logserver").option("includeHeaders", "true").load(str(path))


def stored(path: Path, backend: str, topic: str) -> dict[int, list[StoredRecord]]:
    with open_store(backend, path, read_only=True) as store:
        numbers = store.topics()[topic].partitions
        return {number: list(store.scan(TopicPartition(topic, number))) for number in numbers}


def frame_of(spark: SparkSession) -> DataFrame:
    """Return rows with all columns that both backends keep; every third has no key, every fourth no headers."""
    return spark.range(COUNT).selectExpr(
        "IF(id % 2 = 0, 'a', 'b') AS topic",
        "IF(id % 3 = 0, NULL, CAST(CONCAT('key ', id % 97) AS BINARY)) AS key",
        "CONCAT('value ', id) AS value",
        "TIMESTAMP_MILLIS(1700000000000 + id) AS timestamp",
        "IF(id % 4 = 0, NULL, ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST(id AS STRING)))) AS raw",
    ).selectExpr(
        "topic", "key", "value", "timestamp",
        "TRANSFORM(raw, h -> NAMED_STRUCT('key', h.key, 'value', CAST(h.value AS BINARY))) AS headers",
    )  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_read_back(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    frame = frame_of(spark)
    save(frame, path, backend=backend, numPartitions=3)
    names = ["topic", "key", "CAST(value AS STRING) AS value", "timestamp", "headers"]
    found = load(spark, path)
    assert found.selectExpr(*names).exceptAll(frame.selectExpr(*names)).count() == 0
    assert found.count() == COUNT
    for topic in "ab":
        for number, records in stored(path, backend, topic).items():
            keyed = [record.key for record in records if record.key is not None]
            assert all(partition_for_key(key, 3) == number for key in keyed)
    save(found, copy, backend=backend, numPartitions=3)
    assert load(spark, copy).selectExpr(*names).exceptAll(frame.selectExpr(*names)).count() == 0
    assert load(spark, copy).count() == COUNT
    save(frame, path)
    assert load(spark, path).count() == 2 * COUNT


def test_what_is_refused_says_why(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    frame = spark.range(10).selectExpr("id AS value")
    with pytest.raises(Exception, match="column 'value' is of type bigint"):
        save(frame, path, backend="kafka", topic="t")
    nulls = spark.range(10).selectExpr("CAST(NULL AS STRING) AS value")
    with pytest.raises(Exception, match=r"column 'value' of a row for t-[0-7]: is null"):
        save(nulls, path, backend="rocketmq", topic="t")
    text = frame.selectExpr("CAST(value AS STRING) AS value")
    with pytest.raises(Exception, match='mode: "overwrite"'):
        text.write.format("logserver").mode("overwrite").save(str(path))
    open_store("kafka", path).close()
    holder = f"is locked by process {os.getpid()}"
    with open_store("kafka", path), pytest.raises(Exception, match=holder):
        save(text, path, topic="t")
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def to_the_end(writing: DataStreamWriter, checkpoint: Path) -> None:
    """Run a query over the available input."""
    writing = writing.option("checkpointLocation", str(checkpoint))
    writing.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_and_its_restart(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    source, path = tmp_path / "source", tmp_path / "store"
    for round_ in range(2):
        lines = spark.range(round_ * 100, round_ * 100 + 100).selectExpr("CAST(id AS STRING) AS v")
        lines.write.mode("append").text(str(source))
        stream = spark.readStream.schema("value STRING").text(str(source))
        writing = stream.writeStream.format("logserver").option("topic", "t")
        writing = writing.option("backend", backend).option("path", str(path))
        to_the_end(writing, tmp_path / "checkpoint")
    found = stored(path, backend, "t")
    values = sorted(int(record.value or b"") for records in found.values() for record in records)
    assert values == list(range(200))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint", "source", "store"]


def test_a_stream_into_a_running_server(spark: SparkSession, tmp_path: Path) -> None:
    """Later input is added. A repeated micro-batch, as when Spark dies before it has committed it, is not."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    with ServerForTests(data=tmp_path / "store", backend="kafka") as server:
        topic = server.fresh_topic(partitions=2)

        def run() -> list[int]:
            stream = spark.readStream.schema("value STRING").text(str(source))
            writing = stream.writeStream.format("logserver").option("topic", topic)
            to_the_end(writing.option("url", server.url), checkpoint)
            return sorted(int(record.value or b"") for record in server.records(topic))

        for end in (100, 200):
            rows = spark.range(end - 100, end).selectExpr("CAST(id AS STRING) AS v")
            rows.write.mode("append").text(str(source))
            assert run() == list(range(end))
        for noted in (checkpoint / "commits").glob("*1*"):
            noted.unlink()  # the second micro-batch, and its checksum
        assert run() == list(range(200))
        assert (checkpoint / "commits" / "1").exists()
