"""The work of the Spark benchmark: each function is one turn and counts the records it read.

Owns the data, the queries, and how either side runs them, ours or Spark's own Kafka connector; must not time creating a
store, nor compare results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import storage
from scripts.bench.harness import Turn
from storage import Record, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Job: TypeAlias = "Callable[[SparkSession], int]"

PARTITIONS: Final = 4
BATCH_BYTES: Final = 16_384  # default batch.size of a Kafka producer
KINDS: Final = ("view", "click", "order", "refund", "search")
BEGIN_MS: Final = 1_700_000_000_000
CONNECTOR: Final = "4.2.0"
SESSION: Final[Mapping[str, str]] = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
}
VALUE_SCHEMA: Final = "user bigint, kind string, amount double"


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A topic of `count` JSON values of `value_bytes` each, one millisecond apart, over all partitions in turn."""

    topic: str
    count: int
    value_bytes: int

    @property
    def in_partition(self) -> int:
        """Number of records in each partition."""
        return self.count // PARTITIONS

    def write(self, store: storage.LogStore) -> None:
        """Write the records to a new topic, in batches as big as a producer's."""
        store.create_topic(self.topic, PARTITIONS)
        run = max(1, BATCH_BYTES // (self.value_bytes + 20))
        for first in range(0, self.in_partition, run):
            for number in range(PARTITIONS):
                rows = range(first, min(first + run, self.in_partition))
                records = [self._record(row * PARTITIONS + number) for row in rows]
                store.append(TopicPartition(self.topic, number), records)

    def _record(self, row: int) -> Record:
        kind = KINDS[row % len(KINDS)]
        start = f'{{"user":{row % 10_007},"kind":"{kind}","amount":{row % 1000 / 8},"note":"'
        value = start + "x" * (self.value_bytes - len(start) - 2) + '"}'
        return Record(b"%d" % (row % 10_007), value.encode(), (), BEGIN_MS + row)

    def before(self, share: float) -> int:
        """Return the number of records before the given fraction of each partition."""
        return PARTITIONS * int(self.in_partition * share)

    def offsets(self, share: float) -> str:
        """Return the offset at that fraction of each partition, in the form of Spark's options."""
        at = int(self.in_partition * share)
        return json.dumps({self.topic: {str(number): at for number in range(PARTITIONS)}})


def make_store(backend: str, path: Path, data: list[Data]) -> None:
    """Create a store with these topics."""
    with storage.open_store(backend, path) as store:
        for topic in data:
            topic.write(store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: a data source format and the location of the data."""

    format: str
    where: Mapping[str, str]

    def read(self, spark: SparkSession, data: Data, options: Mapping[str, str]) -> DataFrame:
        """Return the topic as a DataFrame."""
        given = {**self.where, "subscribe": data.topic, **options}
        return spark.read.format(self.format).options(**given).load()

    def stream(self, spark: SparkSession, data: Data, options: Mapping[str, str]) -> DataFrame:
        """Return the topic as a stream from its first record."""
        given = {**self.where, "subscribe": data.topic, "startingOffsets": "earliest", **options}
        return spark.readStream.format(self.format).options(**given).load()


def ours(path: Path) -> Side:
    """Return our side, which reads the files directly."""
    return Side(format="logserver", where={"path": str(path)})


def connector(address: str) -> Side:
    """Return the side of Spark's own Kafka source, which reads from a broker."""
    return Side(format="kafka", where={"kafka.bootstrap.servers": address})


def consume(frame: DataFrame) -> int:
    """Read all columns of every row and drop them; return the number of rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    passing = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
    passing.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def aggregate(frame: DataFrame) -> int:
    """Count records and bytes per partition; return the number of records."""
    from pyspark.sql import functions as f

    groups = frame.groupBy("partition").agg(
        f.count(f.lit(1)).alias("rows"), f.sum(f.length("value")), f.max("offset")
    )
    return sum(int(group["rows"]) for group in groups.collect())


def aggregate_json(frame: DataFrame) -> int:
    """Parse every value and sum the amounts by kind; return the number of records."""
    from pyspark.sql import functions as f

    parsed = frame.select(f.from_json(f.col("value").cast("string"), VALUE_SCHEMA).alias("v"))
    groups = parsed.groupBy("v.kind").agg(f.count("v.user").alias("rows"), f.sum("v.amount"))
    return sum(int(group["rows"]) for group in groups.collect())


def drain(frame: DataFrame, checkpoint: Path) -> int:
    """Read a stream to its end and drop every row; return the number of rows."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def export(side: Side, data: Data, out: Path) -> Job:
    """Return a job that exports the topic to new Parquet files and returns the number of rows written."""

    def job(spark: SparkSession) -> int:
        from logserver.pipeline.jobs import export

        exported = export.run(
            spark, Path(side.where["path"]), out, export.ExportOptions(topics=data.topic)
        )
        return sum(int(row["rows"]) for row in exported.collect())

    return job


def audit(side: Side, data: Data) -> Job:
    """Return a job that audits the whole store and returns the number of records read from the topic."""

    def job(spark: SparkSession) -> int:
        from logserver.pipeline.jobs import audit

        findings = audit.run(spark, Path(side.where["path"])).where("code IS NULL")
        rows = findings.where(findings["topic"] == data.topic).collect()
        return sum(int(row["records"]) for row in rows)

    return job


def rebuild(side: Side, data: Data) -> Job:
    """Return a job that rebuilds all indexes of the store next to the existing ones. It returns the records of the
    topic, or 0 if a file differs.
    """

    def job(spark: SparkSession) -> int:
        from logserver.pipeline.jobs import rebuild

        changes = rebuild.run(spark, Path(side.where["path"]), "indexes").count()
        return 0 if changes else data.count

    return job


def timed(job: Job, spark: SparkSession) -> Turn:
    """Time one run of a job, without the start of its session."""
    began_s = time.perf_counter()
    units = job(spark)
    return Turn(units, time.perf_counter() - began_s)


class Sessions:
    """One Spark session at a time, with the requested number of cores. Leaving the `with` block stops the last
    session.
    """

    def __init__(self, jars: Sequence[Path]) -> None:
        self._jars = jars
        self._cores = 0
        self._session: SparkSession | None = None

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def of(self, cores: int) -> SparkSession:
        """Return a session with this number of cores; a session with another number is stopped first."""
        from logserver.pipeline.session import create_session

        if self._session is None or self._cores != cores:
            self.__exit__()
            self._session = create_session("bench", master=f"local[{cores}]", settings=SESSION)
            self._cores = cores
            for jar in self._jars:
                self._session.sql(f"ADD JAR '{jar}'")
        return self._session


class Served(NamedTuple):
    """The address that the connector reads from, and the connector's jars."""

    address: str
    jars: Sequence[Path]


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Run a real broker that serves a copy of the Kafka store in `folder`. Downloads broker and connector if
    missing.
    """
    from tests.interop import brokers, peers

    jars = peers.connector_jars()
    with brokers.serving(folder / "broker", [folder / "kafka"]) as broker:
        yield Served(broker.address, jars)
