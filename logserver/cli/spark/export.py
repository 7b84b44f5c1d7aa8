"""`logserver pipeline export`: export a store to Parquet, and append new records in each run.

Owns the options; must not know Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from logserver.cli.options import path_argument, set_option
from logserver.cli.output import output_option
from logserver.cli.spark import spark_session, write_frame
from storage import Isolation


@click.command("export")
@path_argument
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--topics", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option(
    "--json-values", is_flag=True, help="Parse values as JSON, by a schema inferred from them."
)
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    default=Isolation.READ_COMMITTED.value,
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@click.option(
    "--mode",
    type=click.Choice(["FAILFAST", "PERMISSIVE"], case_sensitive=False),
    default="FAILFAST",
    show_default=True,
    help="PERMISSIVE: log damaged and unreadable ranges and missing partitions, and export the rest.",
)
@set_option
@output_option
def command(
    path: Path,
    out: Path,
    *,
    topics: str | None,
    json_values: bool,
    isolation: str,
    mode: str,
    settings: Mapping[str, str],
    output: str,
) -> None:
    """Append what is new in the store PATH to the Parquet folder OUT, by topic and date.

    OUT remembers up to which offsets it has each partition; every record gets there once, also when a
    run is killed. Prints a row for each partition: the offsets that were taken, the rows they gave and,
    with --json-values, how many values did not fit the schema.

    A damaged or unreadable range ends the run with the file and the position, unless --mode PERMISSIVE. So does a
    partition that is missing, though other files name its records.
    """
    from logserver.pipeline.jobs import export

    wanted = export.ExportOptions(
        json_values=json_values,
        isolation=Isolation(isolation),
        topics=topics,
        permissive=mode == "PERMISSIVE",
        settings=settings,
    )
    with spark_session() as spark:
        write_frame(export.run(spark, path, out, wanted), output)
