"""Spark's own Kafka connector, from a running broker, and our source, in the broker's directory, read the same rows.

The broker serves every golden store, and topics that the connector writes through it meanwhile, in all codecs. The
connector also works with our server.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage import Isolation
from tests.golden import stores
from tests.http.running import Running
from tests.interop import brokers, peers
from tests.interop.brokers import Broker
from tests.wire.harness import BACKENDS, OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.slow]

GOLDEN = [stores.KAFKA / name / "data" for name in stores.HEALTHY if name != "offsets"]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OURS = "(?!__).*"  # the topics that are not internal to a server
NEW = 500  # records of a codec
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker on copies of the golden stores."""
    work = tmp_path_factory.mktemp("broker") / "work"
    with brokers.serving(work, GOLDEN) as found:
        yield found
    shutil.rmtree(work)


@pytest.fixture(scope="module")
def connector(spark: SparkSession) -> None:
    """Adds the connector to the session."""
    for jar in peers.connector_jars():
        spark.sql(f"ADD JAR '{jar}'")


def write_all_codecs(spark: SparkSession, broker: Broker) -> None:
    """Write through the broker: null and empty keys and values, headers, several partitions by key, two topics."""
    rows = spark.range(NEW).selectExpr(
        "case when id % 5 = 0 then null else cast(cast(id % 7 as string) as binary) end as key",
        "case when id % 3 = 0 then null else cast(repeat('x', id % 50) as binary) end as value",
        "case when id % 4 = 0 then 'keyed' else 'codec-none' end as topic",
        "case when id % 2 = 0 then null else array("
        "named_struct('key', 'h', 'value', cast(cast(id as string) as binary)),"
        " named_struct('key', '', 'value', cast(null as binary))) end as headers",
    )
    for codec in CODECS:
        rows.write.format("kafka").options(
            **{
                "kafka.bootstrap.servers": broker.address,
                "kafka.compression.type": codec,
                "kafka.linger.ms": "20",
                "includeHeaders": "true",
            }
        ).save()


def served(spark: SparkSession, broker: Broker, isolation: Isolation) -> DataFrame:
    """Return every record as the connector receives it."""
    options = {
        "kafka.bootstrap.servers": broker.address,
        "kafka.isolation.level": isolation.value,
        "subscribePattern": OURS,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    return spark.read.format("kafka").options(**options).load().selectExpr(*COLUMNS)


def lying_there(spark: SparkSession, broker: Broker, isolation: Isolation) -> DataFrame:
    """Return every record as stored in the directory."""
    options = {
        "isolationLevel": isolation.value,
        "subscribePattern": OURS,
        "includeHeaders": "true",
    }
    frame = spark.read.format("logserver").options(**options).load(str(broker.log))
    return frame.selectExpr(*COLUMNS)


@pytest.mark.usefixtures("connector")
def test_the_same_rows(spark: SparkSession, broker: Broker) -> None:
    write_all_codecs(spark, broker)
    counts = {}
    for isolation in Isolation:
        theirs = served(spark, broker, isolation).cache()
        mine = lying_there(spark, broker, isolation).cache()
        counts[isolation] = theirs.count()
        assert mine.count() == counts[isolation]
        assert theirs.exceptAll(mine).take(5) == []
        assert mine.exceptAll(theirs).take(5) == []
        theirs.unpersist()
        mine.unpersist()
    aborted = counts[Isolation.READ_UNCOMMITTED] - counts[Isolation.READ_COMMITTED]
    assert aborted > 50
    assert counts[Isolation.READ_UNCOMMITTED] == golden_rows() + NEW * len(CODECS)


def golden_rows() -> int:
    """Return the number of records that a consumer received from the golden stores."""
    files = (path for store in GOLDEN for path in store.parent.glob("expect/*/expected.jsonl"))
    return sum(len(path.read_text().splitlines()) for path in files)


@pytest.mark.usefixtures("connector")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_connector_and_our_server(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    """The connector writes and reads, in a batch and in a stream; a stream that goes on reads only what came since."""
    place = ("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    server = Running(*place, *OPTIONS[backend])
    at = {"kafka.bootstrap.servers": str(server.facts["kafka"])}
    rows = spark.range(NEW).selectExpr(
        "cast(id % 7 as string) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
    )

    def send() -> None:
        options = {**at, "topic": "from", "includeHeaders": "true"}
        rows.write.format("kafka").options(**options).save()

    def copy() -> None:
        source = {**at, "subscribe": "from", "startingOffsets": "earliest"}
        stream = spark.readStream.format("kafka").options(**source).load()
        sink = {**at, "topic": "to", "checkpointLocation": str(tmp_path / "checkpoint")}
        query = stream.select("key", "value").writeStream.format("kafka").options(**sink)
        query.trigger(availableNow=True).start().awaitTermination()

    def stored(topic: str) -> DataFrame:
        options = {**at, "subscribe": topic, "startingOffsets": "earliest"}
        found = spark.read.format("kafka").options(**options).load()
        return found.selectExpr("cast(key as string)", "cast(value as string)")

    try:
        for turn in (1, 2):
            send()
            copy()
            for topic in ("from", "to"):
                found = stored(topic)
                assert found.count() == turn * NEW
                assert found.distinct().exceptAll(rows.select("key", "value")).take(1) == []
                assert found.distinct().count() == NEW
    finally:
        server.process.kill()
        server.process.communicate()
