"""The rows of every golden store through Spark equal what the real servers' clients read; pandas has them too."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage import OffsetBounds, TopicPartition
from tests.golden import rocketmq_stores, stores
from tests.golden.rocketmq_stores import GoldenStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TYPES = {0: "CreateTime", 1: "LogAppendTime"}
READ = (
    "key", "value", "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp", "timestampType",
)  # fmt: skip


def read(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("logserver").option("subscribePattern", ".*")
    return reader.options(includeHeaders=True, **options).load(str(path))


def row_of(row: Row) -> dict[str, Any]:
    """Convert a row to the form of expected.jsonl."""
    found = row.asDict(recursive=True)
    return {
        **{name: found[name] for name in ("topic", "partition", "offset", "timestamp")},
        "timestampType": TYPES[row.timestampType],
        "key": _text(row.key),
        "value": _text(row.value),
        "headers": [[key, _text(value)] for key, value in row.headers or []],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", stores.HEALTHY)
def test_kafka(spark: SparkSession, name: str, isolation: str) -> None:
    partitions = [golden for golden in stores.partitions() if golden.store == name]
    if not partitions:
        pytest.skip("the store has no expectation of records")
    rows = read(spark, stores.KAFKA / name / "data", isolationLevel=isolation, minPartitions=3)
    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    for row in rows.selectExpr(*READ, "headers").collect():
        found.setdefault(TopicPartition(row.topic, row.partition), []).append(row_of(row))
    for golden in partitions:
        expected = golden.lines("expected.jsonl")
        if isolation == "read_committed" and (golden.expect / stores.COMMITTED).exists():
            expected = golden.lines(stores.COMMITTED)
        assert found.pop(golden.address, []) == expected, golden.name


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("golden", rocketmq_stores.all_stores(), ids=rocketmq_stores.by_id)
def test_rocketmq(spark: SparkSession, golden: GoldenStore, isolation: str) -> None:
    settings = {f"set.{name}": value for name, value in golden.settings.items()}
    rows = read(spark, golden.root, isolationLevel=isolation, **settings)
    chosen = rows.selectExpr(
        *READ, "headers", "tag", "keys", "properties", "message_id", "unique_id", "physical_offset",
        "unix_millis(store_timestamp) AS stored", "unix_millis(born_timestamp) AS born",
        "sys_flag", "flag", "reconsume_times", "born_host", "store_host",
    )  # fmt: skip
    found = {(row.topic, row.partition, row.offset): row for row in chosen.collect()}
    with rocketmq_stores.open_golden(golden, read_only=True) as store:
        for expected in golden.expected():
            address = TopicPartition(expected["topic"], expected["queueId"])
            row = found.pop((*address, expected["queueOffset"]))
            (record,) = store.read(address, expected["queueOffset"], max_records=1).records
            assert message_of(row) == message_view(expected)
            assert (row.key, row.value) == (record.key, record.value)
            assert [(name, bytes(value)) for name, value in row.headers or []] == list(
                record.headers
            )
            assert row.timestamp == row.born
            assert tuple(row["keys"] or ()) == tuple(record.lookup_keys)
    assert found == {}


def message_of(row: Row) -> dict[str, Any]:
    """Return the message fields of a row, under the names of expected.jsonl."""
    return {
        "storeTimestamp": row.stored,
        "bornTimestamp": row.born,
        "tags": row.tag,
        "properties": dict(row.properties),
        "msgId": row.message_id,
        "physicalOffset": row.physical_offset,
        "sysFlag": row.sys_flag,
        "flag": row.flag,
        "reconsumeTimes": row.reconsume_times,
        "bornHost": row.born_host,
        "storeHost": row.store_host,
        "UNIQ_KEY": row.unique_id,
    }


def message_view(expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row of expected.jsonl that `message_of` contains."""
    names = NAMES - {"UNIQ_KEY"}
    found = {name: expected[name] for name in names}
    return {**found, "UNIQ_KEY": expected["properties"].get("UNIQ_KEY")}


NAMES = {
    "storeTimestamp", "bornTimestamp", "tags", "properties", "msgId", "physicalOffset", "sysFlag", "flag",
    "reconsumeTimes", "bornHost", "storeHost", "UNIQ_KEY",
}  # fmt: skip


def test_bounds_of_a_batch_are_the_brokers(spark: SparkSession) -> None:
    golden = next(
        g for g in stores.partitions() if g.store == "deleted" and g.lines("expected.jsonl")
    )
    reported = golden.json("times.json")["summary"]
    bounds = OffsetBounds(reported["earliest"], reported["latest"], reported["latest"])
    offsets = f'{{"{golden.address.topic}":{{"{golden.address.partition}":{bounds.start + 1}}}}}'
    assign = f'{{"{golden.address.topic}":[{golden.address.partition}]}}'
    rows = (
        spark.read.format("logserver")
        .options(assign=assign, startingOffsets=offsets)
        .schema("offset bigint")
        .load(str(golden.root))
    )
    found = [row.offset for row in rows.collect()]
    assert found == [row["offset"] for row in golden.lines("expected.jsonl")[1:]]


@pytest.mark.parametrize(
    "root",
    [
        stores.KAFKA / "codecs" / "data",
        stores.KAFKA / "times" / "data",
        rocketmq_stores.golden("basic").root,
    ],
    ids=["kafka", "times", "rocketmq"],
)
def test_pandas_has_the_values_of_spark(spark: SparkSession, root: Path) -> None:
    """Also with pandas 3, which PySpark warns of: every column of both formats."""
    pytest.importorskip("pandas")
    frame = spark.read.format("logserver").option("includeHeaders", "true").load(str(root))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with pandas 3: PySpark uses an old keyword of it
        table: Any = frame.toPandas()
    expected = [row.asDict(recursive=True) for row in frame.collect()]
    assert expected
    assert list(table.columns) == frame.columns
    for row, values in zip(expected, table.to_dict("records"), strict=True):
        assert {name: plain(value) for name, value in values.items()} == {
            name: plain(value) for name, value in row.items()
        }


def plain(value: Any) -> Any:
    """Return a value in one form: None for a missing value of pandas, lists for arrays, datetimes for its times."""
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return None if value != value else value
