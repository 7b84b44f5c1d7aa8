"""`logserver rebuild`: make derived files anew from the logs.

Owns the report; without `--write` nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec

from logserver.commands.options import opened, path_argument, set_option, write_option
from logserver.commands.output import (
    TABLE,
    end_with,
    output_option,
    write_document,
    write_text,
)
from storage import RebuildReport


@click.command("rebuild")
@path_argument
@click.option("--what", metavar="KIND", default="indexes", show_default=True, help="What to make.")
@write_option
@set_option
@output_option
def command(
    path: Path, *, what: str, write: bool, settings: Mapping[str, str], output: str
) -> None:
    """Make the indexes of PATH anew: a store or a partition directory.

    What an index holds depends on index.interval.bytes: give a foreign store's value by --set. With
    --write no server may be running; the files that are replaced are kept beside the store.
    """
    with opened(path, settings) as (inspector, progress):
        report = inspector.rebuild(what, write=write, progress=progress)
    if output == TABLE:
        write_text(_lines(report))
    else:
        write_document(msgspec.to_builtins(report), output)
    end_with(report.findings)


def _lines(report: RebuildReport) -> Iterator[str]:
    verb = "changed" if report.written else "would change"
    for path in report.changed:
        yield f"{verb}: {path}"
    yield f"{len(report.changed)} of {report.files} files {verb}"
    if report.changed and not report.written:
        yield "do it with --write"
