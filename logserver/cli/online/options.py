"""Options and start of the commands for a running server: its address, the token, and the client.

Owns these options and the creation of a client from them; must not know the requests of a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import update_wrapper
from typing import Any, Final, TypeAlias

import click

from logserver.cli.auth_options import Access, access_options
from logserver.client import LogClient
from storage.errors import InvalidArgument

DEFAULT_URL: Final = "http://127.0.0.1:8082"
URL_VARIABLE: Final = "LOGSERVER_URL"

OnlineCommand: TypeAlias = Callable[..., Coroutine[Any, Any, None]]
Command: TypeAlias = Callable[..., Any]


server_option: Final = click.option(
    "--server",
    metavar="URL",
    default=DEFAULT_URL,
    envvar=URL_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="The server's address.",
)
topic_option: Final = click.option("-t", "--topic", metavar="TOPIC", required=True, help="Topic.")
partition_option: Final = click.option(
    "-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)


def online(command: OnlineCommand) -> Command:
    """Wrap a coroutine as a command: it gets a client of the server as its first argument."""

    def run(*arguments: Any, server: str, access: Access, **options: Any) -> None:
        run_with_client(server, access, lambda client: command(client, *arguments, **options))

    return server_option(access_options(update_wrapper(run, command)))


def client_of(url: str, access: Access) -> LogClient:
    """Return a client with the credentials given in the options."""
    return LogClient(url, access.token(), tls=access.tls())


def run_with_client(
    url: str, access: Access, command: Callable[[LogClient], Coroutine[Any, Any, None]]
) -> None:
    """Run a coroutine with a client; an interrupt cancels the coroutine, so that it can clean up."""

    async def run() -> None:
        async with client_of(url, access) as client:
            await command(client)

    asyncio.run(run())


def parse_pairs(texts: Sequence[str], what: str) -> list[tuple[str, str]]:
    """Parse NAME=VALUE texts. Raises InvalidArgument, which names `what` the texts are."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{what} {text!r} is not NAME=VALUE", field=what)
        pairs.append((name, value))
    return pairs
