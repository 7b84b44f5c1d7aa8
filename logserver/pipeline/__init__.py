"""The data pipeline: reads and writes stores as DataFrames of Apache Spark, in batches and streams.

Owns the data source "logserver" and the jobs. Must not import anything of `storage` but its public modules, because
executors load this package. PySpark and PyArrow (the extra `spark`) are imported only in this package, by the modules
that use them; importing this module stays cheap.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from logserver.pipeline.processes import of_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_REGISTERING: Final = Lock()  # guards the environment of a session


def register(spark: SparkSession, *, debug: bool = False) -> None:
    """Register the format "logserver" in a session, for `spark.read`, `readStream` and the writers.

    Also sets `spark.sql.python.filterPushdown.enabled` for this session, which the option pushFilters needs. Every
    worker must be able to import `logserver`. Errors of the data source are one line; with `debug` they have their
    Python traces.
    """
    from logserver.pipeline.source import LogServerSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if not hasattr(spark, "sparkContext"):  # Spark Connect: the server starts the Python processes
        spark.dataSource.register(LogServerSource)
        return
    context = spark.sparkContext
    with _REGISTERING:
        before = context.environment
        # A new dictionary, because other threads may be reading the old one.
        context.environment = {**before, **of_processes(spark, debug=debug)}
        try:
            spark.dataSource.register(LogServerSource)
        finally:
            context.environment = before
