"""`logserver salvage`: copy what is good into a new store, and tell exactly what was left behind.

Owns how the report is printed; what it holds is storage's LossReport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec

from logserver.commands import FINDINGS
from logserver.commands.options import opened, path_argument, set_option
from logserver.commands.output import (
    JSON,
    TABLE,
    finding_line,
    is_wrong,
    output_option,
    write_document,
    write_text,
)
from storage import Loss, LossReport


@click.command("salvage", epilog="Example: logserver salvage data --to rescued")
@path_argument
@click.option(
    "--to",
    "target",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The new store; must not exist, or be empty.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@set_option
@output_option
def command(
    path: Path, *, target: Path, as_json: bool, settings: Mapping[str, str], output: str
) -> None:
    """Copy what is good in PATH into a new store of the same kind, and tell what was left behind.

    PATH is a store, a Kafka partition directory or one log file; it is not changed, and a server may
    be running on it. The report is kept in the new store as .logserver.salvage.json. The exit code is
    1 if anything was left behind.
    """
    with opened(path, settings) as (inspector, progress):
        report = inspector.salvage(target, progress=progress)
    if as_json or output != TABLE:
        write_document(msgspec.to_builtins(report), JSON if as_json else output)
    else:
        write_text(_lines(report))
    if report.losses or any(map(is_wrong, report.findings)):
        click.get_current_context().exit(FINDINGS)


def _lines(report: LossReport) -> Iterator[str]:
    for loss in report.losses:
        yield _loss_line(loss)
    for finding in report.findings:
        yield finding_line(finding)
    if report.moved_bytes:
        yield (
            f"physical offsets, and with them message ids, are {report.moved_bytes} larger than before"
        )
    yield f"kept: {report.kept_records} records, {report.kept_bytes} bytes, in {report.target}"
    if not report.losses:
        yield "nothing was left behind"
        return
    reasons = Counter(loss.reason for loss in report.losses)
    shown = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    yield f"left behind: {report.lost_bytes} bytes in {len(report.losses)} places ({shown})"


def _loss_line(loss: Loss) -> str:
    where = f"{loss.path} at {loss.position}: {loss.size_bytes} bytes"
    return f"left behind: {where}, {_offsets(loss)} [{loss.reason}]"


def _offsets(loss: Loss) -> str:
    if not loss.topic:
        return "of no partition that is known"
    place = f"{loss.topic}-{loss.partition}"
    if loss.next_offset is None:
        return f"{place} from offset {loss.first_offset} on"
    if loss.next_offset == loss.first_offset:
        return f"{place}, no offset"
    return f"{place} offsets {loss.first_offset} to {loss.next_offset - 1}"
