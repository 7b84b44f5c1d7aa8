"""The data pipeline: stores as DataFrames of Apache Spark, in batches and streams, in and out.

Owns the data source "logserver" and the jobs. Must import nothing but the doors of `storage`: executors
load it. PySpark and PyArrow (the extra `spark`) are imported here and nowhere else, by the modules
that use them; this one stays light.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

PROCESSES: Final = str(Path(__file__).parent / "processes")
"""Stands first in the path of Spark's Python processes; on a worker that does not have it nothing changes."""
TASKS: Final = "LOGSERVER_SPARK_TASKS"
"""How many tasks run at once, as far as the session knew when the data source was registered."""
_PATH: Final = "PYTHONPATH"


def register(spark: SparkSession) -> None:
    """Make the format "logserver" known to a session, for `spark.read`, `readStream` and the writers.

    Also switches `spark.sql.python.filterPushdown.enabled` on for this session: without it Spark reads
    whole partitions for a filter on offsets or times. Every worker must be able to import `logserver`.
    """
    from logserver.pipeline.source import LogServerSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if not hasattr(spark, "sparkContext"):  # Spark Connect: the processes are the server's
        spark.dataSource.register(LogServerSource)
        return
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(of_processes(spark))
    try:
        spark.dataSource.register(LogServerSource)
    finally:
        environment.clear()
        environment.update(before)


def of_processes(spark: SparkSession) -> dict[str, str]:
    """What the data source's Python processes have in their environment beside what the session gives to all."""
    context = spark.sparkContext
    path = [entry for entry in context.environment.get(_PATH, "").split(os.pathsep) if entry]
    if PROCESSES not in path:
        path.insert(0, PROCESSES)
    return {_PATH: os.pathsep.join(path), TASKS: str(context.defaultParallelism)}
