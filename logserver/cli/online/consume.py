"""`logserver consume` and `logserver tail`: print records as they arrive, with kcat's options.

Owns the options, and the start and end of a reading, alone or as a member of a group; must not know how records are
formatted and written (`consume_output`).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from logserver.cli.failures import FINDINGS
from logserver.cli.online.consume_output import (
    Printer,
    Show,
    as_json,
    as_line,
    by_format,
    until_reader_closes,
)
from logserver.cli.online.options import (
    OFFSET_NAMES,
    READING_NAMES,
    STORED,
    Command,
    complete_topics,
    online,
    partition_option,
    start_option,
)
from logserver.client import (
    FetchedPage,
    FetchedRecord,
    GroupConsumer,
    LogClient,
    ServerRefused,
)
from storage import Isolation, TopicPartition
from storage.display import one_line

TAIL_RECORDS: Final = 10
POLL_MS: Final = 1000


class Watch:
    """A view of the pages as they arrive, for the end of a reading. This one prints everything and never ends it."""

    def select(self, page: FetchedPage) -> Sequence[FetchedRecord]:
        """Return the records to print."""
        return page.records

    def is_over(self, page: FetchedPage) -> bool:
        """Return whether the reading ends after this page; called when the records of the page are printed."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The records to read, the end of the reading, and the form of a printed record.

    `start`: the client's value for an offset, or `STORED`. `pattern`: topics of a group by a regular expression, in
    place of `topics`.
    """

    topics: Sequence[str]
    start: int | str
    show: Show
    pattern: str | None = None
    partition: int | None = None
    at_end: bool = False
    count: int | None = None
    tag: str | None = None
    isolation: Isolation | None = None
    skips: bool = False
    watch: Watch = field(default_factory=Watch)


def _options(
    start: str, names: Mapping[str, str], topic: str = "Topic."
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of both commands. `start` is the default start of a reading, `names` are
    the words for a start, `topic` is the help of -t.
    """
    options: list[Callable[[Command], Command]] = [
        click.option(
            "-t",
            "--topic",
            "topics",
            metavar="TOPIC",
            required=True,
            multiple=True,
            help=topic,
            shell_complete=complete_topics,
        ),
        partition_option,
        start_option(
            "-o",
            "start",
            names=names,
            default=start,
            show_default=True,
            about="Where to begin",
        ),
        click.option("-e", "at_end", is_flag=True, help="Exit at the end instead of waiting."),
        click.option(
            "-c", "count", type=click.IntRange(min=1), help="Exit after this number of records."
        ),
        click.option(
            "-f", "template", metavar="FORMAT", help="kcat's: %t %p %o %k %s %h %T %S %K %R %%."
        ),
        click.option("-J", "--json", "is_json", is_flag=True, help="JSON, also on a terminal."),
        click.option(
            "-Z", "shows_null", is_flag=True, help="Print NULL for a null key or value (with -f)."
        ),
        click.option(
            "--isolation",
            type=click.Choice([kind.value for kind in Isolation]),
            callback=lambda _ctx, _param, value: None if value is None else Isolation(value),
            help="read_committed: leave out records of open and aborted transactions.",
        ),
        click.option("-T", "--tag", metavar="TAG", help="Only records with this tag."),
        click.option(
            "--skip-damaged",
            "skips",
            is_flag=True,
            help="Continue after damage in the store; the skipped offsets are printed, and the exit code is 1.",
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command("consume", epilog=r"Example: logserver consume -t orders -e -f '%o %k: %s\n'")
@_options("beginning", READING_NAMES, "Topic (with -G: may be repeated).")
@click.option("-G", "--group", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option(
    "--invisible",
    "invisible_ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help="With -G: acknowledge each record when it is printed; the server delivers it again after this time.",
)
@click.option(
    "--broadcast",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="With -G: read all partitions, and keep the offsets in this folder instead of on the server.",
)
@online
async def command(
    client: LogClient,
    *,
    group: str | None,
    invisible_ms: int | None,
    broadcast: Path | None,
    **options: Any,
) -> None:
    """Print a topic's records from the beginning, then new records as they arrive, until Ctrl-C.

    Prints JSON lines in a pipe, one line of text per record on a terminal, or the format of -f. With -G the printed
    records are committed, -o is the start of a group without committed offsets, and -e exits after a second without a
    record.
    """
    reading = _reading(**options)
    if invisible_ms is not None and broadcast is not None:
        raise click.UsageError("--invisible and --broadcast exclude each other")
    if group is None:
        if invisible_ms is not None or broadcast is not None:
            raise click.UsageError("--invisible and --broadcast need a group: give -G")
        await read(client, reading)
    else:
        await read_as_member(client, group, reading, invisible_ms=invisible_ms, broadcast=broadcast)


@click.command("tail")
@_options(f"-{TAIL_RECORDS}", OFFSET_NAMES)
@online
async def tail(client: LogClient, **options: Any) -> None:
    """Print the last records of each partition, then new records as they arrive, until Ctrl-C."""
    await read(client, _reading(**options))


async def read(client: LogClient, reading: Reading) -> None:
    """Print the records of one topic, without a group."""
    if reading.start == STORED:
        raise click.UsageError("-o stored needs a group: give -G")
    if len(reading.topics) > 1:
        raise click.UsageError("several topics need a group: consume -G")
    printer = Printer(reading.show, reading.count)
    skipped = _Skipped()
    pages = client.pages(
        reading.topics[0],
        reading.partition,
        reading.start,
        follow=not reading.at_end,
        tag=reading.tag,
        isolation=reading.isolation,
        on_damage=skipped.report if reading.skips else None,
    )
    async with _hint(), until_reader_closes(), aclosing(pages):
        async for page in pages:
            # A reading that its count ends has not reached the end of the partition, which `is_over` would report.
            if printer.write(reading.watch.select(page)) or reading.watch.is_over(page):
                break
    skipped.end()


async def read_as_member(
    client: LogClient,
    group: str,
    reading: Reading,
    *,
    invisible_ms: int | None = None,
    broadcast: Path | None = None,
) -> None:
    """Read as a member of a group. Exactly the printed records are committed, or acknowledged with `invisible_ms`.

    `broadcast`: read all partitions, and keep the offsets in this folder.
    """
    if reading.start not in READING_NAMES.values():
        raise click.UsageError("with -G, -o is beginning, end or stored")
    if reading.tag is not None:
        raise click.UsageError("-T and -G exclude each other: a group reads everything")
    printer = Printer(reading.show, reading.count)
    skipped = _Skipped()
    reader = _member(client, group, reading, invisible_ms, broadcast)
    async with _hint(), until_reader_closes(), reader as consumer:
        while True:
            try:
                records = await consumer.poll(timeout_ms=POLL_MS, max_records=printer.left)
            except ServerRefused as error:
                place, following = _place(error), error.next_good_offset
                if not reading.skips or place is None or following is None:
                    raise
                skipped.report(error)
                await consumer.seek({place: following})
                continue
            is_full = printer.write(records)
            if invisible_ms is None:
                await consumer.commit()
            else:
                await consumer.ack(records)
            if is_full or (reading.at_end and not records):
                break
    skipped.end()


def _member(
    client: LogClient,
    group: str,
    reading: Reading,
    invisible_ms: int | None,
    broadcast: Path | None,
) -> GroupConsumer:
    """Return the consumer that the options describe."""
    reset = "earliest" if reading.start == STORED else str(reading.start)
    number = reading.partition
    if broadcast is not None:
        if number is not None or reading.pattern is not None:
            raise click.UsageError("--broadcast reads all partitions of the topics of -t")
        return client.broadcast(
            group, reading.topics, broadcast, offset_reset=reset, isolation=reading.isolation
        )
    return client.consumer(
        group,
        reading.topics,
        pattern=reading.pattern,
        partitions=[
            TopicPartition(topic, number) for topic in reading.topics if number is not None
        ],
        offset_reset=reset,
        isolation=reading.isolation,
        invisible_ms=invisible_ms,
    )


@asynccontextmanager
async def _hint() -> AsyncIterator[None]:
    """Add to the error of damaged data how the rest can be read."""
    try:
        yield
    except ServerRefused as error:
        if error.next_good_offset is None:
            raise
        message = f"{error.message}; to continue after it, give --skip-damaged"
        raise ServerRefused(
            message, status=error.status, error_code=error.error_code, answer=error.facts()
        ) from error


class _Skipped:
    """Damage that was skipped: a line on standard error for each place, and the exit code."""

    def __init__(self) -> None:
        self._is_empty = True

    def report(self, error: ServerRefused) -> None:
        """Print which offsets are skipped."""
        facts = error.facts()
        place, following = _place(error) or "an unknown partition", error.next_good_offset
        first = facts.get("offset")
        offsets = f"before offset {following}"
        if isinstance(first, int) and following is not None:
            offsets = f"offsets {first} to {following - 1}"
        line = f"skipped: {place} {offsets}: {error.message} [{error.error_code}]"
        click.echo(one_line(line), err=True)
        self._is_empty = False

    def end(self) -> None:
        """End the command with the exit code of findings, if anything was skipped."""
        if not self._is_empty:
            click.get_current_context().exit(FINDINGS)


def _place(error: ServerRefused) -> TopicPartition | None:
    facts = error.facts()
    topic, partition = facts.get("topic"), facts.get("partition")
    if isinstance(topic, str) and isinstance(partition, int):
        return TopicPartition(topic, partition)
    return None


def _reading(*, template: str | None, is_json: bool, shows_null: bool, **options: Any) -> Reading:
    """Return the reading that the options of `consume` and `tail` describe."""
    show = _shown(template=template, is_json=is_json, shows_null=shows_null)
    return Reading(show=show, **options)


def _shown(*, template: str | None, is_json: bool, shows_null: bool) -> Show:
    if template is not None:
        if is_json:
            raise click.UsageError("-f and -J exclude each other")
        return by_format(template, null=b"NULL" if shows_null else b"")
    return as_line if sys.stdout.isatty() and not is_json else as_json
