"""`logserver convert`: a new store in the other format, with a report of all that it cannot keep.

Owns the printing of the report; must not decide which data is kept, which is storage's job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

import click
import msgspec

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.findings import (
    all_option,
    finding_lines,
    with_help,
)
from logserver.cli.options import settings_option
from logserver.cli.output import (
    TABLE,
    output_option,
    write_document,
    write_file,
    write_text,
)
from logserver.cli.progress import LateProgress
from logserver.remedies import Inspected, is_wrong
from storage import ConversionNote, ConversionReport, StoreOptions, convert_store
from storage.display import counted, encode_json, one_line

SHOWN: Final = 5


class Conversion(TypedDict):
    """The values of the options."""

    source: Path
    target: Path
    to: str
    encode: bool
    replace: bool
    topics: Sequence[str]
    settings: Mapping[str, str]
    target_settings: Mapping[str, str]


_OPTIONS: Final = (
    click.argument("source", metavar="SRC", type=click.Path(path_type=Path)),
    click.argument("target", metavar="DST", type=click.Path(path_type=Path)),
    click.option(
        "--to",
        required=True,
        type=click.Choice(["kafka", "rocketmq"]),
        help="The format of the new store.",
    ),
    click.option(
        "--encode",
        is_flag=True,
        help="Encode reversibly the data that the other format has no field for; else such records are left out.",
    ),
    click.option(
        "--replace",
        is_flag=True,
        help="Convert again although DST is an earlier conversion of SRC; that is kept at DST.replaced-TIME.",
    ),
    click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC",
        help="Only this topic; may be repeated.",
    ),
    settings_option("--set", about="A store option of SRC, under the reference's name."),
    settings_option("--target-set", about="A store option of DST, under the reference's name."),
)


def conversion_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options of a `Conversion` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("convert")
@conversion_options
@click.option(
    "--report",
    "report_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to this file too, as JSON.",
)
@all_option
@output_option
def command(
    *, report_path: Path | None, shows_all: bool, output: str, **given: Unpack[Conversion]
) -> None:
    """Convert the records of the store SRC to a new store at DST in the other format.

    SRC is not changed, and a server may be running on it. DST must not exist, must be empty, or with
    --replace must be the result of an earlier conversion of SRC. Topics that are left out, and fields of the first
    records of each partition, are listed on standard error before the work begins. The report is stored in DST as
    .logserver.convert.json. The exit code is 1 if a record was left out.
    """
    with LateProgress() as progress:
        report = convert_store(
            given["source"],
            given["target"],
            to=given["to"],
            encode=given["encode"],
            replace=given["replace"],
            topics=given["topics"],
            options=StoreOptions(settings=given["settings"], progress=progress),
            target_options=StoreOptions(settings=given["target_settings"], progress=progress),
            on_foreseen=partial(_announce, encode=given["encode"]),
        )
    if report_path is not None:
        write_file(report_path, msgspec.json.format(encode_json(report)) + b"\n")
    inspected = Inspected(given["source"], given["settings"])
    if output == TABLE:
        found = finding_lines(report.findings, inspected, shows_all=shows_all)
        write_text([*_notes(report), *found, *_totals(report)])
    else:
        write_document(with_help(report, inspected, report.findings), output)
    if report.left_out or any(map(is_wrong, report.findings)):
        click.get_current_context().exit(FINDINGS)


def _announce(notes: Sequence[ConversionNote], *, encode: bool) -> None:
    """Print on standard error, before the work begins, what will be left out."""
    for note in notes:
        click.echo(one_line(_line("will be left out", note)), err=True)
    if notes and not encode:
        click.echo(
            "conversion starts without these records; with --encode they are kept in encoded form where possible",
            err=True,
        )


def _notes(report: ConversionReport) -> Iterator[str]:
    for kind, notes in (
        ("left out", report.left_out),
        ("encoded", report.encoded),
        ("moved", report.moved),
        ("hidden", report.hidden),
    ):
        yield from (_line(kind, note) for note in notes)


def _totals(report: ConversionReport) -> Iterator[str]:
    for topic in report.topics:
        name = "" if topic.name == topic.topic else f" (new name {topic.name})"
        yield f"{topic.topic}{name}: {counted(topic.records, 'records')} in {counted(topic.partitions, 'partitions')}"
    yield f"converted: {counted(report.records, 'records')} to {report.to}, in {report.target}"
    left = sum(note.records for note in report.left_out)
    if left or not any(map(is_wrong, report.findings)):
        yield f"left out: {counted(left, 'records')}" if left else "nothing was left out"
    else:
        yield "left out: unreadable records, see the findings"


def _line(kind: str, note: ConversionNote) -> str:
    field = f"{note.field}: " if note.field else ""
    shown = ", ".join(map(str, note.offsets[:SHOWN]))
    more = ", ..." if note.records > len(note.offsets[:SHOWN]) else ""
    offsets = "offset" if note.records == 1 else "offsets"
    where = f"{note.topic}-{note.partition} {offsets} {shown}{more}"
    return f"{kind}: {where}: {field}{note.reason} ({counted(note.records, 'records')})"
