"""`logserver pipeline compare`: one workload in both formats, as figures and as a picture.

Owns the options; must not know Spark.
"""

from __future__ import annotations

from pathlib import Path

import click

from logserver.commands.output import output_option
from logserver.commands.pipeline import spark_session, write_frame


@click.command("compare")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--records", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--value-bytes", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Also draw it (.svg or .png); needs matplotlib."
)
@output_option
def command(
    folder: Path, *, records: int, value_bytes: int, repeats: int, plot: Path | None, output: str
) -> None:
    """Write one workload as a Kafka and as a RocketMQ store into the new FOLDER, and compare the two.

    Prints a row for each backend and measure: speeds of writing and reading, lookups by time and key, and
    sizes on the disk; the smallest, middle and largest of the repeats.
    """
    from logserver.pipeline.jobs import compare

    workload = compare.Workload(records=records, value_bytes=value_bytes, repeats=repeats)
    with spark_session() as spark:
        report = compare.run(spark, folder, workload)
        write_frame(report, output)
        if plot is not None:
            compare.plot(report, plot)
