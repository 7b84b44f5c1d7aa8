"""Compare the two formats: one workload is written, read and searched in each format, by turns.

Owns the workload and the measures; must not know how either format works. The figures depend on this machine and this
run: only the ratio of the two formats is meaningful.

    write                records/s     a new store, by the data source's writer
    read, aggregate      records/s     every column; records and bytes of each partition
    lookup by time, key  us            one after another, in a store that is open
    size, index size     bytes/record  on the disk: the files of the logs, and all others
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline.jobs import job
from storage import LogStore, TopicPartition, list_files, open_store
from storage.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BACKENDS: Final = ("kafka", "rocketmq")
REPORT: Final = (
    "backend string, measure string, unit string, minimum double, median double, maximum double"
)
TOPIC: Final = "workload"
BEGIN_MS: Final = 1_700_000_000_000
BLOCK_BYTES: Final = 512  # unit of st_blocks
LOGS: Final = ("log", "commitlog")
RATE: Final = "records/s"
MEASURES: Final[Mapping[str, str]] = {
    "write": RATE,
    "read": RATE,
    "aggregate": RATE,
    "lookup by time": "us",
    "lookup by key": "us",
    "size": "bytes/record",
    "index size": "bytes/record",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: `records` values of `value_bytes` bytes each, one millisecond apart, spread over `partitions`.

    Each record has a lookup key of its own. Everything is measured `repeats` times, with `lookups` lookups each time.
    """

    records: int = 100_000
    value_bytes: int = 100
    partitions: int = 4
    lookups: int = 200
    repeats: int = 3

    def check(self) -> None:
        """Raise InvalidArgument for a number below 1."""
        for name in ("records", "value_bytes", "partitions", "lookups", "repeats"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} must be at least 1", field=name)

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the workload as a DataFrame, computed by the executors."""
        from pyspark.sql import functions as f

        name = f.concat(f.lit("k-"), f.col("id").cast("string"))
        return spark.range(self.records).select(
            name.alias("key"),
            f.rpad(name, self.value_bytes, "x").alias("value"),
            f.lit(TOPIC).alias("topic"),
            (f.col("id") % self.partitions).cast("int").alias("partition"),
            f.timestamp_millis(f.col("id") + BEGIN_MS).alias("timestamp"),
            f.array(name).alias("keys"),
        )


@job
def run(spark: SparkSession, folder: Path, workload: Workload | None = None) -> DataFrame:
    """Create stores of both formats in `folder`, which must be new, measure them, and return one row for each figure.

    A row has the minimum, median and maximum of the repeats. The stores of all repeats stay in the folder. Raises
    InvalidArgument for an existing folder or an impossible workload.
    """
    workload = workload or Workload()
    workload.check()
    if folder.exists():
        raise InvalidArgument(f"{folder} is there already: give a new folder", field="folder")
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for turn in range(workload.repeats):
        for backend in BACKENDS:
            path = folder / f"{backend}-{turn}"
            for measure, value in _measured(spark, backend, path, workload).items():
                found[backend, measure].append(value)
    return spark.createDataFrame(
        [
            (*names, MEASURES[names[1]], min(values), statistics.median(values), max(values))
            for names, values in found.items()
        ],
        REPORT,
    )


def _measured(
    spark: SparkSession, backend: str, path: Path, workload: Workload
) -> dict[str, float]:
    """Write, read and search one store; return its figures by measure."""
    rows = workload.rows(spark).write.format("logserver").mode("append")
    options = {"backend": backend, "numPartitions": str(workload.partitions)}
    found = {"write": _rate(lambda: rows.options(**options).save(str(path)), workload.records)}
    frame = spark.read.format("logserver").option("subscribe", TOPIC).load(str(path))
    reading = frame.write.format("noop").mode("overwrite")
    found["read"] = _rate(reading.save, workload.records)
    counted = frame.groupBy("partition").agg({"*": "count", "value": "max"})
    found["aggregate"] = _rate(counted.collect, workload.records)
    with open_store(backend, path, read_only=True) as store:
        found |= _lookups(store, workload)
    return found | _sizes(backend, path, workload.records)


def _rate(work: Callable[[], object], units: int) -> float:
    began_s = time.perf_counter()
    work()
    return units / (time.perf_counter() - began_s)


def _lookups(store: LogStore, workload: Workload) -> dict[str, float]:
    """Return the median time of a lookup, spread over the whole store."""
    step = max(1, workload.records // workload.lookups)
    first_ms, last_ms = _times(store)

    def by_time(row: int) -> object:
        partition = TopicPartition(TOPIC, row % workload.partitions)
        wanted_ms = first_ms + (last_ms - first_ms) * row // workload.records
        return store.offset_for_time(partition, wanted_ms)

    def by_key(row: int) -> object:
        return store.find(TOPIC, key=f"k-{row}", limit=1)

    rows = range(0, workload.records, step)
    return {"lookup by time": _middle_us(by_time, rows), "lookup by key": _middle_us(by_key, rows)}


def _times(store: LogStore) -> tuple[int, int]:
    """Return the first and last time of partition 0, in the kind of time that lookups by time use."""
    partition = TopicPartition(TOPIC, 0)
    bounds = store.bounds(partition)
    ends = [next(store.scan(partition, at)) for at in (bounds.start, bounds.end - 1)]
    first, last = (
        record.timestamp_ms if record.store_timestamp_ms is None else record.store_timestamp_ms
        for record in ends
    )
    return first, last


def _middle_us(look: Callable[[int], object], rows: Sequence[int]) -> float:
    taken: list[float] = []
    for row in rows:
        began_s = time.perf_counter()
        look(row)
        taken.append(time.perf_counter() - began_s)
    return statistics.median(taken) * 1e6


def _sizes(backend: str, path: Path, records: int) -> dict[str, float]:
    """Return the allocated disk space in bytes per record: preallocated files have holes."""
    totals = {True: 0, False: 0}
    for file in list_files(backend, path):
        totals[file.kind in LOGS] += (path / file.path).stat().st_blocks * BLOCK_BYTES
    return {"size": totals[True] / records, "index size": totals[False] / records}


def plot(report: DataFrame, path: Path) -> None:
    """Draw a report: a panel for each measure, a bar for each backend. The suffix of `path` selects the file format.

    Raises OSError, and ValueError for an unknown suffix.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = {(row["backend"], row["measure"]): row for row in report.collect()}
    figure = Figure(figsize=(13, 3), layout="constrained")
    FigureCanvasAgg(figure)
    for panel, (measure, unit) in zip(
        figure.subplots(1, len(MEASURES)), MEASURES.items(), strict=True
    ):
        middle = [rows[backend, measure]["median"] for backend in BACKENDS]
        panel.bar(BACKENDS, middle, color=["#1f77b4", "#d9601a"])
        panel.set_title(measure, fontsize=9)
        panel.set_ylabel(unit, fontsize=8)
        panel.tick_params(labelsize=7)
    figure.savefig(path)
