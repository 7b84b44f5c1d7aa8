"""The Spark session of a command: a local session, or the session prepared by spark-submit.

Owns its setup, and the storage errors in the text of Spark's exceptions. Must not be used by programs that have a
session of their own: they only call `register`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline import register
from logserver.pipeline.processes import of_processes
from storage import StorageError
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_SAYS: Final = re.compile(r"^: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_RAISED: Final = re.compile(
    r"^(?:storage|logserver)(?:\.\w+)+\.(\w+): (.+(?:\n(?! SQLSTATE|\s*at |\n).*)*)", re.MULTILINE
)
NEEDED: Final = ("pyspark", "pyarrow", "numpy")

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.log.level": "ERROR",
}


def create_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session in which "logserver" is registered; reuse the running session if there is one.

    If `master` is None, use the master of spark-submit, or else all cores of this machine. Workers run the same Python
    interpreter as this process. Raises NotOffered if the extra `spark` or Java is missing, or Spark does not start.
    """
    _require()
    from pyspark.sql import SparkSession

    # Otherwise workers would run the first `python3` in PATH, which does not have logserver installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = _submitted()
    builder = SparkSession.builder.appName(f"logserver {name}")
    if master is not None or "spark.master" not in given:
        builder = builder.master(master or "local[*]")
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        if key in (settings or {}) or key not in given:
            builder = builder.config(key, value)
    running = running_session()
    with _starting():
        spark = builder.getOrCreate()
    # Then this process owns the session and all its Python processes, also for the jobs.
    if running is None:
        spark.sparkContext.environment.update(of_processes(spark))
    register(spark)
    return spark


@contextmanager
def _starting() -> Iterator[None]:
    """Raise NotOffered, with Java's message, if Spark does not start: mostly because of a wrong master or setting."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:  # a Py4JError has Java's error after a colon
        found = _JAVA_SAYS.search(str(error))
        reason = found[1] if found else str(error).partition("\n")[0]
        message = (
            f"Spark does not start: {reason} (check --master, --conf and the Java that is used)"
        )
        raise NotOffered(message, feature="pipeline") from error


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
    """Return the active session of this process, or None."""
    _require()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _require() -> None:
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if missing:
        raise NotOffered(
            f"the pipeline needs {', '.join(missing)}: install the extra, pip install 'duolog[spark]'",
            feature="pipeline",
        )
    if not has_java():
        raise NotOffered(
            "the pipeline runs on Spark, which needs Java 17 or newer: no java is on PATH and JAVA_HOME "
            "has none (Debian: apt-get install default-jre-headless)",
            feature="pipeline",
        )


def has_java() -> bool:
    """Return whether Spark will find Java."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return True
    return shutil.which("java") is not None


def storage_error(error: BaseException) -> StorageError | None:
    """Return the storage error, with its class and message, that a task or a planner raised.

    Returns None if the exception of PySpark has another cause.
    """
    for name, message in reversed(_RAISED.findall(str(error))):
        for kind in _classes(StorageError):
            if kind.__name__ == name:
                found = kind.__new__(kind)
                StorageError.__init__(found, message.strip())
                return found
    return None


def _classes(kind: type[StorageError]) -> Iterator[type[StorageError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _classes(inner)
