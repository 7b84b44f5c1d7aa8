"""`logserver salvage`: copy the intact data into a new store, and report exactly which data was not copied.

Owns the printing of the report; must not decide its content, which is storage's LossReport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.findings import (
    all_option,
    finding_lines,
    with_help,
)
from logserver.cli.options import opened, path_argument, set_option
from logserver.cli.output import (
    JSON,
    TABLE,
    output_option,
    write_document,
    write_text,
)
from logserver.remedies import Inspected, is_wrong
from storage import KeptRange, Loss, LossReport
from storage.display import counted

LEFT_BEHIND = "left-behind"
LEFT_OUT = "changed-meanwhile"  # a partition: a running server changed it


@click.command("salvage", epilog="Example: logserver salvage data --to rescued")
@path_argument
@click.option(
    "--to",
    "target",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The new store; an empty or new directory.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@all_option
@set_option
@output_option
def command(
    path: Path,
    *,
    target: Path,
    as_json: bool,
    shows_all: bool,
    settings: Mapping[str, str],
    output: str,
) -> None:
    """Copy all intact records in PATH into a new store of the same kind, and report all data that was not copied.

    PATH is a store, a Kafka partition directory or one log file; it is not changed, and a server may
    be running on it. The report ends with the kept and lost records of each partition, and is stored
    in the new store as .logserver.salvage.json. The exit code is 1 if anything was not copied.
    """
    inspected = Inspected(path, settings)
    with opened(path, settings) as (inspector, progress):
        report = inspector.salvage(target, progress=progress)
    if as_json or output != TABLE:
        document = with_help(report, inspected, report.findings)
        write_document(document, JSON if as_json else output)
    else:
        found = finding_lines(report.findings, inspected, shows_all=shows_all)
        write_text([*map(_loss_line, report.losses), *found, *_totals(report)])
    if report.losses or any(one.code == LEFT_OUT or is_wrong(one) for one in report.findings):
        click.get_current_context().exit(FINDINGS)


def _totals(report: LossReport) -> Iterator[str]:
    """Yield the kept and lost ranges of each partition, then the totals."""
    if report.moved_bytes:
        yield (
            f"physical offsets, and with them message ids, are {report.moved_bytes} larger than before"
        )
    lost: dict[tuple[str, int], list[Loss]] = {}
    for loss in report.losses:
        if loss.topic:
            lost.setdefault((loss.topic, loss.partition), []).append(loss)
    for kept in report.kept:
        losses = lost.pop((kept.topic, kept.partition), [])
        if kept.records or losses:  # else the partition was empty
            yield _kept_line(kept, losses)
    for (topic, partition), losses in lost.items():
        yield f"{topic}-{partition}: kept nothing; lost {_ranges(losses)}"
    yield (
        f"kept: {counted(report.kept_records, 'records')} in {counted(len(report.kept), 'partitions')}, "
        f"{report.kept_bytes} bytes, in {report.target}"
    )
    if not report.losses:
        skipped = sum(found.code == LEFT_BEHIND for found in report.findings)
        things = "1 file or folder was" if skipped == 1 else f"{skipped} files and folders were"
        yield f"lost: {f'no record of the log; {things} not copied' if skipped else 'nothing'}"
        return
    reasons = Counter(loss.reason for loss in report.losses)
    shown = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    offsets = sum(
        loss.next_offset - loss.first_offset
        for loss in report.losses
        if loss.topic and loss.next_offset is not None
    )
    known = f" with {counted(offsets, 'offsets')}" if offsets else ""
    places = counted(len(report.losses), "places")
    yield f"lost: {report.lost_bytes} bytes{known} in {places} ({shown})"


def _kept_line(kept: KeptRange, losses: Sequence[Loss]) -> str:
    place = f"{kept.topic}-{kept.partition}"
    held = f"{counted(kept.records, 'records')}, {kept.size_bytes} bytes"
    following = kept.next_offset
    begins = {loss.next_offset: loss.first_offset for loss in losses}
    # The next offset stays above lost ones at the end, which are not kept.
    while begins.get(following, following) < following:
        following = begins[following]
    if following > kept.first_offset:
        held = f"{_offsets(kept.first_offset, following)}, {held}"
    lost = f"lost {_ranges(losses)}" if losses else "lost nothing"
    return f"{place}: kept {held}; {lost}"


def _ranges(losses: Sequence[Loss]) -> str:
    return ", ".join(dict.fromkeys(map(_range, losses)))


def _range(loss: Loss) -> str:
    if loss.next_offset is None:
        return f"from offset {loss.first_offset} on"
    if loss.next_offset == loss.first_offset:
        return f"{loss.size_bytes} bytes without an offset"
    return _offsets(loss.first_offset, loss.next_offset)


def _offsets(first: int, following: int) -> str:
    return f"offset {first}" if following == first + 1 else f"offsets {first} to {following - 1}"


def _loss_line(loss: Loss) -> str:
    """Return the line of one loss."""
    where = f"{loss.path} at {loss.position}: {loss.size_bytes} bytes"
    if not loss.topic:
        return f"lost: {where}, of an unknown partition [{loss.reason}]"
    return f"lost: {where}, {loss.topic}-{loss.partition} {_range(loss)} [{loss.reason}]"
