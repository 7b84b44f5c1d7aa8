"""`logserver topic`: the topics of a running server.

Owns the shapes that are printed; must not know a topic's rules, which are the server's.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from logserver.cli.online.options import online, parse_pairs
from logserver.cli.output import TABLE, output_option, write_document, write_rows
from logserver.client import LogClient
from storage.display import one_line

name_argument = click.argument("name", metavar="TOPIC")
config_option = click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A config under its own name."
)


@click.group("topic")
def command() -> None:
    """List, show, create, alter and delete topics of a running server."""


@command.command("list")
@output_option
@online
async def list_topics(client: LogClient, *, output: str) -> None:
    """List the names of all topics."""
    write_rows([[{"topic": name} for name in await client.topics()]], output)


@command.command()
@name_argument
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="The number of partitions (else the store's default).",
)
@config_option
@online
async def create(
    client: LogClient, name: str, *, partitions: int | None, configs: Sequence[str]
) -> None:
    """Create a topic; a topic that exists with this shape is left unchanged."""
    given = dict(parse_pairs(configs, "config"))
    made = await client.create_topic(name, partitions=partitions, configs=given or None)
    if not made:
        click.echo(one_line(f"topic {name} already exists"), err=True)


@command.command()
@name_argument
@output_option
@online
async def show(client: LogClient, name: str, *, output: str) -> None:
    """Show a topic's configs, and the first and next offset of each partition."""
    topic = await client.topic(name)
    rows = []
    for partition in topic.partitions:
        held = await client.offsets(name, partition)
        rows.append(
            {
                "partition": partition,
                "earliest": held.beginning_offset,
                "latest": held.end_offset,
            }
        )
    if output != TABLE:
        shown = {"topic": topic.name, "configs": topic.configs, "partitions": rows}
        write_document(shown, output)
        return
    configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items())
    click.echo(one_line(f"{topic.name}  {configs}".rstrip()))
    write_rows([rows], output)


@command.command()
@name_argument
@config_option
@click.option("--reset", multiple=True, metavar="NAME", help="A config to reset to its default.")
@online
async def alter(
    client: LogClient, name: str, *, configs: Sequence[str], reset: Sequence[str]
) -> None:
    """Change a topic's configs."""
    wanted: dict[str, str | None] = dict(parse_pairs(configs, "config"))
    wanted |= dict.fromkeys(reset)
    if not wanted:
        raise click.UsageError("nothing to change: give --config NAME=VALUE or --reset NAME")
    await client.alter_topic(name, wanted)


@command.command()
@name_argument
@online
async def delete(client: LogClient, name: str) -> None:
    """Delete a topic and all its records."""
    await client.delete_topic(name)
