"""`logserver group`: the consumer groups of a running server.

Owns the rows that are printed; must not know a group's rules, which are the server's.
"""

from __future__ import annotations

import click

from logserver.cli.online.options import OFFSET_NAMES, online, start_option
from logserver.cli.output import TABLE, Row, output_option, write_document, write_rows
from logserver.client import GroupPartition, LogClient
from storage.display import one_line

name_argument = click.argument("name", metavar="GROUP")


@click.group("group")
def command() -> None:
    """List, show, reset and delete consumer groups of a running server, and hand messages back to them."""


@command.command("list")
@output_option
@online
async def list_groups(client: LogClient, *, output: str) -> None:
    """List the groups that have members or committed offsets."""
    write_rows([[{"group": name} for name in await client.groups()]], output)


@command.command(short_help="Show members, offsets and lag of a group.")
@name_argument
@output_option
@online
async def show(client: LogClient, name: str, *, output: str) -> None:
    """Show the members of a group, and offsets and lag of each partition."""
    group = await client.group(name)
    rows = [_row(partition) for partition in group.partitions]
    members = [member.instance_id for member in group.members]
    if output != TABLE:
        shown = {"group": group.name, "lag": group.lag, "members": members, "partitions": rows}
        write_document(shown, output)
        return
    click.echo(one_line(f"{group.name}  lag {group.lag}, members {len(members)}"))
    write_rows([rows], output)


@command.command(short_help="Set the committed offsets of a group.")
@name_argument
@start_option(
    "--to",
    "start",
    names=OFFSET_NAMES,
    takes_last=False,
    required=True,
    about="The next offset to read",
)
@click.option("-t", "--topic", metavar="TOPIC", help="Only this topic.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Only this partition of the topic; may be repeated.",
)
@output_option
@online
async def reset(
    client: LogClient,
    name: str,
    *,
    start: int | str,
    topic: str | None,
    partitions: tuple[int, ...],
    output: str,
) -> None:
    """Set the committed offsets of a group without members, and print them."""
    if partitions and topic is None:
        raise click.UsageError("-p needs -t: give the topic too")
    offsets = await client.reset_group(name, start, topic=topic, partitions=partitions or None)
    rows = [
        {"topic": place.topic, "partition": place.partition, "committed": offset}
        for place, offset in offsets.items()
    ]
    write_rows([rows], output)


@command.command()
@name_argument
@online
async def delete(client: LogClient, name: str) -> None:
    """Delete the committed offsets of a group without members."""
    await client.delete_group(name)


@command.command(short_help="Hand a message back to a group.")
@name_argument
@click.argument("message", metavar="MESSAGE_ID")
@click.option(
    "--delay-level",
    type=click.IntRange(min=1),
    metavar="N",
    help="Deliver it after the delay of this level instead of the group's next one (RocketMQ).",
)
@click.option("--dead", is_flag=True, help="Make it a dead letter at once.")
@output_option
@online
async def retry(
    client: LogClient,
    name: str,
    message: str,
    *,
    delay_level: int | None,
    dead: bool,
    output: str,
) -> None:
    """Hand a message back to a group, which gets it again, and print where it is stored."""
    if dead and delay_level is not None:
        raise click.UsageError("--dead and --delay-level exclude each other: give one of them")
    sent = await client.hand_back(name, message, delay_level=delay_level, dead=dead)
    row = {
        "message_id": sent.message_id,
        "topic": sent.topic,
        "partition": sent.partition,
        "times": sent.times,
        "dead": sent.dead,
        "delay_level": sent.delay_level,
        "deliver_at_ms": sent.deliver_at_ms,
    }
    write_rows([[row]], output)


@command.command(short_help="Show or change the retries of a group.")
@name_argument
@click.option(
    "--max-times",
    type=click.IntRange(min=-1),
    metavar="N",
    help="Set the number of retries before a message is a dead letter (RocketMQ).",
)
@output_option
@online
async def retries(client: LogClient, name: str, *, max_times: int | None, output: str) -> None:
    """Show how many retries a group has, and the topics of its retries and dead letters."""
    if max_times is None:
        found = await client.group_retries(name)
    else:
        found = await client.change_group_retries(name, max_times)
    row = {
        "group": name,
        "max_times": found.max_times,
        "retry_topic": found.retry_topic,
        "dead_letter_topic": found.dead_letter_topic,
    }
    write_rows([[row]], output)


def _row(partition: GroupPartition) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": partition.committed,
        "latest": partition.end_offset,
        "lag": partition.lag,
        "member": partition.instance_id,
    }
