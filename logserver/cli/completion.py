"""`logserver completion SHELL`: the script that completes words in a shell.

Owns the instructions in front of the script; must not write the script itself: it is click's, except for one word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import get_completion_class

PROGRAM: Final = "logserver"
MARK: Final = "#compdef logserver"
VARIABLE: Final = "_LOGSERVER_COMPLETE"  # click's own name for it, by the program's

# click's script for fish cuts a description at its first comma.
_SPLIT: Final = 'string split "," $completion'
_SPLIT_ONCE: Final = 'string split --max 1 "," $completion'

# The file that a new shell of a user reads by itself.
FILES: Final[Mapping[str, str]] = {
    "bash": "~/.local/share/bash-completion/completions/logserver",
    "zsh": "~/.zfunc/_logserver",
    "fish": "~/.config/fish/completions/logserver.fish",
}
_HINTS: Final[Mapping[str, str]] = {
    "bash": "It needs bash 4.4 and the package bash-completion.",
    "zsh": "In ~/.zshrc, before compinit: fpath+=~/.zfunc",
    "fish": "A new shell reads the file by itself.",
}


@click.command("completion", epilog="Example: logserver completion bash")
@click.argument("shell", type=click.Choice(list(FILES)))
@click.pass_context
def command(ctx: click.Context, *, shell: str) -> None:
    """Print the script that completes commands, options, file names and topics in SHELL.

    The first lines of the script say how to install it. Topics come from the running server: give --server
    or LOGSERVER_URL, and --token-file if it has tokens.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has all shells of FILES
    source = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source().strip("\n")
    source = source.replace(_SPLIT, _SPLIT_ONCE)
    head = "\n".join(_head(shell))
    if source.startswith(MARK):  # zsh reads it on the first line only
        click.echo(f"{MARK}\n{head}{source.removeprefix(MARK)}")
    else:
        click.echo(f"{head}\n{source}")


def _head(shell: str) -> list[str]:
    """Return comments on how to install the script."""
    file = FILES[shell]
    return [
        "# Install it once, for new shells:",
        f"#   mkdir -p {file.rpartition('/')[0]}",
        f"#   logserver completion {shell} > {file}",
        f"# {_HINTS[shell]}",
    ]
