"""`logserver bench WORKLOAD...`: put the same load on this server, the real brokers and others, and measure it.

Owns the destination of the document and its table; must not measure.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import click

from logserver.cli.load import Load, check_places, load_options, take
from logserver.cli.output import Row, output_option, write_file, write_rows

if TYPE_CHECKING:
    from logserver.bench.result import Result, Run

STANDARD_OUTPUT: Final = "-"
COLUMNS: Final = {
    "published/s": "published_records_per_s",
    "consumed/s": "consumed_records_per_s",
    "backlog/s": "catch_up_records_per_s",
    "p50 us": "publish_latency.p50_us",
    "p99 us": "publish_latency.p99_us",
    "cpu s/M": "server_cpu_s_per_million_records",
    "disk B/rec": "disk_bytes_per_record",
    "recovery s": "recovery_s",
    "key us": "key_lookup_latency.p50_us",
    "time us": "time_lookup_latency.p50_us",
}
"""Columns of the table and their values: medians, shown if any run has them."""


@click.command("bench")
@click.argument("names", metavar="WORKLOAD...", nargs=-1, required=True)
@load_options
@click.option(
    "--json", "json_path", metavar="FILE", help="The result as JSON; - is standard output."
)
@output_option
def command(
    *, names: tuple[str, ...], json_path: str | None, output: str, **load: Unpack[Load]
) -> None:
    """Run WORKLOADs on one target after another and measure them.

    A WORKLOAD is a TOML file, or the name of a shipped workload: `all` runs all of them, an unknown name lists them.
    Needs the extra `report` (pip install 'duolog[report]'). The exit code is 1 when counts do not agree.
    """
    if json_path not in {None, STANDARD_OUTPUT}:
        check_places(json=Path(str(json_path)))
    take(names, load, lambda result: _write(result, json_path, output))


def _write(result: Result, json_path: str | None, output: str) -> None:
    """Write the document to the requested file or standard output; print a table row for each run."""
    from logserver.bench.result import to_json

    if not result.complete:
        click.echo(f"not complete: {result.incomplete_reason}", err=True)
    if json_path == STANDARD_OUTPUT:
        click.echo(to_json(result), nl=False)
        return
    if json_path is not None:
        write_file(Path(json_path), to_json(result))
    write_rows([[_row(run) for run in result.runs]], output)


def _row(run: Run) -> Row:
    from logserver.bench.result import held, spreads

    found = spreads(run.repeats)
    row: dict[str, object] = {"workload": run.workload.name, "target": run.target.name}
    row |= {name: _rounded(found[path].median) for name, path in COLUMNS.items() if path in found}
    return row | {"held": "no"} if held(run) is False else row


def _rounded(value: float) -> float:
    return round(value) if value >= 100 else round(value, 2)
