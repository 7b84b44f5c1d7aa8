"""The data pipeline: stores as DataFrames of Apache Spark, in batches and streams, in and out.

Owns the data source "logserver" and the jobs. Must import nothing but the doors of `storage`: executors
load it. PySpark and PyArrow (the extra `spark`) are imported here and nowhere else, by the modules
that use them; this one stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format "logserver" known to a session, for `spark.read`, `readStream` and the writers.

    Also switches `spark.sql.python.filterPushdown.enabled` on for this session: without it Spark reads
    whole partitions for a filter on offsets or times. Every worker must be able to import `logserver`.
    """
    from logserver.pipeline.source import LogServerSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(LogServerSource)
