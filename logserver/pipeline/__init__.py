"""The data pipeline: stores as DataFrames of Apache Spark, in batches and streams, in and out.

Owns the data source "logserver" and the jobs. Must import nothing but the doors of `storage`: executors
load it. PySpark and PyArrow (the extra `spark`) are imported here and nowhere else, by the modules
that use them; this one stays light.
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
"""Stands first in the path of Spark's Python processes; on a worker that does not have it nothing changes."""
TASKS: Final = "LOGSERVER_SPARK_TASKS"
"""How many tasks run at once, where that is known when the data source is registered."""
_PATH: Final = "PYTHONPATH"
_REGISTERING: Final = Lock()  # over the environment of a session


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
    context = spark.sparkContext
    with _REGISTERING:
        before = context.environment
        context.environment = {**before, **of_processes(spark)}  # others may be reading the old one
        try:
            spark.dataSource.register(LogServerSource)
        finally:
            context.environment = before


def of_processes(spark: SparkSession) -> dict[str, str]:
    """What the data source's Python processes have in their environment beside what the session gives to all."""
    context = spark.sparkContext
    path = [entry for entry in context.environment.get(_PATH, "").split(os.pathsep) if entry]
    if PROCESSES not in path:
        path.insert(0, PROCESSES)
    tasks = _tasks_at_once(context)
    known = {} if tasks is None else {TASKS: str(tasks)}
    return {_PATH: os.pathsep.join(path), **known}


def _tasks_at_once(context: SparkContext) -> int | None:
    """By the master of one machine, or by the cores that the application asks a cluster for; None where it grows with
    the work, takes what there is, or is not what Spark tells.
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
    elif master.startswith("spark:"):  # its executors take whole shares of the cores
        cores = number("executor.cores", number("cores.max"))
        executors = number("cores.max") // max(cores, 1)
    else:
        executors, cores = number("executor.instances"), number("executor.cores", 1)
    return executors * (cores // max(number("task.cpus"), 1)) or None
