"""The composition root: the command line `logserver`, and the one place that joins it with `api`.

Owns the start of the process; must not be imported by any module. Run as `logserver` or `python -P -m logserver`.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import logserver
from logserver import process_signals
from logserver.origins import misplaced_package

FAILURE: Final = 3
INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        with process_signals.held():
            open_closed_streams()
            problem = misplaced_package()
            if problem is not None:
                sys.stderr.write(f"error: {problem}\n")
                sys.exit(FAILURE)
            commands = group()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    commands(prog_name="logserver")


def open_closed_streams() -> None:
    """Open /dev/null for every standard stream that the parent process closed (`>&-`).

    Otherwise the next opened file, possibly a file of the store, would get the number of that stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def group() -> Any:
    """Return the command line. Its context object holds `run_server`, which commands need from the package `api`."""
    import click

    from logserver.cli import LazyGroup

    @click.group(
        "logserver",
        cls=LazyGroup,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    @click.version_option(logserver.__version__, "-V", "--version", prog_name="logserver")
    @click.pass_context
    def cli(ctx: click.Context) -> None:
        """Serve, query, check and mend Kafka log directories and RocketMQ stores, without a JVM."""
        ctx.obj = {"run_server": _run_server, "version": logserver.__version__}

    return cli


def _run_server(*arguments: Any, **options: Any) -> None:
    """Call `api.server.run`; it is imported here so that only the command that starts a server pays for the import."""
    from api.server import run

    run(*arguments, **options)


if __name__ == "__main__":
    main()
