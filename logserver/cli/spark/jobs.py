"""The commands of `logserver pipeline`: verify, convert, compare, export and rebuild stores on Spark.

Owns the options and exit codes; must not import Spark, which a job does when it runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Unpack

import click

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.convert import Conversion, conversion_options
from logserver.cli.options import path_argument, rebuilt_option, set_option, write_option
from logserver.cli.output import output_option
from logserver.cli.spark import spark_session, write_frame
from storage import Isolation

PICTURES: Final = (".png", ".svg")


@click.command("audit")
@path_argument
@click.option(
    "--counts", is_flag=True, help="Print a row for each file too: its records and bytes."
)
@set_option
@output_option
def audit(path: Path, *, counts: bool, settings: Mapping[str, str], output: str) -> None:
    """Read all of PATH, a store or a partition directory, and print the findings, on several cores.

    The result is that of `logserver verify`. The exit code is 1 if a finding is worse than `info`. Nothing is
    changed.
    """
    from logserver.pipeline.jobs import audit as job

    with spark_session() as spark:
        report = job.run(spark, path, settings)
        write_frame(report if counts else report.where("code IS NOT NULL"), output)
        wrong = report.where("severity IN ('warning', 'error')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)


@click.command("convert")
@conversion_options
@output_option
def convert(*, output: str, **given: Unpack[Conversion]) -> None:
    """Convert the records of the store SRC to a new store at DST in the other format, on several cores.

    The result is that of `logserver convert`, with the same report in DST. Prints a row for each topic and for each
    reason of the report. The exit code is 1 if a record was left out or SRC is damaged.
    """
    from logserver.pipeline.jobs import convert as job

    wanted = job.ConvertOptions(
        to=given["to"],
        encode=given["encode"],
        replace=given["replace"],
        topics=given["topics"],
        settings=given["settings"],
        target_settings=given["target_settings"],
    )
    with spark_session() as spark:
        report = job.run(spark, given["source"], given["target"], wanted)
        write_frame(report, output)
        wrong = report.where("what IN ('left_out', 'damaged')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)


def _drawable(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Reject, before the run, a picture that could not be written after it."""
    if path is None:
        return None
    if path.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{str(path)!r} must end in {' or '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise click.BadParameter(f"{str(path.parent)!r} is not a directory")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.BadParameter("needs matplotlib: pip install 'duolog[report]'")
    return path


@click.command("compare")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--records", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--value-bytes", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=_drawable,
    help="Draw the comparison to this file (.svg or .png); needs matplotlib.",
)
@output_option
def compare(
    folder: Path, *, records: int, value_bytes: int, repeats: int, plot: Path | None, output: str
) -> None:
    """Write one workload as a Kafka and as a RocketMQ store into the new FOLDER, and compare the two.

    Prints a row for each backend and measure: speeds of writing and reading, lookups by time and key, and
    sizes on the disk; the smallest, middle and largest of the repeats.
    """
    from logserver.pipeline.jobs import compare as job

    workload = job.Workload(records=records, value_bytes=value_bytes, repeats=repeats)
    with spark_session() as spark:
        report = job.run(spark, folder, workload)
        write_frame(report, output)
        if plot is not None:
            job.plot(report, plot)


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
def export(
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
    """Append new records of the store PATH to the Parquet folder OUT, by topic and date.

    OUT stores the next offset of each partition, so that each record is exported once, also if a run is killed.
    Prints a row for each partition: the exported offsets, the number of rows and, with --json-values, the number
    of values that did not fit the schema.

    A damaged or unreadable range ends the run with the file and the position, unless --mode PERMISSIVE. So does a
    partition that is missing, though other files name its records.
    """
    from logserver.pipeline.jobs import export as job

    wanted = job.ExportOptions(
        json_values=json_values,
        isolation=Isolation(isolation),
        topics=topics,
        permissive=mode == "PERMISSIVE",
        settings=settings,
    )
    with spark_session() as spark:
        write_frame(job.run(spark, path, out, wanted), output)


@click.command("rebuild")
@path_argument
@rebuilt_option
@write_option
@set_option
@output_option
def rebuild(
    path: Path, *, what: str | None, write: bool, settings: Mapping[str, str], output: str
) -> None:
    """Rebuild indexes or queues of PATH from its log, on several cores, and print the differences.

    The result is that of `logserver rebuild`. With --write no server may be running; replaced files are kept
    next to the store. The exit code is 1 if a finding is worse than `info`.
    """
    from logserver.pipeline.jobs import rebuild as job

    with spark_session() as spark:
        report = job.run(spark, path, what, write=write, settings=settings)
        write_frame(report, output)
        wrong = report.where("severity IN ('warning', 'error')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)
