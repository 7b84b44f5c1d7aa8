"""The Spark session of a command: a local one, or the one that spark-submit has prepared.

Owns how it is set up. Must not be used by programs that have a session: they call `register` alone.
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

from logserver.pipeline import of_processes, register
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_SAYS: Final = re.compile(r"^: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
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
    """A session in which "logserver" is registered; the one that runs already, if there is one.

    `master` None: what spark-submit was told, else all cores of this machine. Workers run the Python that
    runs this. Raises NotOffered where the extra `spark` or Java is missing, or Spark does not start.
    """
    _require()
    from pyspark.sql import SparkSession

    # Workers would otherwise run the first `python3` of the path, which does not have logserver.
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
    if running is None:  # then its processes are ours: those of the jobs too
        spark.sparkContext.environment.update(of_processes(spark))
    register(spark)
    return spark


@contextmanager
def _starting() -> Iterator[None]:
    """Raise NotOffered, with what Java says, where Spark does not start: mostly a wrong master or setting."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:  # the first has Java's error behind a colon
        found = _JAVA_SAYS.search(str(error))
        reason = found[1] if found else str(error).partition("\n")[0]
        told = f"Spark does not start: {reason} (check --master, --conf and the Java that is used)"
        raise NotOffered(told, feature="pipeline") from error


def _submitted() -> Mapping[str, str]:
    """The settings that spark-submit was given, where it is what has started this process.

    They are in the Java virtual machine that runs already; to ask for them starts one where none does,
    before the memory of its driver is settled.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def running_session() -> SparkSession | None:
    """The session that this process has already."""
    _require()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _require() -> None:
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if missing:
        raise NotOffered(
            f"the pipeline needs {', '.join(missing)}: install the extra, pip install 'logserver[spark]'",
            feature="pipeline",
        )
    if not has_java():
        raise NotOffered(
            "the pipeline runs on Spark, which needs Java 17 or newer: no java is on PATH and JAVA_HOME "
            "has none (Debian: apt-get install default-jre-headless)",
            feature="pipeline",
        )


def has_java() -> bool:
    """Whether Spark will find a Java."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return True
    return shutil.which("java") is not None
