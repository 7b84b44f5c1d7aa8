"""`logserver topic`: the topics of a running server.

Owns the shapes that are printed; must not know a topic's rules, which are the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import click

from logserver.cli.online.options import complete_topics, online, parse_pairs
from logserver.cli.output import TABLE, output_option, write_document, write_rows
from logserver.client import LogClient, ServerRefused
from storage.display import one_line, size_text

REQUESTS_AT_ONCE: Final = 16
NOT_FOUND: Final = 404
LOG_FILE: Final = "log"  # the kind of a file of records of one partition

name_argument = click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
config_option = click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A config under its own name."
)


@click.group("topic")
def command() -> None:
    """List, show, create, alter and delete topics of a running server, and their first records."""


@command.command("list")
@output_option
@online
async def list_topics(client: LogClient, *, output: str) -> None:
    """List all topics with their partitions, records and sizes.

    `records` is the number of offsets from the first to the next one; compaction and transactions leave fewer records.
    `size_bytes` is the size of the topic's log: null in a RocketMQ store, whose topics share one log.
    """
    names, sizes = await asyncio.gather(client.topics(), _log_sizes(client))
    at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)
    rows = [
        row
        for row in await asyncio.gather(*(_counted(client, name, at_once) for name in names))
        if row is not None
    ]
    for row in rows:
        row["size_bytes"] = sizes.get(str(row["topic"]))
    if output == TABLE:
        write_rows([[_readable(row) for row in rows]], output)
    else:
        write_rows([rows], output)


async def _counted(
    client: LogClient, name: str, at_once: asyncio.Semaphore
) -> dict[str, object] | None:
    """Return the row of a topic; None if it was deleted meanwhile. Records are None if a partition cannot be read."""
    async with at_once:
        try:
            partitions = (await client.topic(name)).partitions
        except ServerRefused as error:
            if error.status != NOT_FOUND:
                raise
            return None
        records: int | None = 0
        for partition in partitions:
            try:
                held = await client.offsets(name, partition)
            except ServerRefused:
                records = None
                break
            records = (records or 0) + held.end_offset - held.beginning_offset
    return {"topic": name, "partitions": len(partitions), "records": records}


async def _log_sizes(client: LogClient) -> dict[str, int]:
    """Return the bytes of each topic's log files; none if the topics share one log, or the server has no files."""
    sizes: dict[str, int] = {}
    try:
        async for file in client.files():
            if file.kind == LOG_FILE and file.topic is not None:
                sizes[file.topic] = sizes.get(file.topic, 0) + file.size_bytes
    except ServerRefused:  # a store in memory; the rest of the list is complete without sizes
        return {}
    return sizes


def _readable(row: Mapping[str, object]) -> dict[str, object]:
    """Return the row for a table: the size with its unit."""
    size = row["size_bytes"]
    shown = {name: value for name, value in row.items() if name != "size_bytes"}
    return {**shown, "size": size_text(size) if isinstance(size, int) else None}


@command.command(short_help="Create a topic.")
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


@command.command(short_help="Show configs and offsets of a topic.")
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


@command.command("add-partitions")
@name_argument
@click.argument("count", metavar="COUNT", type=click.IntRange(min=1))
@online
async def add_partitions(client: LogClient, name: str, *, count: int) -> None:
    """Raise a topic's number of partitions to COUNT.

    Records stay where they are. Records with a key may go to other partitions from now on.
    """
    await client.add_partitions(name, count)


@command.command("delete-records", short_help="Delete the first records of a partition.")
@name_argument
@click.option("--partition", type=click.IntRange(min=0), required=True, help="Of this partition.")
@click.option(
    "--before",
    "before_offset",
    type=click.IntRange(min=0),
    required=True,
    help="Delete the records below this offset.",
)
@output_option
@online
async def delete_records(
    client: LogClient, name: str, *, partition: int, before_offset: int, output: str
) -> None:
    """Delete the first records of a partition (Kafka stores only), and show the offsets that are left."""
    left = await client.delete_records(name, partition, before_offset)
    row = {"partition": partition, "earliest": left.beginning_offset, "latest": left.end_offset}
    write_rows([[row]], output)


@command.command()
@name_argument
@online
async def delete(client: LogClient, name: str) -> None:
    """Delete a topic and all its records."""
    await client.delete_topic(name)
