"""The start of a reading, in kcat's notation: beginning, end, stored, N, -N and @TIME.

Owns the conversion of these texts to the client's values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import click

from logserver.cli.online.options import Command
from logserver.cli.options import parse_time

STORED: Final = "stored"
OFFSET_NAMES: Final[Mapping[str, str]] = {"beginning": "earliest", "end": "latest"}
READING_NAMES: Final[Mapping[str, str]] = {**OFFSET_NAMES, STORED: STORED}


def start_option(
    *declarations: str,
    names: Mapping[str, str],
    about: str,
    takes_last: bool = True,
    **options: object,
) -> Callable[[Command], Command]:
    """Return an option for such a text. `names` maps the accepted words to their values. -N counts from the end, which
    only readings support (`takes_last`).
    """
    forms = ", ".join([*names, "N", *(["-N (the last N)"] if takes_last else [])])

    def parse(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
        if value in names:
            return names[value]
        try:
            if value.startswith("@"):
                return f"@{parse_time(value[1:])}"
            if takes_last or not value.startswith("-"):
                return int(value)
        except ValueError:
            pass
        raise click.BadParameter(f"{value!r} is none of {forms} and @TIME", ctx, param)

    help_text = f"{about}: {forms} or @TIME."
    return click.option(
        *declarations,
        metavar="OFFSET",
        callback=parse,
        help=help_text,
        **options,  # type: ignore[arg-type]  # click's own, named by the callers
    )
