"""`logserver transaction`: the transactions of a running server.

Owns the rows that are printed; must not know the rules of a transaction, which are the server's. `logserver produce
--transaction ID` sends its records.
"""

from __future__ import annotations

import click

from logserver.cli.online.options import online
from logserver.cli.output import Row, output_option, write_rows
from logserver.client import BegunTransaction, ListedTransaction, LogClient

id_argument = click.argument("transaction", metavar="ID")


@click.group("transaction")
def command() -> None:
    """List, begin, commit and roll back transactions of a running server."""


@command.command("list", short_help="List transactional ids or open transactions.")
@click.option(
    "--state", metavar="STATE", help="Only those in this state, such as Ongoing or unknown."
)
@output_option
@online
async def list_transactions(client: LogClient, *, state: str | None, output: str) -> None:
    """List the transactional ids, each with its newest transaction; on RocketMQ's format the open transactions."""
    write_rows([[_row(listed) for listed in await client.transactions(state)]], output)


@command.command(short_help="Begin a transaction and print its id.")
@click.option(
    "-n",
    "--name",
    metavar="NAME",
    help="The transactional id: an open transaction of an earlier producer is rolled back. RocketMQ's format: the "
    "group of the producers.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help="Roll it back after so many milliseconds; on RocketMQ's format it is unknown then.",
)
@output_option
@online
async def begin(
    client: LogClient, *, name: str | None, timeout_ms: int | None, output: str
) -> None:
    """Begin a transaction and print its id, for `produce --transaction`."""
    begun = await client.begin_transaction(name, timeout_ms=timeout_ms)
    write_rows([[_begun(begun)]], output)


@command.command()
@id_argument
@online
async def commit(client: LogClient, transaction: str) -> None:
    """Commit a transaction."""
    await client.commit_transaction(transaction)


@command.command()
@id_argument
@online
async def rollback(client: LogClient, transaction: str) -> None:
    """Roll a transaction back."""
    await client.rollback_transaction(transaction)


def _begun(begun: BegunTransaction) -> Row:
    if begun.producer_id is None:
        return {"id": begun.id}
    return {"id": begun.id, "producer_id": begun.producer_id, "epoch": begun.epoch}


def _row(listed: ListedTransaction) -> Row:
    return {
        "id": listed.id,
        "transactional_id": listed.transactional_id,
        "state": listed.state,
        "timeout_ms": listed.timeout_ms,
        "started_ms": listed.started_ms,
        "partitions": " ".join(f"{at.topic}-{at.partition}" for at in listed.partitions),
        **({} if listed.checks is None else {"messages": listed.messages, "checks": listed.checks}),
    }
