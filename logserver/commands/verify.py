"""`logserver verify`: read everything, tell what is wrong.

Owns how findings are printed; what a code means stands in docs/findings.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from logserver.commands import FINDINGS
from logserver.commands.options import opened, path_argument, set_option
from logserver.commands.output import (
    TABLE,
    Row,
    finding_line,
    is_wrong,
    output_option,
    write_rows,
    write_text,
)
from storage import Finding


@click.command("verify")
@path_argument
@set_option
@output_option
def command(path: Path, *, settings: Mapping[str, str], output: str) -> None:
    """Read all of PATH and print what is wrong: a store, a partition directory or one file.

    The exit code is 1 if anything is worse than `info`. Nothing is changed.
    """
    met: Counter[str] = Counter()
    with opened(path, settings) as (inspector, progress):
        found = _counted(inspector.verify(progress), met)
        if output == TABLE:
            write_text(map(finding_line, found))
            write_text([_conclusion(met)])
        else:
            write_rows(_rows(found), output)
    if met["wrong"]:
        click.get_current_context().exit(FINDINGS)


def _counted(found: Iterable[Finding], met: Counter[str]) -> Iterator[Finding]:
    for finding in found:
        met[finding.severity] += 1
        met["wrong"] += is_wrong(finding)
        yield finding


def _rows(found: Iterable[Finding]) -> Iterator[Sequence[Row]]:
    for finding in found:
        yield [msgspec.to_builtins(finding)]


def _conclusion(met: Counter[str]) -> str:
    if not met["wrong"]:
        return "nothing is wrong"
    counts = [f"{met[kind]} {kind}{'' if met[kind] == 1 else 's'}" for kind in ("error", "warning")]
    return f"{', '.join(counts)}; what to do: docs/findings.md"
