"""The command line: one module per command, imported only when that command is used.

Owns the table of commands. Must not import a command by itself, nor storage, so that `logserver --help` starts about as
fast as Python.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from logserver import process_signals


class Lazy(NamedTuple):
    """A command: its place (module:name), and its text in `--help`."""

    target: str
    about: str


COMMANDS: Final[Mapping[str, Lazy]] = {
    "serve": Lazy("logserver.cli.serve:command", "Serve a store over HTTP."),
    "topic": Lazy("logserver.cli.online.topic:command", "List, create, alter, delete topics."),
    "produce": Lazy("logserver.cli.online.produce:command", "Send lines as records."),
    "consume": Lazy("logserver.cli.online.consume:command", "Print records as they come."),
    "tail": Lazy("logserver.cli.online.consume:tail", "Print the last records, then new ones."),
    "group": Lazy("logserver.cli.online.group:command", "List, show, reset, delete groups."),
    "transaction": Lazy(
        "logserver.cli.online.transaction:command", "List, begin, commit transactions."
    ),
    "store": Lazy("logserver.cli.online.store:command", "Show the store, change retention."),
    "kcat": Lazy(
        "logserver.cli.online.kcat:command", "Consume, produce, list with kcat's options."
    ),
    "inspect": Lazy(
        "logserver.cli.offline.inspect:command", "Summarise a store, partition or file."
    ),
    "dump": Lazy(
        "logserver.cli.offline.dump:command", "Print records, batches, index entries, ..."
    ),
    "find": Lazy(
        "logserver.cli.offline.find:command", "Find records by key, id, tag, text or time."
    ),
    "offsets": Lazy(
        "logserver.cli.offline.offsets:command", "Print first and next offset, or by time."
    ),
    "verify": Lazy("logserver.cli.offline.verify:command", "Read everything and report findings."),
    "explain": Lazy("logserver.cli.offline.explain:command", "Explain the code of a finding."),
    "rebuild": Lazy("logserver.cli.offline.rebuild:command", "Rebuild indexes from the logs."),
    "salvage": Lazy(
        "logserver.cli.offline.salvage:command", "Copy intact records into a new store."
    ),
    "convert": Lazy(
        "logserver.cli.offline.convert:command", "Convert to a new store in the other format."
    ),
    "pipeline": Lazy("logserver.cli.spark:command", "Run a job on Apache Spark."),
    "bench": Lazy("logserver.cli.bench:command", "Put load on servers and measure it."),
    "compare": Lazy("logserver.cli.compare:command", "Report on both designs, side by side."),
    "config": Lazy("logserver.cli.config:command", "Show the settings in force."),
    "token": Lazy("logserver.cli.token:command", "Make lines for a token file."),
    "completion": Lazy("logserver.cli.completion:command", "Print the completion of a shell."),
    "help": Lazy("logserver.cli.help:command", "Show the text on a topic or command."),
}


class LazyGroup(click.Group):
    """A group of commands that are imported when they are used."""

    table: Mapping[str, Lazy] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        lazy = self.table.get(cmd_name)
        if lazy is None:
            return None
        module, _, name = lazy.target.partition(":")
        with process_signals.held():
            command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with. An unknown name is refused with the similar ones."""
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            similar = " or ".join(map(repr, difflib.get_close_matches(name, self.table)))
            hint = f" Did you mean {similar}?" if similar else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for `--help`, from the table."""
        rows = [(name, lazy.about) for name, lazy in self.table.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with this text, without importing a command."""
        commands = [
            CompletionItem(name, help=lazy.about)
            for name, lazy in self.table.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every error ends in one line and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # never a stack trace
            from logserver.cli.failures import report_error

            ctx.exit(report_error(error, ctx))
