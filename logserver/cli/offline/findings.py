"""Findings as text and in JSON, and the exit code of a command that has findings.

Owns the line of a finding and the grouping of repeats; must not define codes and their texts, which are in the
catalogue (storage/findings.toml), nor the command that helps (`logserver.remedies`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import click
import msgspec

from logserver.cli.failures import FINDINGS
from logserver.remedies import Inspected, help_command, is_wrong, place_of
from storage import Finding
from storage.display import one_line

_SINGLY: Final = 3  # up to this number, findings of a kind are shown one by one

_Kind: TypeAlias = tuple[str, str, str | None, int | None]

all_option: Final = click.option(
    "--all", "shows_all", is_flag=True, help="Print each finding, also if many are similar."
)


def finding_line(finding: Finding, inspected: Inspected, *, others: str = "") -> str:
    """Return the line of one finding. `others`: a note about more findings like it."""
    details = [
        f"{name} {value}"
        for name, value in (("expected", finding.expected), ("found", finding.found))
        if value is not None
    ]
    command = help_command(finding, inspected)
    parts = (
        f"{finding.severity}: {place_of(finding)}: {finding.message}",
        f" ({', '.join(details)})" if details else "",
        f" [{finding.code}]",
        f" ({others})" if others else "",
        f"; see: logserver explain {finding.code}" if command is None else f"; run: {command}",
    )
    return "".join(parts)


def finding_row(finding: Finding, inspected: Inspected) -> dict[str, object]:
    """Return a finding's fields, and as `help` the command that helps, if there is one."""
    row: dict[str, object] = msgspec.to_builtins(finding)
    command = help_command(finding, inspected)
    return row if command is None else {**row, "help": command}


def with_help(
    report: object, inspected: Inspected, findings: Iterable[Finding]
) -> dict[str, object]:
    """Convert a report of storage to a JSON object; its findings have `help`."""
    document: dict[str, object] = msgspec.to_builtins(report)
    return {**document, "findings": [finding_row(finding, inspected) for finding in findings]}


def finding_lines(
    findings: Iterable[Finding], inspected: Inspected, *, shows_all: bool = False
) -> Iterator[str]:
    """Yield the lines of findings, warnings last, ordered by the first finding of each kind. Many findings of a kind
    are one line with a count.

    Errors are only grouped within one partition, so that each damaged partition has a line.
    """
    kinds: dict[_Kind, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(_kind(finding), []).append(finding)
    for alike in sorted(kinds.values(), key=lambda found: found[0].severity == "warning"):
        if shows_all or len(alike) <= _SINGLY:
            yield from (finding_line(finding, inspected) for finding in alike)
        else:
            yield finding_line(alike[0], inspected, others=_others(alike))


def _kind(finding: Finding) -> _Kind:
    if finding.severity == "error":
        return finding.severity, finding.code, finding.topic, finding.partition
    return finding.severity, finding.code, None, None


def _others(alike: Sequence[Finding]) -> str:
    """Return the number of similar findings, and their place: partitions, or the offsets of one partition."""
    partitions = {(found.topic, found.partition) for found in alike if found.topic is not None}
    offsets = [found.offset for found in alike if found.offset is not None]
    text = f"{len(alike)} like it, this is the first"
    if len(partitions) > 1:
        text += f", in {len(partitions)} partitions"
    elif offsets:
        text += f", offsets {min(offsets)} to {max(offsets)}"
    return f"{text}; --all shows each"


def incomplete_line(findings: Sequence[Finding]) -> str | None:
    """Return a line about what a dump left out, by partition; None if the dump is complete."""
    kinds: dict[str, Counter[str]] = {}
    for finding in filter(is_wrong, findings):
        place = "the store" if finding.topic is None else f"{finding.topic}-{finding.partition}"
        kinds.setdefault(place, Counter())[finding.code] += 1
    if not kinds:
        return None
    shown = "; ".join(
        f"{place}: {', '.join(f'{count} {code}' for code, count in codes.items())}"
        for place, codes in kinds.items()
    )
    return f"incomplete: records may be missing above ({shown})"


def end_with(findings: Sequence[Finding], inspected: Inspected, *, shows_all: bool = False) -> None:
    """Report findings on standard error; end with exit code 1 if any is a warning or an error."""
    for line in finding_lines(findings, inspected, shows_all=shows_all):
        click.echo(one_line(line), err=True)
    if any(map(is_wrong, findings)):
        click.get_current_context().exit(FINDINGS)
