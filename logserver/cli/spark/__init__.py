"""`logserver pipeline NAME`: the jobs of the data pipeline; their commands are in `jobs`.

Owns the table of jobs and their Spark session, which is started when a job asks for it. Must not import a job or
PySpark by itself.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

import click

from logserver.cli import Lazy, LazyGroup
from logserver.cli.options import name_values
from logserver.cli.output import Row, write_rows
from logserver.cli.spark.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Args = ParamSpec("Args")
R = TypeVar("R")

JOBS: Final[Mapping[str, Lazy]] = {
    "audit": Lazy("logserver.cli.spark.jobs:audit", "Verify a store on several cores."),
    "convert": Lazy(
        "logserver.cli.spark.jobs:convert", "Convert to a new store in the other format."
    ),
    "compare": Lazy("logserver.cli.spark.jobs:compare", "Compare one workload in both formats."),
    "export": Lazy("logserver.cli.spark.jobs:export", "Append new records to Parquet."),
    "rebuild": Lazy("logserver.cli.spark.jobs:rebuild", "Rebuild derived files on several cores."),
}
RUN_ROWS: Final = 1000


class Jobs(LazyGroup):
    """The group of the jobs."""

    table = JOBS


@click.group("pipeline", cls=Jobs)
@click.option(
    "--master", metavar="URL", help="Spark's master; default: all cores of this machine, local[*]."
)
@click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=name_values,
    help="A Spark setting, such as spark.driver.memory=4g.",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Show Spark's own log, and the traces of Java and Python after an error.",
)
@click.pass_context
def command(
    ctx: click.Context, *, master: str | None, settings: Mapping[str, str], debug: bool
) -> None:
    """Run a job on Apache Spark over whole stores, spread over cores or a cluster.

    Needs the extra `spark` (pip install 'duolog[spark]') and Java 17 or later. Missing parts are reported at once.
    A job shows its progress on standard error.
    """
    given = {"master": master, "spark_settings": settings, "debug": debug}
    ctx.obj = {**(ctx.obj or {}), **given}


@contextmanager
def job_report(
    run: Callable[Concatenate[SparkSession, Args], R], *args: Args.args, **options: Args.kwargs
) -> Iterator[R]:
    """Run a job in a session and yield its report; at the end stop the session if it was started here.

    Progress is shown until the job has ended. An error of the store is raised as itself, any other error of Spark as
    SparkFailed, so that the command ends with one line and the right exit code.
    """
    from logserver.pipeline.failures import spark_failure

    ctx = click.get_current_context()
    progress = JobProgress()
    try:
        with _session(ctx, progress) as spark:
            report = run(spark, *args, **options)
            progress.stop()
            yield report
    except Exception as error:  # exceptions of Spark, of many classes, around the task's error
        found = spark_failure(error)
        if ctx.obj["debug"]:
            traceback.print_exception(error)
        if found is None:
            raise
        raise found from error
    finally:
        progress.stop()


@contextmanager
def _session(ctx: click.Context, progress: JobProgress) -> Iterator[SparkSession]:
    """Yield the session; stop it at the end if it is new."""
    from logserver.pipeline.session import create_session, running_session

    before = running_session()
    logging.basicConfig(handlers=[log_handler()])
    spark = create_session(
        str(ctx.info_name),
        master=ctx.obj["master"],
        settings=ctx.obj["spark_settings"],
        debug=ctx.obj["debug"],
        on_start=lambda: progress.start("starting Spark"),
    )
    try:
        progress.watch(spark.sparkContext.statusTracker())
        yield spark
    finally:
        progress.stop()
        if before is None:
            spark.stop()


def log_handler() -> logging.Handler:
    """Return a handler that writes to standard error, except records of the root logger itself.

    To the root logger Py4J logs the stack of a call that an interrupt has aborted; the command already reports the
    interrupt in a line.
    """
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.name != logging.root.name)
    return handler


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows of a job's report; the driver has made them, so they fit into memory."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def write_report(rows: Iterable[Row], output: str) -> None:
    """Print the rows of a job's report."""
    waiting = iter(rows)
    write_rows(iter(lambda: list(islice(waiting, RUN_ROWS)), []), output)
