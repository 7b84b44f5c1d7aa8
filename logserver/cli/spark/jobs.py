"""The commands of `logserver pipeline`: verify, convert, compare, export and rebuild stores on Spark.

Owns the options and exit codes; must not import Spark, which a job does when it runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Unpack

import click

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.checked import Checked, print_counts
from logserver.cli.offline.convert import Conversion, conversion_options
from logserver.cli.offline.findings import all_option, end_with, finding_lines
from logserver.cli.offline.rebuild import joined, rebuild_counts, rebuild_lines
from logserver.cli.options import path_argument, rebuilt_option, set_option, write_option
from logserver.cli.output import TABLE, output_option, write_text
from logserver.cli.spark import job_report, rows_of, write_report
from logserver.remedies import Inspected, is_wrong
from storage import Finding, Isolation, RebuildReport, StoreOptions, detect, open_inspector
from storage.errors import UnsupportedFormat

PICTURES: Final = (".png", ".svg")
LOST: Final = ("left_out", "damaged")  # kinds of rows in the report of a conversion
FINDING: Final = tuple(field.name for field in fields(Finding))


def check_place(path: Path, settings: Mapping[str, str]) -> None:
    """Raise what a wrong PATH or setting means, before Spark is started."""
    open_inspector(path, StoreOptions(settings=settings)).close()


def check_store(path: Path) -> None:
    """Raise UnsupportedFormat, before Spark is started, if the PATH is no store's directory."""
    if detect(path) is None:
        raise UnsupportedFormat(f"{path} holds no store: it is missing or empty", path=str(path))


def finding_of(row: Mapping[str, Any]) -> Finding:
    """Return the finding of a row of an audit."""
    return Finding(**{name: row[name] for name in FINDING})


@click.command("audit")
@path_argument
@click.option(
    "--counts", is_flag=True, help="Print a row for each file too: its records and bytes."
)
@all_option
@set_option
@output_option
def audit(
    path: Path, *, counts: bool, shows_all: bool, settings: Mapping[str, str], output: str
) -> None:
    """Read all of PATH, a store or a partition directory, and print the findings, on several cores.

    The result is that of `logserver verify`. The last lines say whether something is wrong, and count the checked
    items; with --output json or ndjson the counts go to standard error. The exit code is 1 if a finding is worse
    than `info`. Nothing is changed.
    """
    from logserver.pipeline.jobs import audit as job

    check_place(path, settings)
    checked = Checked()
    with job_report(job.run, path, settings, counted=checked.count) as report:
        rows = rows_of(report)
    found = list(checked.pass_on(finding_of(row) for row in rows if row["code"] is not None))
    if output == TABLE and not counts:
        write_text(finding_lines(found, Inspected(path, settings), shows_all=shows_all))
    else:
        write_report((row for row in rows if counts or row["code"] is not None), output)
    print_counts(checked, output)
    if not checked.is_sound:
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
    check_store(given["source"])
    with job_report(job.run, given["source"], given["target"], wanted) as report:
        rows = rows_of(report)
    write_report(rows, output)
    if any(row["what"] in LOST for row in rows):
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
        raise click.BadParameter("needs matplotlib: pip install 'duolog[spark]'")
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
    with job_report(job.run, folder, workload) as report:
        write_report(rows_of(report), output)
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
    check_store(path)
    with job_report(job.run, path, out, wanted) as report:
        rows = rows_of(report)
    write_report(rows, output)


@click.command("rebuild")
@path_argument
@rebuilt_option
@write_option
@all_option
@set_option
@output_option
def rebuild(
    path: Path,
    *,
    what: str | None,
    write: bool,
    shows_all: bool,
    settings: Mapping[str, str],
    output: str,
) -> None:
    """Rebuild indexes or queues of PATH from its log, on several cores, and print the files that change.

    The result is that of `logserver rebuild`. Without --write nothing is changed: the files that would change are
    printed, and how many of all files they are. With --write no server may be running; replaced files are kept next
    to the store. The exit code is 1 if a finding is worse than `info`.
    """
    from logserver.pipeline.jobs import rebuild as job

    check_place(path, settings)
    reports: list[RebuildReport] = []
    with job_report(
        job.run, path, what, write=write, settings=settings, on_report=reports.append
    ) as report:
        rows = rows_of(report)
    whole = joined(reports)
    if output == TABLE:
        write_text(rebuild_lines(whole))
        end_with(whole.findings, Inspected(path, settings), shows_all=shows_all)
        return
    write_report(rows, output)
    for line in rebuild_counts(whole):
        click.echo(line, err=True)
    if any(map(is_wrong, whole.findings)):
        click.get_current_context().exit(FINDINGS)
