"""`logserver rebuild`: rebuild derived files from the logs.

Owns the report; without `--write` it must not change anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from logserver.cli.offline.findings import all_option, end_with, with_help
from logserver.cli.options import (
    opened,
    path_argument,
    rebuilt_option,
    set_option,
    write_option,
)
from logserver.cli.output import (
    TABLE,
    output_option,
    write_document,
    write_text,
)
from logserver.remedies import Inspected
from storage import RebuildReport

_INTERVAL: Final = "index.interval.bytes"
_SPARSE_INDEXES: Final = (".index", ".timeindex")


@click.command("rebuild")
@path_argument
@rebuilt_option
@write_option
@all_option
@set_option
@output_option
def command(
    path: Path,
    *,
    what: str | None,
    write: bool,
    shows_all: bool,
    settings: Mapping[str, str],
    output: str,
) -> None:
    """Rebuild the files that are derived from the logs of PATH: a store or a partition directory.

    The entries of an index depend on index.interval.bytes: give the value of another broker's store with --set. With
    --write no server may be running; replaced files are kept next to the store.
    """
    inspected = Inspected(path, settings)
    with opened(path, settings) as (inspector, progress):
        kinds = inspector.rebuild_kinds() if what is None else [what]
        report = joined([inspector.rebuild(kind, write=write, progress=progress) for kind in kinds])
    if output == TABLE:
        write_text([*rebuild_lines(report), *_other_interval(report, settings)])
    else:
        write_document(with_help(report, inspected, report.findings), output)
    end_with(report.findings, inspected, shows_all=shows_all)


def joined(reports: Sequence[RebuildReport]) -> RebuildReport:
    """Return the reports of all kinds as one."""
    return RebuildReport(
        what=",".join(report.what for report in reports),
        written=reports[0].written,
        files=sum(report.files for report in reports),
        changed=[path for report in reports for path in report.changed],
        findings=list(dict.fromkeys(f for report in reports for f in report.findings)),
    )


def rebuild_lines(report: RebuildReport) -> Iterator[str]:
    """Yield a line for each file that changed or would change, then the lines of `rebuild_counts`."""
    verb = _verb(report)
    for path in report.changed:
        yield f"{verb}: {path}"
    yield from rebuild_counts(report)


def rebuild_counts(report: RebuildReport) -> Iterator[str]:
    """Yield a line with the number of files that changed or would change, and one with what to do next."""
    yield f"{len(report.changed)} of {report.files} files {_verb(report)}"
    if report.changed and not report.written:
        yield "to write them, give --write"


def _other_interval(report: RebuildReport, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield a line if indexes may only differ because they were written with another index interval."""
    if report.written or _INTERVAL in settings:
        return
    if any(path.endswith(_SPARSE_INDEXES) and Path(path).exists() for path in report.changed):
        yield (
            f"of these, an index that `logserver verify` does not report is right too: it was written with another "
            f"{_INTERVAL}, which --set can give"
        )


def _verb(report: RebuildReport) -> str:
    return "changed" if report.written else "would change"
