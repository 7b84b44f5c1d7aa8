"""The Spark session of a command: a local session, or the session prepared by spark-submit.

Owns its setup. Must not be used by programs that have a session of their own: they only call `register`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from logserver.pipeline import needs, register
from logserver.pipeline.failures import not_started
from logserver.pipeline.launch import JavaOutput, start_java
from logserver.pipeline.processes import of_processes
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_LEVEL: Final = "spark.log.level"
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # the command shows its own
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    LOG_LEVEL: "OFF",  # an error of a task ends the command with one line
}

LOOPBACK: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def create_session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    debug: bool = False,
    on_start: Callable[[], object] | None = None,
) -> SparkSession:
    """Return a session in which "logserver" is registered; reuse the running session if there is one.

    If `master` is None, use the master of spark-submit, or else all cores of this machine. Workers run the same Python
    interpreter as this process. `debug`: Spark's log is shown, and errors of tasks have their traces. `on_start` is
    called before a start, which takes seconds. Raises NotOffered if something is missing (see `needs`), which is
    checked first, or if Spark does not start.
    """
    running = running_session()
    if running is None:
        require(needs.problem())
        if on_start is not None:
            on_start()
    # Otherwise workers would run the first `python3` in PATH, which does not have logserver installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = _wanted(name, master, settings or {}, debug=debug)
    spark = running_with(wanted) if running is not None else _started(wanted)
    if running is None:
        # Then this process owns the session and all its Python processes, also for the jobs.
        spark.sparkContext.environment.update(of_processes(spark, debug=debug))
    register(spark, debug=debug)
    return spark


def require(problem: str | None) -> None:
    """Raise NotOffered with the text of a problem, if there is one."""
    if problem is not None:
        raise NotOffered(problem, feature="pipeline")


def _wanted(
    name: str, master: str | None, settings: Mapping[str, str], *, debug: bool
) -> Mapping[str, str]:
    """Return the settings of the session: ours stand only where neither the user nor spark-submit has set a value."""
    given = _submitted()
    wanted = {key: value for key, value in DEFAULTS.items() if key not in given}
    if debug:
        wanted[LOG_LEVEL] = "WARN"
    wanted |= {"spark.app.name": f"logserver {name}", **settings}
    if master is not None or "spark.master" not in {**given, **settings}:
        wanted["spark.master"] = master or "local[*]"
    if wanted.get("spark.master", "").startswith("local"):  # no name of this machine is looked up
        wanted = {**LOOPBACK, **wanted}
    return wanted


def _started(wanted: Mapping[str, str]) -> SparkSession:
    """Start a session. Raises NotOffered with Java's message: mostly because of a wrong master or setting."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    output = JavaOutput(with_log=wanted.get(LOG_LEVEL) != DEFAULTS[LOG_LEVEL])
    try:
        start_java(wanted, output)
        spark = running_with(wanted)
    except (Py4JError, PySparkException) as error:
        raise not_started(error, output.take()) from error
    output.pass_on()
    return spark


def running_with(wanted: Mapping[str, str]) -> SparkSession:
    """Return the session of the running Java process with these settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _submitted() -> Mapping[str, str]:
    """Return the settings given to spark-submit if it started this process, else an empty mapping.

    They are in the Java virtual machine that spark-submit has started. Without spark-submit, reading them would start a
    virtual machine before the memory of its driver is set.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def running_session() -> SparkSession | None:
    """Return the active session of this process, or None. Raises NotOffered if a package is missing."""
    if needs.packages_problem() is not None:
        require(needs.problem())
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
