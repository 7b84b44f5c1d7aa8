"""Exit codes, and the end of a command that cannot continue: one plain line on standard error.

Owns the exit codes and the table from an exception to its code. Must not raise anything itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Final

import click

from logserver.cli.output import JSON, chosen_output
from logserver.errors import DAMAGED, ServerRefused, SettingsError
from storage import StorageError
from storage.display import encode_json, one_line
from storage.errors import CallerError, DataError, UnsupportedFormat

FINE: Final = 0
FINDINGS: Final = 1
USAGE: Final = 2
FAILURE: Final = 3
INTERRUPTED: Final = 130

EXIT_CODES: Final[Mapping[int, str]] = {
    FINE: "Success, also when the reader of the output closes it.",
    FINDINGS: "Findings: something on the disk is wrong, or damaged data was met on a server.",
    USAGE: "Wrong use: an option, a setting or an argument; or the server refused the request.",
    FAILURE: "The machine, no answer from a server, or a bug.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}


def report_error(error: BaseException, ctx: click.Context) -> int:
    """Print the error on one line and return its exit code."""
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return FINE
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    if isinstance(error, StorageError):
        if chosen_output(ctx) == JSON:
            facts = {"error": error.message, "code": error.code, **error.facts()}
            click.echo(encode_json(facts, enc_hook=str), err=True)
        else:
            _say(f"error: {_line(error.message)}{_hint(error)} [{error.code}]")
        return _exit_code(error)
    if isinstance(error, UnicodeEncodeError):  # an argument of the command line may be any bytes
        _say(f"error: {error.object!a} contains bytes that are not UTF-8 [invalid-argument]")
        return USAGE
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        _say(f"error: {name}{error.strerror or error}")
        _drop_output()
    else:
        _say(f"error: {type(error).__name__}: {_line(str(error))} [internal-error]: this is a bug")
    return FAILURE


def _hint(error: StorageError) -> str:
    """Return the option that an error of the server's asks for; its own message is for HTTP clients."""
    is_login = isinstance(error, ServerRefused) and error.status == 401
    return "; --token-file FILE has the token to send" if is_login else ""


def _exit_code(error: StorageError) -> int:
    if isinstance(error, ServerRefused):
        if error.error_code == DAMAGED:
            return FINDINGS
        return USAGE if error.status < 500 else FAILURE
    if isinstance(error, CallerError | SettingsError | UnsupportedFormat):
        return USAGE
    return FINDINGS if isinstance(error, DataError) else FAILURE


def _line(message: str) -> str:
    return " ".join(message.split())


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(one_line(line), err=True)


def _drop_output() -> None:
    """Redirect standard output to the null device: its reader has closed it, and Python's last flush must not fail."""
    with contextlib.suppress(OSError, ValueError):
        stdout = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stdout)
        os.close(null)
