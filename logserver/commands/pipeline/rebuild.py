"""`logserver pipeline rebuild`: rebuild derived files from the log, on Spark.

Owns the options and the exit code; must not know Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from logserver.commands import FINDINGS
from logserver.commands.options import path_argument, rebuilt_option, set_option, write_option
from logserver.commands.output import output_option
from logserver.commands.pipeline import spark_session, write_frame


@click.command("rebuild")
@path_argument
@rebuilt_option
@write_option
@set_option
@output_option
def command(
    path: Path, *, what: str | None, write: bool, settings: Mapping[str, str], output: str
) -> None:
    """Make indexes or queues of PATH anew from its log, spread over cores, and print what differs.

    Makes what `logserver rebuild` makes. With --write no server may be running; what was there is kept
    beside the store. The exit code is 1 if anything worse than `info` was met.
    """
    from logserver.pipeline.jobs import rebuild

    with spark_session() as spark:
        report = rebuild.run(spark, path, what, write=write, settings=settings)
        write_frame(report, output)
        wrong = report.where("severity IN ('warning', 'error')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)
