"""`logserver store`: what a running server says about its store, and what it deletes.

Owns the options and the rows that are printed; must not know a setting's meaning or limits, which are the server's.
A setting that is changed here holds until the server stops.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from logserver.cli.online.options import online, parse_pairs
from logserver.cli.output import output_option, write_document, write_rows
from logserver.client import LogClient


@click.group("store")
def command() -> None:
    """Show the store of a running server, and change what it deletes."""


@command.command(short_help="Show the store, its services and sizes.")
@output_option
@online
async def show(client: LogClient, *, output: str) -> None:
    """Show the store: backend, recovery, services with their lag, sizes."""
    write_document(await client.store(), output)


@command.command(
    epilog="Example: logserver store retention --set log.retention.ms=604800000 --off log.retention.bytes",
    short_help="Show or change what the store deletes.",
)
@click.option(
    "--set",
    "changed",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a setting of retention, under the real server's name.",
)
@click.option(
    "--off",
    multiple=True,
    metavar="NAME",
    help="Turn a setting of retention off: it deletes nothing.",
)
@output_option
@online
async def retention(
    client: LogClient, *, changed: Sequence[str], off: Sequence[str], output: str
) -> None:
    """Print the settings of retention; with --set or --off, change them first, until the server stops.

    For longer, give them to `serve --set` as well. A topic's own configs (`topic alter`) count before the settings of a
    Kafka store.
    """
    pairs = dict(parse_pairs(changed, "setting"))
    both = sorted(pairs.keys() & set(off))
    if both:
        raise click.UsageError(f"{both[0]} is given to --set and to --off")
    changes: dict[str, str | None] = {**pairs, **dict.fromkeys(off)}
    if changes:
        settings = await client.change_retention(changes)
    else:
        settings = (await client.store())["retention"] or {}
    rows = [{"setting": name, "value": value} for name, value in settings.items()]
    write_rows([rows], output)
