"""Rebuild derived files of a store from its log: the files of `logserver rebuild`, built by many tasks in parallel.

Owns the rows of the report. The rules, and the replacement under the store's lock, belong to the storage engine. Kafka:
a task for each segment. RocketMQ: a task for each range of about 64 MB of the commit log, which writes its results next
to the store; then a task for some queues, or for each index file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline.jobs import OnExecutors, job
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
    on_report: Callable[[RebuildReport], object] | None = None,
) -> DataFrame:
    """Rebuild `what` of a store, and report which files changed; without `write`, which files would change.

    `what` is "indexes", or of RocketMQ "consumequeue" or "indexfile"; None: all kinds. The report has a row for each
    file that differs, where `changed` says whether it was replaced, and a row for each finding. `on_report` gets the
    engine's report of each kind, which also counts the files that stay.

    With `write` the new files are in place and durable on return, and the old files are next to the store in
    `DIR.cut-TIME`. A run that is killed leaves old or new files, and a folder `DIR.rebuild-TIME` that may be removed;
    run it again. Every executor must see the store, and its parent folder, at the same path. Raises StoreLocked while a
    server has the store, InvalidArgument for an unknown kind, NotOffered for a single file.
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
    if on_report is not None:
        for report in reports:
            on_report(report)
    rows = dict.fromkeys(row for report in reports for row in _rows(report))
    return spark.createDataFrame(list(rows), REPORT)


def _rows(report: RebuildReport) -> Iterator[tuple[object, ...]]:
    for path in report.changed:
        yield path, report.written, *[None] * 9
    for finding in report.findings:
        code, severity, path, *rest = astuple(finding)
        yield path, None, code, severity, *rest
