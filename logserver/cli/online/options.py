"""Options of the commands for a running server: its address, the token, and the start of a reading in kcat's notation.

Owns these options and the creation of a client from them; must not know the requests of a command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from logserver import process_signals
from logserver.cli.auth_options import Access, access_options
from logserver.cli.options import check_address, is_url, parse_time
from logserver.client import LogClient, Retry, ServerRefused
from storage import StorageError
from storage.errors import InvalidArgument, UnknownTopic

DEFAULT_URL: Final = "http://127.0.0.1:8082"
URL_VARIABLE: Final = "LOGSERVER_URL"
ANSWER_S: Final = 30.0  # the longest wait for an answer, as of the client
COMPLETION_S: Final = 5.0  # a server that does not answer must not hold the shell for long

STORED: Final = "stored"
OFFSET_NAMES: Final[Mapping[str, str]] = {"beginning": "earliest", "end": "latest"}
READING_NAMES: Final[Mapping[str, str]] = {**OFFSET_NAMES, STORED: STORED}

OnlineCommand: TypeAlias = Callable[..., Coroutine[Any, Any, None]]
Command: TypeAlias = Callable[..., Any]


def _address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return check_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


server_option: Final = click.option(
    "-b",
    "--server",
    metavar="URL|HOST:PORT",
    default=DEFAULT_URL,
    envvar=URL_VARIABLE,
    show_default=True,
    show_envvar=True,
    callback=_address,
    help="The server's address. HOST:PORT: Kafka's protocol (needs the extra kafka).",
)


def complete_topics(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the topics of the server that begin with this text, for the completion of a shell; none without it."""
    files = (ctx.params.get(name) for name in ("token_file", "ca_file", "cert_file"))
    access = Access(*(None if path is None else Path(path) for path in files))
    url = ctx.params.get("server") or os.environ.get(URL_VARIABLE) or DEFAULT_URL

    async def ask() -> list[str]:
        async with client_of(
            url, access, timeout_s=COMPLETION_S, retry=Retry(attempts=1)
        ) as client:
            return await client.topics()

    try:
        names = asyncio.run(ask())
    except (StorageError, OSError, click.ClickException):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


topic_option: Final = click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    required=True,
    help="Topic.",
    shell_complete=complete_topics,
)
partition_option: Final = click.option(
    "-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)


def start_option(
    *declarations: str,
    names: Mapping[str, str],
    about: str,
    takes_last: bool = True,
    **options: object,
) -> Callable[[Command], Command]:
    """Return an option for a start: a word of `names`, N, -N or @TIME; the command gets the client's value.

    -N counts from the end, which only readings support (`takes_last`).
    """
    forms = ", ".join([*names, "N", *(["-N (the last N)"] if takes_last else [])])

    def parse(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
        if value in names:
            return names[value]
        try:
            if value.startswith("@"):
                return f"@{parse_time(value[1:])}"
            if takes_last or not value.startswith("-"):
                return int(value)
        except ValueError:
            pass
        raise click.BadParameter(f"{value!r} is none of {forms} and @TIME", ctx, param)

    help_text = f"{about}: {forms} or @TIME."
    return click.option(
        *declarations,
        metavar="OFFSET",
        callback=parse,
        help=help_text,
        **options,  # type: ignore[arg-type]  # click's own, named by the callers
    )


def online(command: OnlineCommand) -> Command:
    """Wrap a coroutine as a command: it gets a client of the server as its first argument."""

    def run(*arguments: Any, server: str, access: Access, **options: Any) -> None:
        run_with_client(server, access, lambda client: command(client, *arguments, **options))

    return server_option(access_options(update_wrapper(run, command)))


def client_of(
    url: str,
    access: Access,
    *,
    timeout_s: float = ANSWER_S,
    retry: Retry | None = None,
    properties: Mapping[str, str] | None = None,
) -> LogClient:
    """Return a client with the credentials given in the options: of an HTTP API, or for HOST:PORT of Kafka brokers.
    `properties`: of librdkafka, for these.
    """
    if not is_url(url):
        from logserver.client.kafka.client import KafkaClient  # imports confluent-kafka

        given = {**access.kafka_properties(), **(properties or {})}
        return KafkaClient(url, given, timeout_s=timeout_s)
    return LogClient(url, access.token(), timeout_s=timeout_s, retry=retry, tls=access.tls())


def run_with_client(
    url: str,
    access: Access,
    command: Callable[[LogClient], Coroutine[Any, Any, None]],
    *,
    timeout_s: float = ANSWER_S,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Run a coroutine with a client; Ctrl-C and SIGTERM cancel the coroutine, so that it can clean up.

    If a topic does not exist, the error names the similar ones.
    """

    async def run() -> None:
        async with client_of(url, access, timeout_s=timeout_s, properties=properties) as client:
            try:
                await command(client)
            except ServerRefused as error:
                raise await _with_similar_topics(client, error) from None

    with process_signals.ended_as_interrupted(dies=True):
        asyncio.run(run())


async def _with_similar_topics(client: LogClient, error: ServerRefused) -> ServerRefused:
    topic = str(error.facts().get("topic"))
    if error.message != UnknownTopic(topic).message:
        return error
    try:
        message = UnknownTopic(topic, await client.topics()).message
    except StorageError:  # the token may not list topics
        return error
    return ServerRefused(
        message, status=error.status, error_code=error.error_code, answer=error.facts()
    )


def parse_pairs(texts: Sequence[str], what: str) -> list[tuple[str, str]]:
    """Parse NAME=VALUE texts. Raises InvalidArgument, which names `what` the texts are."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{what} {text!r} is not NAME=VALUE", field=what)
        pairs.append((name, value))
    return pairs
