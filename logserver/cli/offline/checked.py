"""The counts of a check: topics, partitions, files, records, bytes and findings, and the lines that conclude it.

Owns these lines, which `verify` and `pipeline audit` share; must not read a store or word a finding.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import click

from logserver.cli.output import TABLE, write_text
from logserver.remedies import is_wrong
from storage import FileCount, Finding
from storage.display import counted, size_text

MISSING_ENTRY: Final = "missing-unit"
"""The finding that names a partition whose records are checked, also if it has no file: its queue is lost."""


class Checked:
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
            if finding.code == MISSING_ENTRY and finding.topic is not None:
                self._partitions.add((finding.topic, finding.partition))
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
            counted(int(str(counts[name])), name)
            for name in ("topics", "partitions", "files", "records")
        )
        size = size_text(self._size_bytes)
        return f"checked: {', '.join(items)}, {size} in {counts['seconds']:.1f} s"


def print_counts(checked: Checked, output: str) -> None:
    """Print whether something is wrong, and the counts; only the counts, on standard error, if rows were printed."""
    if output == TABLE:
        write_text([_conclusion(checked), checked.line()])
    else:
        click.echo(checked.line(), err=True)


def _conclusion(checked: Checked) -> str:
    if checked.is_sound:
        return "nothing is wrong"
    counts = [
        f"{checked.met[kind]} {kind}{'' if checked.met[kind] == 1 else 's'}"
        for kind in ("error", "warning")
    ]
    return f"{', '.join(counts)}; what a code means: logserver explain CODE"
