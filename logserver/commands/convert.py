"""`logserver convert`: a new store in the other format, of all that it can keep, and a report of the rest.

Owns how the report is printed; the rule is storage's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from logserver.commands import FINDINGS
from logserver.commands.options import settings_option
from logserver.commands.output import (
    TABLE,
    finding_line,
    is_wrong,
    output_option,
    write_document,
    write_text,
)
from logserver.commands.progress import LateProgress
from storage import ConversionNote, ConversionReport, StoreOptions, convert_store

SHOWN: Final = 5

source_argument: Final = click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
target_argument: Final = click.argument("target", metavar="DST", type=click.Path(path_type=Path))
to_option: Final = click.option(
    "--to",
    required=True,
    type=click.Choice(["kafka", "rocketmq"]),
    help="The format of the new store.",
)
encode_option: Final = click.option(
    "--encode",
    is_flag=True,
    help="Encode reversibly what the other format has no place for; else such records are left out.",
)
topics_option: Final = click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated."
)
source_set_option: Final = settings_option(
    "--set", about="A store option of SRC, under the reference's name."
)
target_set_option: Final = settings_option(
    "--target-set", about="A store option of DST, under the reference's name."
)


@click.command("convert")
@source_argument
@target_argument
@to_option
@encode_option
@topics_option
@click.option(
    "--report",
    "report_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report there too, as JSON.",
)
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
    report_path: Path | None,
    settings: Mapping[str, str],
    target_settings: Mapping[str, str],
    output: str,
) -> None:
    """Make a new store at DST, in the other format, of the records of the store SRC.

    SRC is not changed, and a server may be running on it; DST must not exist, or be empty. The report
    is kept in DST as .logserver.convert.json. The exit code is 1 if a record was left out.
    """
    with LateProgress() as progress:
        report = convert_store(
            source,
            target,
            to=to,
            encode=encode,
            topics=topics,
            options=StoreOptions(settings=settings, progress=progress),
            target_options=StoreOptions(settings=target_settings, progress=progress),
        )
    if report_path is not None:
        report_path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    show(report, output)
    if report.left_out or any(map(is_wrong, report.findings)):
        click.get_current_context().exit(FINDINGS)


def show(report: ConversionReport, output: str) -> None:
    """Print a report: some lines, or a JSON document."""
    if output == TABLE:
        write_text(_lines(report))
    else:
        write_document(msgspec.to_builtins(report), output)


def _lines(report: ConversionReport) -> Iterator[str]:
    for kind, notes in (
        ("left out", report.left_out),
        ("encoded", report.encoded),
        ("moved", report.moved),
        ("hidden", report.hidden),
    ):
        yield from (_line(kind, note) for note in notes)
    for finding in report.findings:
        yield finding_line(finding)
    for topic in report.topics:
        name = "" if topic.name == topic.topic else f" (there {topic.name})"
        yield f"{topic.topic}{name}: {topic.records} records in {topic.partitions} partitions"
    yield f"converted: {report.records} records to {report.to}, in {report.target}"
    left = sum(note.records for note in report.left_out)
    yield f"left out: {left} records" if left else "nothing was left out"


def _line(kind: str, note: ConversionNote) -> str:
    field = f"{note.field}: " if note.field else ""
    shown = ", ".join(map(str, note.offsets[:SHOWN]))
    more = ", ..." if note.records > len(note.offsets[:SHOWN]) else ""
    where = f"{note.topic}-{note.partition} offsets {shown}{more}"
    return f"{kind}: {where}: {field}{note.reason} ({note.records} records)"
