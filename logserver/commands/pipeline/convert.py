"""`logserver pipeline convert`: what `logserver convert` does, on Spark.

Owns the exit code; the options are those of that command, and it must not know Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from logserver.commands import FINDINGS
from logserver.commands.convert import (
    encode_option,
    source_argument,
    source_set_option,
    target_argument,
    target_set_option,
    to_option,
    topics_option,
)
from logserver.commands.output import output_option
from logserver.commands.pipeline import spark_session, write_frame


@click.command("convert")
@source_argument
@target_argument
@to_option
@encode_option
@topics_option
@source_set_option
@target_set_option
@output_option
def command(
    source: Path,
    *,
    target: Path,
    to: str,
    encode: bool,
    topics: Sequence[str],
    settings: Mapping[str, str],
    target_settings: Mapping[str, str],
    output: str,
) -> None:
    """Make a new store at DST, in the other format, of the records of the store SRC, spread over cores.

    The same records, and the same report in DST, as of `logserver convert`. Prints a row for each topic
    and for each reason of the report. The exit code is 1 if a record was left out or SRC is damaged.
    """
    from logserver.pipeline.jobs import convert

    wanted = convert.Wanted(
        to=to,
        encode=encode,
        topics=topics,
        settings=settings,
        target_settings=target_settings,
    )
    with spark_session() as spark:
        report = convert.run(spark, source, target, wanted)
        write_frame(report, output)
        wrong = report.where("what IN ('left_out', 'damaged')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)
