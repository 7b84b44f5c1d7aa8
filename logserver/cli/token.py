"""`logserver token`: lines for a token file.

Owns the question for the password and the printing; must not write a file, nor know what a verifier is made of
(`logserver.access.scram`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from logserver.access.scram import DEFAULT_ITERATIONS, HASHES, ITERATIONS, NAME, made
from logserver.access.tokens import Scope

MAX_PASSWORD_CHARACTERS: Final = 1024
_CHOICES: Final = {name.removeprefix("SCRAM-").lower(): name for name in HASHES}


@click.group("token")
def command() -> None:
    """Make lines for a token file (serve --token-file)."""


def _scopes(ctx: click.Context, param: click.Parameter, value: str) -> str:
    known = [scope.value for scope in Scope]
    if not set(value.split(",")) <= set(known):
        raise click.BadParameter(f"scopes are {', '.join(known)}, with commas", ctx, param)
    return value


@command.command(
    "scram",
    epilog="Example: logserver token scram ann --scopes read,produce >> tokens",
    short_help="Print the lines of a user of Kafka's login.",
)
@click.argument("name", metavar="NAME")
@click.option(
    "--scopes",
    default="read,produce",
    show_default=True,
    callback=_scopes,
    help="What the user may do: read, produce, admin.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(_CHOICES)),
    multiple=True,
    help="Only for this mechanism; may be repeated (else for both).",
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS[0], ITERATIONS[-1]),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
def scram(name: str, *, scopes: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Print the lines of a user who logs in by SCRAM with Kafka's protocol.

    The password is asked for, or is the first line of standard input. The lines do not hold it.
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name[:80]!r}: a name has 1 to 128 of A-Z a-z 0-9 . _ @ + / -", param_hint="NAME"
        )
    password = _password()
    for choice in mechanisms or _CHOICES:
        verifier = made(_CHOICES[choice], name, password, iterations=iterations)
        click.echo(f"{verifier.line()} {scopes}")


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt(
            "Password", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        password = sys.stdin.readline(MAX_PASSWORD_CHARACTERS + 2).removesuffix("\n")
    if not 1 <= len(password) <= MAX_PASSWORD_CHARACTERS:
        raise click.UsageError(f"a password has 1 to {MAX_PASSWORD_CHARACTERS} characters")
    return password
