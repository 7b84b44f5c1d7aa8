"""`logserver pipeline rebuild`: rebuild derived files from the log, on Spark.

Owns the options and the exit code; must not know Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from logserver.cli import FINDINGS
from logserver.cli.options import path_argument, rebuilt_option, set_option, write_option
from logserver.cli.output import output_option
from logserver.cli.spark import spark_session, write_frame


@click.command("rebuild")
@path_argument
@rebuilt_option
@write_option
@set_option
@output_option
def command(
    path: Path, *, what: str | None, write: bool, settings: Mapping[str, str], output: str
) -> None:
    """Rebuild indexes or queues of PATH from its log, on several cores, and print the differences.

    The result is that of `logserver rebuild`. With --write no server may be running; replaced files are kept
    next to the store. The exit code is 1 if a finding is worse than `info`.
    """
    from logserver.pipeline.jobs import rebuild

    with spark_session() as spark:
        report = rebuild.run(spark, path, what, write=write, settings=settings)
        write_frame(report, output)
        wrong = report.where("severity IN ('warning', 'error')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)
