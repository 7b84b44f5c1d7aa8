"""`logserver verify`: read everything, report all findings and counts of the checked items.

Owns the order of the output: findings, then the counts. Must not word a finding: its texts are in the catalogue.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from logserver.cli.failures import FINDINGS
from logserver.cli.offline.findings import (
    all_option,
    finding_lines,
    finding_row,
)
from logserver.cli.options import opened, path_argument, set_option
from logserver.cli.output import (
    TABLE,
    Row,
    output_option,
    write_file,
    write_rows,
    write_text,
)
from logserver.remedies import Inspected, is_wrong
from storage import FileCount, Finding
from storage.display import size_text


class _Checked:
    """The counts of checked items, and of findings by severity."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self.is_sound = True
        self._began_s = time.monotonic()
        self._partitions: set[tuple[str, int | None]] = set()
        self._files = self._records = self._size_bytes = 0

    def count(self, file: FileCount) -> None:
        """Add a file that was read."""
        if file.topic is not None:
            self._partitions.add((file.topic, file.partition))
        self._files += 1
        self._records += file.records if file.is_log else 0
        self._size_bytes += file.size_bytes

    def pass_on(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the same findings and count them."""
        for finding in found:
            self.met[finding.severity] += 1
            self.is_sound = self.is_sound and not is_wrong(finding)
            yield finding

    def summary(self) -> Mapping[str, object]:
        """Return the counts as a JSON object."""
        return {
            "topics": len({topic for topic, _ in self._partitions}),
            "partitions": len(self._partitions),
            "files": self._files,
            "records": self._records,
            "bytes": self._size_bytes,
            "seconds": round(time.monotonic() - self._began_s, 3),
            "findings": {kind: self.met[kind] for kind in ("error", "warning", "info")},
        }

    def line(self) -> str:
        """Return the counts as a line of text."""
        counts = self.summary()
        items = (
            f"{counts[name]} {name[:-1] if counts[name] == 1 else name}"
            for name in ("topics", "partitions", "files", "records")
        )
        size = size_text(self._size_bytes)
        return f"checked: {', '.join(items)}, {size} in {counts['seconds']:.1f} s"


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
    similar findings are one line with their number. The exit code is 1 if a finding is worse than `info`. Nothing
    is changed.
    """
    checked, inspected = _Checked(), Inspected(path, settings)
    with opened(path, settings) as (inspector, progress):
        found = checked.pass_on(inspector.verify(progress, checked.count))
        if output == TABLE:
            write_text(finding_lines(found, inspected, shows_all=shows_all))
        else:
            write_rows(_rows(found, inspected), output)
    if output == TABLE:
        write_text([_conclusion(checked), checked.line()])
    else:
        click.echo(checked.line(), err=True)
    if summary_path is not None:
        write_file(summary_path, msgspec.json.encode(checked.summary()) + b"\n")
    if not checked.is_sound:
        click.get_current_context().exit(FINDINGS)


def _rows(found: Iterable[Finding], inspected: Inspected) -> Iterator[Sequence[Row]]:
    for finding in found:
        yield [finding_row(finding, inspected)]


def _conclusion(checked: _Checked) -> str:
    if checked.is_sound:
        return "nothing is wrong"
    counts = [
        f"{checked.met[kind]} {kind}{'' if checked.met[kind] == 1 else 's'}"
        for kind in ("error", "warning")
    ]
    return f"{', '.join(counts)}; what a code means: logserver explain CODE"
