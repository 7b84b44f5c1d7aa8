"""`logserver inspect`: a summary of PATH on one screen.

Owns the screen; must not compute the summary. In other output formats the summary is one JSON document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

import click

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.findings import (
    all_option,
    finding_lines,
    finding_row,
)
from logserver.cli.options import opened, path_argument, set_option
from logserver.cli.output import TABLE, output_option, write_document
from logserver.remedies import Inspected, is_wrong
from storage import Finding
from storage.display import one_line, readable_values, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = Mapping[str, Any]

MAX_PARTITIONS: Final = 30
MAX_FINDINGS: Final = 10
_ENDLESS: Final = 1 << 16  # columns, also of a dumb terminal: a wider table is not cut
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_FACTS: Final = frozenset({"topics", "findings", "recovery", "identity", "metadataLogs"})
_COLORS: Final = {"error": "red", "warning": "yellow", "info": "dim"}


@click.command("inspect")
@path_argument
@all_option
@set_option
@output_option
def command(path: Path, *, shows_all: bool, settings: Mapping[str, str], output: str) -> None:
    """Summarise PATH: a store, a partition directory or one file.

    Prints backend and format, topics, offsets, times, sizes, and the findings of the next start. The exit code is 1
    if a finding is worse than `info`; `verify` checks more.
    """
    with opened(path, settings) as (inspector, _):
        summary: Row = inspector.summary()
    inspected = Inspected(path, settings)
    findings = [Finding(**row) for row in summary["findings"]]
    if output == TABLE:
        lines = finding_lines(findings, inspected, shows_all=shows_all)
        _show(readable_values(summary, one_line), [one_line(line) for line in lines])
    else:
        rows = [finding_row(finding, inspected) for finding in findings]
        write_document({**summary, "findings": rows}, output)
    if any(map(is_wrong, findings)):
        click.get_current_context().exit(FINDINGS)


def _show(summary: Row, findings: Sequence[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, width=_ENDLESS, height=_ENDLESS)
    console.print(f"{summary['backend']} {summary['kind']}", style="bold", end="  ")
    console.print(summary["path"], markup=False)
    for name, value in _facts(summary):
        console.print(f"  {name:<15} {value}", markup=False)
    if summary.get("topics"):
        console.print()
        _show_partitions(console, summary["topics"])
    console.print()
    _show_findings(console, findings)


def _facts(summary: Row) -> Iterator[tuple[str, str]]:
    for name, value in summary.items():
        if name in ("path", "backend", "kind") or name in _NOT_FACTS or value is None:
            continue
        if name == "sizeBytes":
            yield "size", size_text(value)
        elif name == "adopted":
            yield "owner", "logserver: made or taken over" if value else "a real broker"
        elif name == "maxTimestamp":
            yield name, time_text(value)
        elif name == "logDirs":
            yield from [("log.dirs", ", ".join(value))] if len(value) > 1 else []
        elif isinstance(value, Mapping):
            yield name, ", ".join(f"{key} {_plain(key, item)}" for key, item in value.items())
        else:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)
    for name, value in summary.get("identity", {}).items():
        yield name, value
    recovery = summary.get("recovery")
    if recovery and not summary["cleanShutdown"]:
        refused = "a start for writing is refused: see below" if recovery["refused"] else "possible"
        yield (
            "recovery",
            (
                f"{refused}; {recovery['segmentsScanned']} segments scanned, "
                f"{recovery['indexesRebuilt']} indexes rebuilt"
            ),
        )


def _plain(name: str, value: object) -> str:
    """Return a value of a summary as text; a timestamp as a time."""
    if name.endswith("Timestamp") and isinstance(value, int) and value > 0:
        return time_text(value)
    return "-" if value is None else str(value)


def _show_partitions(console: Console, topics: Sequence[Row]) -> None:
    """Print a line for each partition; if there are too many, leave out empty partitions."""
    rows = [(topic, row) for topic in topics for row in topic["partitions"]]
    filled = rows
    if len(rows) > MAX_PARTITIONS:
        filled = [(topic, row) for topic, row in rows if row["latest"] > 0]
    table = _partitions(filled[:MAX_PARTITIONS])
    if console.is_terminal and console.measure(table).maximum > get_terminal_size().columns:
        table = _partitions(filled[:MAX_PARTITIONS], first_time=False)
    console.print(table)
    if len(filled) > MAX_PARTITIONS:
        console.print(f"... {len(filled) - MAX_PARTITIONS} more: --output json has all")
    if len(filled) < len(rows):
        console.print(f"{len(rows) - len(filled)} empty ones are left out: --output json has all")


def _partitions(rows: Sequence[tuple[Row, Row]], *, first_time: bool = True) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("partition", "first", "next", "size"):
        table.add_column(name, justify="left" if name == "partition" else "right", no_wrap=True)
    if first_time:
        table.add_column("first time (UTC)", no_wrap=True)
    table.add_column("largest time (UTC)", no_wrap=True)
    for topic, row in rows:
        latest = row["maxTimestamp"]
        table.add_row(
            f"{topic['topic']}-{row['partition']}",
            str(row["earliest"]),
            str(row["latest"]),
            size_text(row["sizeBytes"]),
            *([time_text(row["firstTimestamp"])] if first_time else ()),
            time_text(None if latest is None else latest["timestamp"]),
        )
    return table


def _show_findings(console: Console, lines: Sequence[str]) -> None:
    for line in lines[:MAX_FINDINGS]:
        console.print(line, style=_COLORS[line.partition(":")[0]], markup=False)
    if len(lines) > MAX_FINDINGS:
        console.print(f"... {len(lines) - MAX_FINDINGS} more: --output json has all")
    if not lines:
        console.print("nothing wrong at first sight; `logserver verify` reads everything")


def time_text(time_ms: int | None) -> str:
    """Return a time to the minute, in UTC; "-" if there is none, the number if it is after the year 9999."""
    if time_ms is None or time_ms < 0:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return f"{moment:%Y-%m-%d %H:%M}"
