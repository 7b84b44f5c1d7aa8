"""`logserver pipeline NAME`: the jobs of the data pipeline, one module per job beside this one.

Owns the table of jobs and the Spark session they run in, which is started when a job asks for it. Must
not import a job or PySpark by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from logserver.commands import Lazy, LazyGroup
from logserver.commands.options import name_values
from logserver.commands.output import write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOBS: Final[Mapping[str, Lazy]] = {
    "audit": Lazy(
        "logserver.commands.pipeline.audit:command", "Verify a store, spread over cores."
    ),
    "convert": Lazy(
        "logserver.commands.pipeline.convert:command", "Make a new store in the other format."
    ),
    "compare": Lazy("logserver.commands.pipeline.compare:command", "One workload in both formats."),
    "export": Lazy("logserver.commands.pipeline.export:command", "Append what is new to Parquet."),
    "rebuild": Lazy(
        "logserver.commands.pipeline.rebuild:command", "Derived files anew, spread over cores."
    ),
}
RUN_ROWS: Final = 1000


class Jobs(LazyGroup):
    """The group of the jobs."""

    table = JOBS


@click.group("pipeline", cls=Jobs)
@click.option(
    "--master", metavar="URL", help="Where Spark runs; else all cores of this machine, local[*]."
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

    Needs the extra `spark` (pip install 'logserver[spark]') and Java 17.
    """
    ctx.obj = {**(ctx.obj or {}), "master": master, "spark_settings": settings}


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The session for the job of the running command, stopped at the end if it was started here.

    What a task met in a store is raised as itself, so that the command ends with its message and code.
    """
    from logserver.pipeline.failures import storage_error
    from logserver.pipeline.session import create_session, running_session

    ctx = click.get_current_context()
    logging.basicConfig(handlers=[log_handler()])
    before = running_session()
    spark = create_session(
        str(ctx.info_name), master=ctx.obj["master"], settings=ctx.obj["spark_settings"]
    )
    try:
        yield spark
    except Exception as error:  # Spark's own, of many kinds, around what a task raised
        found = storage_error(error)
        if found is None:
            raise
        raise found from error
    finally:
        if before is None:
            spark.stop()


def log_handler() -> logging.Handler:
    """To standard error, but for what is said by the root logger itself: there Py4J logs the stack of a call
    that an interrupt has cut off, and the command ends with a line that says so.
    """
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.name != logging.root.name)
    return handler


def write_frame(frame: DataFrame, output: str) -> None:
    """Print the rows of a job's report; one of Spark's partitions at a time is held in memory."""
    rows = (row.asDict(recursive=True) for row in frame.toLocalIterator())
    write_rows(iter(lambda: list(islice(rows, RUN_ROWS)), []), output)
