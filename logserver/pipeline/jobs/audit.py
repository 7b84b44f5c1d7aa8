"""Audit a store: the findings of `logserver verify`, searched for by many tasks in parallel.

Owns the rows of the report. The rules and the division of a store into parts belong to the storage engine. A part is a
segment of Kafka, a range of about 64 MB of RocketMQ's commit log, or an index file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline.jobs import OnExecutors, job
from storage import FileCount, StoreOptions, SupportsParts, open_inspector
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT: Final = (
    "code string, severity string, path string, position bigint, topic string, partition int, offset bigint, "
    "expected string, found string, message string, records bigint, size_bytes bigint"
)


@job
def run(
    spark: SparkSession,
    store: Path,
    settings: Mapping[str, str] | None = None,
    *,
    counted: Callable[[FileCount], object] | None = None,
) -> DataFrame:
    """Read a whole store, or the folder of one partition, and report all findings; nothing is changed.

    The report has a row for each finding (codes: docs/findings.md), in the order of `logserver verify`. Then follows a
    row without a code for each file that was read: its records (of a derived file: entries, if they are counted) and
    bytes; `counted` gets these counts too. Works while a server has the store open. Every executor must see the store
    at this path. Raises NotOffered for a single file, InvalidConfig, IoFailure, UnsupportedFormat.
    """
    inspector = open_inspector(store, StoreOptions(settings=dict(settings or {})))
    try:
        if not isinstance(inspector, SupportsParts):
            raise NotOffered(
                f"{store} is a single file, which has no parts: use logserver verify",
                feature="audit",
            )
        counts: list[FileCount] = []
        found = list(inspector.audit(OnExecutors(spark), counted=counts.append))
    finally:
        inspector.close()
    if counted is not None:
        for count in counts:
            counted(count)
    rows = [(*astuple(finding), None, None) for finding in found]
    return spark.createDataFrame([*rows, *map(_count_row, counts)], REPORT)


def _count_row(count: FileCount) -> tuple[object, ...]:
    path, topic, partition, records, size_bytes, _ = count
    return None, None, path, None, topic, partition, *[None] * 4, records, size_bytes
