"""`logserver pipeline NAME`: the jobs of the data pipeline; their commands are in `jobs`.

Owns the table of jobs and their Spark session, which is started when a job asks for it. Must not import a job or
PySpark by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from logserver.cli import Lazy, LazyGroup
from logserver.cli.options import name_values
from logserver.cli.output import write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
@click.pass_context
def command(ctx: click.Context, *, master: str | None, settings: Mapping[str, str]) -> None:
    """Run a job on Apache Spark over whole stores, spread over cores or a cluster.

    Needs the extra `spark` (pip install 'duolog[spark]') and Java 17.
    """
    ctx.obj = {**(ctx.obj or {}), "master": master, "spark_settings": settings}


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Yield the session for the job of the running command; at the end stop it if it was started here.

    A storage error of a task is raised as itself, so that the command ends with its message and code.
    """
    from logserver.pipeline.session import create_session, running_session, storage_error

    ctx = click.get_current_context()
    logging.basicConfig(handlers=[log_handler()])
    before = running_session()
    spark = create_session(
        str(ctx.info_name), master=ctx.obj["master"], settings=ctx.obj["spark_settings"]
    )
    try:
        yield spark
    except Exception as error:  # exceptions of Spark, of many classes, around the task's error
        found = storage_error(error)
        if found is None:
            raise
        raise found from error
    finally:
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


def write_frame(frame: DataFrame, output: str) -> None:
    """Print the rows of a job's report; only one Spark partition at a time is in memory."""
    rows = (row.asDict(recursive=True) for row in frame.toLocalIterator())
    write_rows(iter(lambda: list(islice(rows, RUN_ROWS)), []), output)
