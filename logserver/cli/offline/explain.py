"""`logserver explain CODE`: the meaning of a finding's code, and its remedy.

Owns the page of one code; must not word it: the texts are in the catalogue of findings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem

from logserver.cli.output import (
    TABLE,
    Row,
    output_option,
    write_document,
    write_rows,
    write_text,
)
from storage.findings import FindingKind, catalogue, groups

_EXAMPLE: Final = "Example: logserver explain torn-tail"


def _codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the codes that begin with this text, for the completion of a shell."""
    return [
        CompletionItem(kind.code, help=kind.meaning)
        for kind in catalogue().values()
        if kind.code.startswith(incomplete)
    ]


@click.command("explain", epilog=_EXAMPLE)
@click.argument("code", metavar="[CODE]", required=False, shell_complete=_codes)
@output_option
def command(*, code: str | None, output: str) -> None:
    """Explain the CODE of a finding: what it means, how severe it is, and what to do.

    The code stands in brackets at the end of a finding. Without CODE all codes are listed.
    """
    kinds = catalogue()
    if code is None:
        rows = [_listed(kind) if output == TABLE else _row(kind) for kind in kinds.values()]
        write_rows([rows], output)
        return
    kind = kinds.get(code.strip("[]"))
    if kind is None:
        raise click.BadParameter(_unknown(code), param_hint="CODE")
    if output == TABLE:
        write_text(_page(kind))
    else:
        write_document(_row(kind), output)


def _unknown(code: str) -> str:
    words = set(code.split("-"))
    close = [known for known in catalogue() if words & set(known.split("-"))]
    known = f"; similar codes: {', '.join(close)}" if close else ""
    return f"{code!r} is not a code of a finding{known}. `logserver explain` lists all codes"


def _row(kind: FindingKind) -> Row:
    return {
        "code": kind.code,
        "group": _title(kind),
        "severities": list(kind.severities),
        "meaning": kind.meaning,
        "remedy": kind.remedy,
        "command": kind.command or None,
    }


def _listed(kind: FindingKind) -> Row:
    return {
        "code": kind.code,
        "severity": ", ".join(kind.severities),
        "meaning": kind.meaning,
    }


def _page(kind: FindingKind) -> Iterator[str]:
    yield f"{kind.code} ({_title(kind)})"
    yield f"  severity  {', '.join(kind.severities)}"
    yield f"  meaning   {kind.meaning}"
    yield f"  remedy    {kind.remedy}"
    if kind.command:
        yield f"  command   {kind.command}"


def _title(kind: FindingKind) -> str:
    return next(group.title for group in groups() if group.name == kind.group)
