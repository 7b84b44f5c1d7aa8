"""`logserver pipeline audit`: verify a store on Spark.

Owns the options and the exit code; must not know Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from logserver.cli import FINDINGS
from logserver.cli.options import path_argument, set_option
from logserver.cli.output import output_option
from logserver.cli.spark import spark_session, write_frame


@click.command("audit")
@path_argument
@click.option("--counts", is_flag=True, help="Also a row for each file: its records and bytes.")
@set_option
@output_option
def command(path: Path, *, counts: bool, settings: Mapping[str, str], output: str) -> None:
    """Read all of PATH, a store or a partition directory, and print what is wrong, spread over cores.

    Finds what `logserver verify` finds. The exit code is 1 if anything is worse than `info`. Nothing is
    changed.
    """
    from logserver.pipeline.jobs import audit

    with spark_session() as spark:
        report = audit.run(spark, path, settings)
        write_frame(report if counts else report.where("code IS NOT NULL"), output)
        wrong = report.where("severity IN ('warning', 'error')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)
