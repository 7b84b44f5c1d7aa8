"""`logserver verify`: read everything, report all findings and counts of the checked items.

Owns the order of the output: findings, then the counts. Must not word a finding: its texts are in the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.checked import Checked, print_counts
from logserver.cli.offline.findings import all_option, finding_lines, finding_row
from logserver.cli.options import opened, path_argument, set_option
from logserver.cli.output import (
    TABLE,
    Row,
    output_option,
    write_file,
    write_rows,
    write_text,
)
from logserver.remedies import Inspected
from storage import Finding


@click.command("verify")
@path_argument
@click.option(
    "--summary",
    "summary_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the counts of checked items to this file, as JSON.",
)
@all_option
@set_option
@output_option
def command(
    path: Path,
    *,
    summary_path: Path | None,
    shows_all: bool,
    settings: Mapping[str, str],
    output: str,
) -> None:
    """Read all of PATH, a store, a partition directory or one file, and print the findings.

    The last line counts the checked items; with --output json or ndjson it goes to standard error. In a table,
    errors come before warnings, and similar findings are one line with their number. The exit code is 1 if a finding
    is worse than `info`. Nothing is changed.
    """
    checked, inspected = Checked(), Inspected(path, settings)
    with opened(path, settings) as (inspector, progress):
        found = checked.pass_on(inspector.verify(progress, checked.count))
        if output == TABLE:
            write_text(finding_lines(found, inspected, shows_all=shows_all))
        else:
            write_rows(_rows(found, inspected), output)
    print_counts(checked, output)
    if summary_path is not None:
        write_file(summary_path, msgspec.json.encode(checked.summary()) + b"\n")
    if not checked.is_sound:
        click.get_current_context().exit(FINDINGS)


def _rows(found: Iterable[Finding], inspected: Inspected) -> Iterator[Sequence[Row]]:
    for finding in found:
        yield [finding_row(finding, inspected)]
