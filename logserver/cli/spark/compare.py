"""`logserver pipeline compare`: one workload in both formats, as figures and as a picture.

Owns the options; must not know Spark.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import click

from logserver.cli.output import output_option
from logserver.cli.spark import spark_session, write_frame

PICTURES: Final = (".png", ".svg")


def _drawable(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Reject, before the run, a picture that could not be written after it."""
    if path is None:
        return None
    if path.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{str(path)!r} ends in none of {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise click.BadParameter(f"{str(path.parent)!r} is no directory")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.BadParameter("needs matplotlib: pip install matplotlib")
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
    help="Also draw it (.svg or .png); needs matplotlib.",
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
