"""The Python processes that Spark starts for the data source: their environment, and the hook that runs in them.

Owns that environment. This folder stands first in the path of these processes: its `sitecustomize` runs at start-up.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PROCESSES: Final = str(Path(__file__).parent)
"""Folder that stands first in the path of Spark's Python processes. A worker that does not have it is not affected."""
TASKS: Final = "LOGSERVER_SPARK_TASKS"
"""Environment variable: the number of tasks that run at once, if it is known when the data source is registered."""
_PATH: Final = "PYTHONPATH"
_HIDE: Final = "SPARK_HIDE_TRACEBACK"  # of PySpark


def of_processes(spark: SparkSession, *, debug: bool = False) -> dict[str, str]:
    """Return the environment variables that the data source's Python processes get in addition to the session's.

    Unless `debug`, an error is reported as its class and message, without a Python trace.
    """
    context = spark.sparkContext
    path = [entry for entry in context.environment.get(_PATH, "").split(os.pathsep) if entry]
    if PROCESSES not in path:
        path.insert(0, PROCESSES)
    tasks = _tasks_at_once(context)
    known = {} if tasks is None else {TASKS: str(tasks)}
    hidden = {} if debug else {_HIDE: "1"}
    return {_PATH: os.pathsep.join(path), **known, **hidden}


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
