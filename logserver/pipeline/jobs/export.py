"""Export a store to Parquet, partitioned by topic and date; each run appends the new records, every record once.

Owns the choice of a run's offsets and the columns; must not know how a store is read or how files are committed
(`appended`). The end offsets of a run are fixed before it reads, so a server may continue to append.

    OUT/topic=orders/date=2026-01-31/part-....parquet     date: of the record's timestamp, in UTC

The columns are the columns of the data source except the topic, which is in the path. With `json_values` there is also
`json`, the value parsed by a schema that is inferred from the topic's values. `json._unparsed` holds the text of a
value that does not fit, which the report counts. The schema only grows, by the fields of later runs, also nested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logserver.pipeline.jobs import job
from logserver.pipeline.jobs.appended import appending
from logserver.pipeline.read.options import SETTING_PREFIX
from logserver.pipeline.read.ranges import check_missing
from storage import Isolation, OffsetBounds, Splitter, StoreOptions, TopicPartition, open_splitter
from storage.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


REPORT: Final = "topic string, partition int, from_offset bigint, to_offset bigint, rows bigint, unparsed bigint"
UNPARSED: Final = "_unparsed"
CASE: Final = "spark.sql.caseSensitive"
WRITTEN: Final = f"partition int, json struct<{UNPARSED}: string>, topic string, date date"
DAY_MS: Final = 86_400_000


class ExportOptions(NamedTuple):
    """The options of a run. All runs into a folder must have the same `json_values` and `isolation`.

    `permissive`: damaged and unreadable ranges and missing partitions are logged and left out. `settings` are the
    settings of the store.
    """

    json_values: bool = False
    isolation: Isolation = Isolation.READ_COMMITTED
    topics: str | None = None
    permissive: bool = False
    settings: Mapping[str, str] = MappingProxyType({})


class Span(NamedTuple):
    """Offsets [start, end) of a partition."""

    partition: TopicPartition
    start: int
    end: int


@job
def run(
    spark: SparkSession, store: Path, out: Path, wanted: ExportOptions | None = None
) -> DataFrame:
    """Append to the Parquet folder `out` the records of the store at `store` that the folder does not have yet.

    Returns a row for each partition: its range of exported offsets and the number of rows. `wanted.topics` is a regular
    expression for whole names; None: all topics that are not internal. Durable on return. A run that is killed has
    added all of its records or none, and the next run adds the rest. Every executor must see both paths.

    Raises InvalidArgument for a folder with other data or other options, and for `topics` that is no regular
    expression; StoreLocked while another run writes to the folder; Corrupt for damaged records, and for a missing
    partition whose records other files name.
    """
    wanted = wanted or ExportOptions()
    _check_pattern(wanted.topics)
    with appending(out) as folder:
        _check(out, folder.state, wanted)
        spans = planned(store, out, folder.state.get("ends", {}), wanted)
        todo = [span for span in spans if span.start < span.end]
        schemas = dict(folder.state.get("schemas", {}))
        for frame in _frames(spark, store, todo, wanted, schemas):
            frame.write.partitionBy("topic", "date").mode("append").parquet(folder.staging.as_uri())
        rows: dict[TopicPartition, tuple[int, int]] = {}
        if todo:
            rows = _counted(spark, folder.staging, json_values=wanted.json_values)
            folder.commit(_state(folder.state, spans, wanted, schemas))
    return spark.createDataFrame(
        [
            (*span.partition, span.start, span.end, *rows.get(span.partition, (0, 0)))
            for span in spans
        ],
        REPORT,
    )


def _check_pattern(topics: str | None) -> None:
    try:
        re.compile(topics or "")
    except re.error as error:
        raise InvalidArgument(
            f"topics: {topics!r} is no regular expression: {error}", field="topics"
        ) from None


def _check(out: Path, state: Mapping[str, Any], wanted: ExportOptions) -> None:
    for name, value in _wishes(wanted).items():
        if state and state[name] != value:
            raise InvalidArgument(
                f"{out} was exported with {name} {state[name]}, not {value}: give another folder",
                field=name,
            )


def _wishes(wanted: ExportOptions) -> dict[str, object]:
    return {"json_values": wanted.json_values, "isolation": wanted.isolation.value}


def _state(
    before: Mapping[str, Any],
    spans: Sequence[Span],
    wanted: ExportOptions,
    schemas: Mapping[str, str],
) -> dict[str, Any]:
    ends = {topic: dict(each) for topic, each in before.get("ends", {}).items()}
    for span in spans:
        ends.setdefault(span.partition.topic, {})[str(span.partition.partition)] = span.end
    return {**_wishes(wanted), "ends": ends, "schemas": dict(schemas)}


def planned(
    store: Path, out: Path, ends: Mapping[str, Mapping[str, int]], wanted: ExportOptions
) -> list[Span]:
    """Return the offsets from the end of the last run, or the first offset, to the present end of each partition."""
    options = StoreOptions(settings=wanted.settings)
    splitter = open_splitter(store, options, permissive=wanted.permissive)
    try:
        partitions = _chosen(splitter, wanted.topics)
        seen = {partition: splitter.bounds(partition) for partition in partitions}
        check_missing(
            splitter,
            lambda partition: _is_chosen(splitter, partition.topic, wanted.topics),
            lenient=wanted.permissive,
        )
        if not seen:
            raise _none(wanted.topics)
        spans = []
        for partition, bounds in seen.items():
            last = ends.get(partition.topic, {}).get(str(partition.partition))
            spans.append(_span(out, partition, bounds, last, wanted.isolation))
        return spans
    finally:
        splitter.close()


def _chosen(splitter: Splitter, topics: str | None) -> list[TopicPartition]:
    return [
        partition
        for partition in splitter.partitions()
        if _is_chosen(splitter, partition.topic, topics)
    ]


def _none(topics: str | None) -> InvalidArgument:
    return InvalidArgument(
        "topics: the store has none" + (f" that match {topics!r}" if topics else ""),
        field="topics",
    )


def _is_chosen(splitter: Splitter, topic: str, pattern: str | None) -> bool:
    if pattern is None:
        return not splitter.is_internal(topic)
    return re.fullmatch(pattern, topic) is not None


def _span(
    out: Path,
    partition: TopicPartition,
    bounds: OffsetBounds,
    last: int | None,
    isolation: Isolation,
) -> Span:
    end = bounds.stable if isolation is Isolation.READ_COMMITTED else bounds.end
    start = bounds.start if last is None else last
    where = f"topic {partition.topic!r} partition {partition.partition}"
    if start > bounds.end:
        raise InvalidArgument(
            f"{out} has {where} up to offset {start}, and the store ends at {bounds.end}: another store?",
            field="out",
        )
    if start < bounds.start:
        raise InvalidArgument(
            f"{out} has {where} up to offset {start}, and the store begins at {bounds.start}: records between "
            "them were deleted, export into another folder",
            field="out",
        )
    return Span(partition, start, max(start, end))


def _frames(
    spark: SparkSession,
    store: Path,
    todo: Sequence[Span],
    wanted: ExportOptions,
    schemas: dict[str, str],
) -> list[DataFrame]:
    """Return the DataFrames to write: one for all topics, or one per topic if each has its own schema of values."""
    if not todo:
        return []
    if not wanted.json_values:
        return [_dated(_read(spark, store, todo, wanted))]
    frames = []
    for topic in sorted({span.partition.topic for span in todo}):
        frame = _read(spark, store, [s for s in todo if s.partition.topic == topic], wanted)
        schemas[topic] = _schema(spark, frame, schemas.get(topic))
        frames.append(_dated(_parsed(frame, schemas[topic])))
    return frames


def _read(
    spark: SparkSession, store: Path, todo: Sequence[Span], wanted: ExportOptions
) -> DataFrame:
    """Read the records of the spans, with headers."""
    partitions: dict[str, list[int]] = {}
    limits: dict[str, dict[str, dict[str, int]]] = {"start": {}, "end": {}}
    for span in todo:
        topic, number = span.partition
        partitions.setdefault(topic, []).append(number)
        limits["start"].setdefault(topic, {})[str(number)] = span.start
        limits["end"].setdefault(topic, {})[str(number)] = span.end
    options = {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(limits["start"]),
        "endingOffsets": json.dumps(limits["end"]),
        "isolationLevel": wanted.isolation.value,
        "includeHeaders": "true",
        "mode": "PERMISSIVE" if wanted.permissive else "FAILFAST",
        **{SETTING_PREFIX + name: value for name, value in wanted.settings.items()},
    }
    return spark.read.format("logserver").options(**options).load(str(store))


def _dated(frame: DataFrame) -> DataFrame:
    """Add the column `date`: the day of the timestamp in UTC, independent of the session's time zone."""
    from pyspark.sql import functions as f

    day = f.floor(f.unix_millis("timestamp") / DAY_MS).cast("int")
    return frame.withColumn("date", f.date_from_unix_date(day))


def _schema(spark: SparkSession, frame: DataFrame, known: str | None) -> str:
    """Return the schema of a topic's values as JSON. Known fields stay unchanged, new fields are added after them."""
    from pyspark.sql.types import StructType

    text = frame.selectExpr("cast(value as string) as value").where("value is not null")
    with _case_sensitive(spark):  # else Spark rejects a value with names that differ only in case
        inferred = spark.read.option("columnNameOfCorruptRecord", UNPARSED).json(text).schema
    before = (
        StructType.fromJson(json.loads(known)) if known else StructType().add(UNPARSED, "string")
    )
    return _grown(before, inferred).json()


def _grown(known: DataType | None, found: DataType) -> DataType:
    """Return a known type with the fields added at its end that only `found` has, at any depth.

    Of names that differ only in case, the first is used.
    """
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(found, ArrayType) and (known is None or isinstance(known, ArrayType)):
        return ArrayType(_grown(known and known.elementType, found.elementType))
    if not isinstance(found, StructType) or not (known is None or isinstance(known, StructType)):
        return found if known is None else known
    fields = {} if known is None else {field.name.lower(): field for field in known.fields}
    for field in found.fields:
        there = fields.get(field.name.lower())
        kind = _grown(None if there is None else there.dataType, field.dataType)
        fields[field.name.lower()] = StructField(field.name if there is None else there.name, kind)
    return StructType(list(fields.values()))


@contextmanager
def _case_sensitive(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(CASE)
    spark.conf.set(CASE, "true")
    try:
        yield
    finally:
        spark.conf.set(CASE, before or "false")


def _parsed(frame: DataFrame, schema: str) -> DataFrame:
    """Add the column `json`, the parsed value; its field UNPARSED holds the text of a value that does not fit."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    text = f.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNPARSED}
    fields = StructType.fromJson(json.loads(schema))
    return frame.withColumn("json", f.from_json(text, fields, options))


def _counted(
    spark: SparkSession, staging: Path, *, json_values: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the number of rows and of unparsed values of each partition, counted in the written files."""
    from pyspark.sql import functions as f

    unparsed = f.col(f"json.{UNPARSED}") if json_values else f.lit(None)
    written = spark.read.schema(WRITTEN).parquet(staging.as_uri())
    counts = written.groupBy("topic", "partition").agg(f.count(f.lit(1)), f.count(unparsed))
    return {
        TopicPartition(topic, number): (rows, bad) for topic, number, rows, bad in counts.collect()
    }
