"""Convert a store to the other format, by many tasks in parallel.

Owns the rows of the report. The rules, the parts and the commit by rename belong to the storage engine, and are the
same as in `logserver convert`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline.jobs import OnExecutors, job
from storage import ConversionNote, ConversionReport, StoreOptions, convert_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT: Final = (
    "what string, topic string, partition int, field string, reason string, records bigint, "
    "offsets array<bigint>"
)
SPLIT_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """The options of a conversion; see storage.convert_store. `settings` are the settings of the source."""

    to: str
    encode: bool = False
    replace: bool = False
    topics: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    target_settings: Mapping[str, str] = field(default_factory=dict)
    split_bytes: int = SPLIT_BYTES


@job
def run(spark: SparkSession, source: Path, target: Path, wanted: ConvertOptions) -> DataFrame:
    """Convert the store at `source` into a new store at `target`, and report what became of the records.

    The report has these rows:
    - each topic (`what` is converted, `reason` is the topic's new name);
    - each note of the report (left_out, encoded, moved, hidden);
    - each finding of the source (damaged; noted).

    The new store is durable and cleanly stopped on return; after an error there is no new store. Every executor must
    see both paths. Raises what storage.convert_store raises.
    """
    report = convert_store(
        source,
        target,
        to=wanted.to,
        encode=wanted.encode,
        replace=wanted.replace,
        topics=wanted.topics,
        options=StoreOptions(settings=wanted.settings),
        target_options=StoreOptions(settings=wanted.target_settings),
        run=OnExecutors(spark),
        split_bytes=wanted.split_bytes,
    )
    return spark.createDataFrame(_rows(report), REPORT)


def _rows(report: ConversionReport) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [
        ("converted", topic.topic, None, None, topic.name, topic.records, None)
        for topic in report.topics
    ]
    for what in ("left_out", "encoded", "moved", "hidden"):
        notes: Sequence[ConversionNote] = getattr(report, what)
        rows += [
            (what, n.topic, n.partition, n.field, n.reason, n.records, list(n.offsets))
            for n in notes
        ]
    for found in report.findings:
        where = None if found.offset is None else [found.offset]
        what = "noted" if found.severity == "info" else "damaged"
        rows.append((what, found.topic, found.partition, found.code, found.message, None, where))
    return rows
