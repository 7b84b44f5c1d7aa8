"""Export writes every record of the store to Parquet exactly once, however often and whenever it runs."""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage import Isolation, Record, TopicPartition, open_store
from storage.errors import InvalidArgument, StorageError
from tests.golden import rocketmq_stores, stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ORDERS = TopicPartition("orders", 0)
DAY_MS = 86_400_000
BEGIN_MS = 20_000 * DAY_MS  # 2024-10-04


def append(store: Path, values: list[bytes | None], day: int = 0) -> None:
    """Append to the single partition of `orders`, an hour apart."""
    with open_store("kafka", store) as opened:
        if not opened.topics():
            opened.create_topic("orders", 1)
        at = BEGIN_MS + day * DAY_MS
        records = [Record(b"k", value, (), at + n * 3_600_000) for n, value in enumerate(values)]
        opened.append(ORDERS, records)


def as_text(frame: DataFrame) -> list[str]:
    """Return the rows of a small frame in a fixed order."""
    return sorted(map(repr, frame.collect()))


def exported(spark: SparkSession, out: Path) -> DataFrame:
    return spark.read.parquet(str(out))


def test_a_store_is_exported_as_it_is(
    spark: SparkSession, golden_dir: Path, tmp_path: Path
) -> None:
    """Every column is equal, transactions follow the isolation level, and a second run adds nothing."""
    from logserver.pipeline.jobs import export

    store = shutil.copytree(golden_dir / "txn" / "data", tmp_path / "store")
    for isolation in Isolation:
        out = tmp_path / isolation.value
        wanted = export.ExportOptions(isolation=isolation)
        report = export.run(spark, store, out, wanted)
        options = {"includeHeaders": "true", "isolationLevel": isolation.value}
        there = spark.read.format("logserver").options(**options).load(str(store))
        expected = as_text(there)
        assert as_text(exported(spark, out).select(*there.columns)) == expected != []
        assert sum(row["rows"] for row in report.collect()) == len(expected)
        again = export.run(spark, store, out, wanted).collect()
        assert {row["rows"] for row in again} == {0}
        assert as_text(exported(spark, out).select(*there.columns)) == expected


def test_a_store_in_two_directories_is_exported_whole(
    spark: SparkSession, golden_dir: Path, tmp_path: Path
) -> None:
    from logserver.pipeline.jobs import export

    whole = shutil.copytree(golden_dir / "parts" / "data", tmp_path / "a")
    expected = export.run(spark, whole, tmp_path / "of-one")
    other = shutil.copytree(whole, tmp_path / "b")
    for number, folder in enumerate(sorted(whole.glob("*-[0-9]*"))):
        shutil.rmtree((folder, other / folder.name)[number % 2])
    wanted = export.ExportOptions(settings={"log.dirs": str(other)})
    taken = export.run(spark, whole, tmp_path / "of-two", wanted)
    assert as_text(taken) == as_text(expected) != []
    columns = exported(spark, tmp_path / "of-one").columns
    rows = as_text(exported(spark, tmp_path / "of-two").select(*columns))
    assert rows == as_text(exported(spark, tmp_path / "of-one")) != []


def test_runs_append_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    """New records go to the folders of their own days; the report contains the offsets and rows of each run."""
    from logserver.pipeline.jobs import export

    store, out = tmp_path / "store", tmp_path / "out"
    report = []
    days: list[list[bytes | None]] = [[b"0", b"1"], [], [b"2", None, b"4"]]
    for day, values in enumerate(days):
        if values:
            append(store, values, day)
        report += export.run(spark, store, out).collect()
    assert [(row["from_offset"], row["to_offset"], row["rows"]) for row in report] == [
        (0, 2, 2),
        (2, 2, 0),
        (2, 5, 3),
    ]
    rows = exported(spark, out).orderBy("offset").collect()
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, b"0"),
        (1, b"1"),
        (2, b"2"),
        (3, None),
        (4, b"4"),
    ]
    first, last = datetime.date(2024, 10, 4), datetime.date(2024, 10, 6)
    assert [row["date"] for row in rows] == [first] * 2 + [last] * 3
    assert {path.name for path in out.iterdir()} == {"topic=orders", "_appended"}


def test_json_values_get_columns(spark: SparkSession, tmp_path: Path) -> None:
    """The schema grows by the fields of later runs; a value that does not fit it is kept as text and counted."""
    from logserver.pipeline.jobs import export

    store, out = tmp_path / "store", tmp_path / "out"
    wanted = export.ExportOptions(json_values=True)
    append(store, [b'{"id": 1, "price": 2.5}', b"no json", None])
    assert export.run(spark, store, out, wanted).collect()[0]["unparsed"] == 1
    append(store, [b'{"id": "x", "user": {"name": "ann"}}', b'{"id": 3}'])
    assert export.run(spark, store, out, wanted).collect()[0]["unparsed"] == 1
    frame = spark.read.option("mergeSchema", "true").parquet(str(out)).orderBy("offset")
    rows = frame.select("json.id", "json.price", "json.user.name", "json._unparsed").collect()
    assert [tuple(row) for row in rows] == [
        (1, 2.5, None, None),
        (None, None, None, "no json"),
        (None, None, None, None),
        (None, None, "ann", '{"id": "x", "user": {"name": "ann"}}'),
        (3, None, None, None),
    ]


def test_json_fields_grow_inside_others_and_in_one_case(
    spark: SparkSession, tmp_path: Path
) -> None:
    from logserver.pipeline.jobs import export

    store, out = tmp_path / "store", tmp_path / "out"
    wanted = export.ExportOptions(json_values=True)
    append(store, [b'{"user": {"name": "ann"}, "tags": [{"x": 1}]}'])
    export.run(spark, store, out, wanted)
    append(store, [b'{"user": {"name": "bob", "age": 7}, "User": 1, "tags": [{"y": 2, "X": 3}]}'])
    assert export.run(spark, store, out, wanted).collect()[0]["unparsed"] == 0
    frame = spark.read.option("mergeSchema", "true").parquet(str(out)).orderBy("offset")
    rows = frame.select("json.user.name", "json.user.age", "json.tags").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"name": "ann", "age": None, "tags": [{"x": 1, "y": None}]},
        {"name": "bob", "age": 7, "tags": [{"x": None, "y": 2}]},
    ]
    assert spark.conf.get(export.CASE) == "false"


def test_what_does_not_belong_together_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from logserver.pipeline.jobs import export

    store, out = tmp_path / "store", tmp_path / "out"
    append(store, [b"0", b"1"])
    export.run(spark, store, out)
    with pytest.raises(InvalidArgument, match="exported with json_values False, not True"):
        export.run(spark, store, out, export.ExportOptions(json_values=True))
    with pytest.raises(InvalidArgument, match="the store has none that match 'none'"):
        export.run(spark, store, out, export.ExportOptions(topics="none"))
    append(tmp_path / "other", [b"0"])
    with pytest.raises(InvalidArgument, match="up to offset 2, and the store ends at 1"):
        export.run(spark, tmp_path / "other", out)
    shutil.rmtree(out / "topic=orders")
    with pytest.raises(InvalidArgument, match="no export has written"):
        export.run(spark, store, tmp_path)


def test_topics_that_are_no_pattern(spark: SparkSession, tmp_path: Path) -> None:
    from logserver.pipeline.jobs import export

    with pytest.raises(InvalidArgument, match=r"topics: '\(' is no regular expression: missing \)"):
        export.run(spark, tmp_path / "store", tmp_path / "out", export.ExportOptions(topics="("))
    assert not (tmp_path / "out").exists()


def test_a_rocketmq_store_too(spark: SparkSession, tmp_path: Path) -> None:
    """A RocketMQ store is exported with its own columns."""
    from logserver.pipeline.jobs import export

    store = shutil.copytree(stores.KAFKA.parent / "rocketmq" / "basic" / "store", tmp_path / "s")
    export.run(spark, store, tmp_path / "out")
    there = spark.read.format("logserver").option("includeHeaders", "true").load(str(store))
    found = exported(spark, tmp_path / "out")
    assert as_text(found.select(*there.columns)) == as_text(there) != []


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_a_file_that_cannot_be_read_ends_the_run_or_is_left_out(
    backend: str, spark: SparkSession, tmp_path: Path
) -> None:
    """FAILFAST names the file; PERMISSIVE exports the rest. A FIFO stands for an unreadable file."""
    from logserver.pipeline.jobs import export

    if backend == "kafka":
        store = stores.copy_store(stores.KAFKA / "parts" / "data", tmp_path / "store")
        log, left_out = store / "keyed-1" / f"{0:020}.log", "keyed"
    else:
        store = stores.copy_store(rocketmq_stores.golden("many").root, tmp_path / "store")
        log, left_out = store / "commitlog" / f"{8192:020}", ""
    whole = export.run(spark, store, tmp_path / "whole").collect()
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(StorageError, match=log.name):
        export.run(spark, store, tmp_path / "failed")
    out = tmp_path / "out"
    rows = export.run(spark, store, out, export.ExportOptions(permissive=True)).collect()
    assert 0 < sum(row["rows"] for row in rows) < sum(row["rows"] for row in whole)
    full = {(row["topic"], row["partition"]): row["rows"] for row in whole}
    for row in rows:
        assert row["rows"] <= full[row["topic"], row["partition"]]
        if left_out and (row["topic"], row["partition"]) != (left_out, 1):
            assert row["rows"] == full[row["topic"], row["partition"]]
