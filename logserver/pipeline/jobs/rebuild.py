"""Make derived files of a store anew from its log: what `logserver rebuild` makes, made by many at once.

Owns the rows of the report; what is built, and how it is put in place under the store's lock, are the
storage engine's. Kafka: a task for each segment. RocketMQ: one for each stretch of the log of about
64 MB, which writes what it tells beside the store; then one for some queues, or for each index file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline.jobs import job
from logserver.pipeline.jobs.sharing import OnExecutors
from storage import RebuildReport, StoreOptions, SupportsParts, open_inspector
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT: Final = (
    "path string, changed boolean, code string, severity string, position bigint, topic string, partition int, "
    "offset bigint, expected string, found string, message string"
)


@job
def run(
    spark: SparkSession,
    store: Path,
    what: str | None = None,
    *,
    write: bool = False,
    settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """Rebuild `what` of a store ("indexes"; of RocketMQ "consumequeue" or "indexfile"; None: all of it) and tell
    what changed; without `write` only what would.

    A row for each file that differs, `changed` telling whether it was replaced, and one for each
    finding. With `write` the new files are in place and durable on return, the old ones beside the
    store in `DIR.cut-TIME`. A run that is killed leaves old or new files, and a folder
    `DIR.rebuild-TIME` that may go; run it again. Every executor has to see the store, and its parent
    folder, under the same path. Raises StoreLocked while a server has the store, InvalidArgument for a
    kind that is not there, NotOffered for a single file.
    """
    inspector = open_inspector(store, StoreOptions(settings=dict(settings or {})))
    try:
        if not isinstance(inspector, SupportsParts):
            raise NotOffered(f"{store} is a single file: rebuild needs a store", feature="rebuild")
        kinds = inspector.rebuild_kinds() if what is None else [what]
        executors = OnExecutors(spark)
        reports = [inspector.rebuild_in_parts(kind, executors, write=write) for kind in kinds]
    finally:
        inspector.close()
    rows = dict.fromkeys(row for report in reports for row in _rows(report))
    return spark.createDataFrame(list(rows), REPORT)


def _rows(report: RebuildReport) -> Iterator[tuple[object, ...]]:
    for path in report.changed:
        yield path, report.written, *[None] * 9
    for finding in report.findings:
        code, severity, path, *rest = astuple(finding)
        yield path, None, code, severity, *rest
