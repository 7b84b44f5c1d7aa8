"""`logserver pipeline convert`: the work of `logserver convert`, on Spark.

Owns the exit code; must not know Spark. The options are the options of `logserver convert`.
"""

from __future__ import annotations

from typing import Unpack

import click

from logserver.cli import FINDINGS
from logserver.cli.offline.convert import Conversion, conversion_options
from logserver.cli.output import output_option
from logserver.cli.spark import spark_session, write_frame


@click.command("convert")
@conversion_options
@output_option
def command(*, output: str, **given: Unpack[Conversion]) -> None:
    """Convert the records of the store SRC to a new store at DST in the other format, on several cores.

    The same records, and the same report in DST, as of `logserver convert`. Prints a row for each topic
    and for each reason of the report. The exit code is 1 if a record was left out or SRC is damaged.
    """
    from logserver.pipeline.jobs import convert

    wanted = convert.ConvertOptions(
        to=given["to"],
        encode=given["encode"],
        replace=given["replace"],
        topics=given["topics"],
        settings=given["settings"],
        target_settings=given["target_settings"],
    )
    with spark_session() as spark:
        report = convert.run(spark, given["source"], given["target"], wanted)
        write_frame(report, output)
        wrong = report.where("what IN ('left_out', 'damaged')").count()
    if wrong:
        click.get_current_context().exit(FINDINGS)
