"""The data pipeline: reads and writes stores as DataFrames of Apache Spark, in batches and streams.

Owns the data source "logserver" and the jobs. Must not import anything of `storage` but its public modules, because
executors load this package. PySpark and PyArrow (the extra `spark`) are imported only in this package, by the modules
that use them; importing this module stays cheap.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["register"]

PROCESSES: Final = str(Path(__file__).parent / "processes")
"""Folder that stands first in the path of Spark's Python processes. A worker that does not have it is not affected."""
TASKS: Final = "LOGSERVER_SPARK_TASKS"
"""Environment variable: the number of tasks that run at once, if it is known when the data source is registered."""
_PATH: Final = "PYTHONPATH"
_REGISTERING: Final = Lock()  # guards the environment of a session


def register(spark: SparkSession) -> None:
    """Register the format "logserver" in a session, for `spark.read`, `readStream` and the writers.

    Also sets `spark.sql.python.filterPushdown.enabled` for this session. Without it Spark reads whole partitions for a
    filter on offsets or times. Every worker must be able to import `logserver`.
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
        context.environment = {**before, **of_processes(spark)}
        try:
            spark.dataSource.register(LogServerSource)
        finally:
            context.environment = before


def of_processes(spark: SparkSession) -> dict[str, str]:
    """Return the environment variables that the data source's Python processes get in addition to the session's."""
    context = spark.sparkContext
    path = [entry for entry in context.environment.get(_PATH, "").split(os.pathsep) if entry]
    if PROCESSES not in path:
        path.insert(0, PROCESSES)
    tasks = _tasks_at_once(context)
    known = {} if tasks is None else {TASKS: str(tasks)}
    return {_PATH: os.pathsep.join(path), **known}


def _tasks_at_once(context: SparkContext) -> int | None:
    """Return the number of tasks that run at once, from a local master or from the cores requested of a cluster.

    Returns None if the number grows with the work, depends on the free cores, or is not reported by Spark.
    """
    conf = context.getConf()

    def number(name: str, otherwise: int = 0) -> int:
        text = conf.get(f"spark.{name}") or ""
        return int(text) if text.isdecimal() else otherwise

    master = context.master or ""
    if master.partition("[")[0] == "local":  # the default is the number of cores
        executors = 0 if conf.get("spark.default.parallelism") else 1
        cores = context.defaultParallelism
    elif (conf.get("spark.dynamicAllocation.enabled") or "").lower() == "true":
        return None
    elif master.startswith("spark:"):  # executors get fixed shares of the cores
        cores = number("executor.cores", number("cores.max"))
        executors = number("cores.max") // max(cores, 1)
    else:
        executors, cores = number("executor.instances"), number("executor.cores", 1)
    return executors * (cores // max(number("task.cpus"), 1)) or None
