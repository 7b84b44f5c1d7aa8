"""`logserver find URL` and `logserver offsets URL`: the requests of these commands to a running server.

Owns the conversion of their options to client calls and of the answers to rows; must not define the options, which are
in the modules of the commands, because both commands also read files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import click

from logserver.cli.auth_options import Access
from logserver.cli.failures import report_error
from logserver.cli.online.consume_output import row
from logserver.cli.online.options import client_of, run_with_client
from logserver.cli.output import TABLE, Row, within_limit, write_document, write_rows
from logserver.client import FetchedRecord, LogClient, MessagesFound, ServerRefused
from logserver.errors import DAMAGED
from storage import FindQuery

Report: TypeAlias = Callable[[ServerRefused], None]

PAGE_RECORDS: Final = 500
_NO_RECORD: Final = 40404


class Partitions(NamedTuple):
    """The selected partitions, and a time (None: first and next offset)."""

    topic: str | None
    partition: int | None
    time_ms: int | None


def find(url: str, query: FindQuery, *, access: Access, output: str) -> None:
    """Print the records of a server that match a query, page by page. Damage is reported and skipped; it makes the exit
    code 1.
    """
    query.check()
    if query.raw:
        raise click.UsageError("--raw reads files: give a PATH")
    ctx = click.get_current_context()
    codes: list[int] = []

    def report(damage: ServerRefused) -> None:
        codes.append(report_error(damage, ctx))

    rows = _rows(client_of(url, access), query, report)
    write_rows(within_limit(rows, query.limit, output), output)
    if codes:
        ctx.exit(codes[0])


def _rows(client: LogClient, query: FindQuery, report: Report) -> Iterator[Sequence[Row]]:
    left = query.limit
    with asyncio.Runner() as runner:
        pages = _pages(client, query, report)
        try:
            while left > 0 and (page := runner.run(_next(pages))) is not None:
                found = [record for record in page if _has_text(record, query)][:left]
                left -= len(found)
                yield [row(record) for record in found]
        finally:
            runner.run(client.close())


async def _next(
    pages: AsyncGenerator[Sequence[FetchedRecord], None],
) -> Sequence[FetchedRecord] | None:
    return await anext(pages, None)


async def _pages(
    client: LogClient, query: FindQuery, report: Report
) -> AsyncGenerator[Sequence[FetchedRecord], None]:
    if query.record_id is not None:
        yield await _by_id(client, query.record_id)
        return
    topics = [query.topic] if query.topic is not None else await client.topics()
    ask = partial(
        client.find_pages,
        key=query.key,
        unique_id=query.unique_id,
        tag=query.tag,
        from_ms=query.from_ms,
        to_ms=query.to_ms,
        limit=PAGE_RECORDS if query.grep is not None else min(query.limit, PAGE_RECORDS),
    )
    is_lookup = query.grep is None and (query.key or query.unique_id or query.tag)
    if is_lookup and (await client.store())["backend"] == "rocketmq":
        yield await _newest(partial(ask, backward=True), topics, query.limit, report)
        return
    for topic in topics:
        async for page in _over_damage(partial(ask, topic), report):
            yield page.records


async def _newest(
    ask: Callable[..., AsyncGenerator[MessagesFound, None]],
    topics: Sequence[str],
    limit: int,
    report: Report,
) -> Sequence[FetchedRecord]:
    """Return the newest messages in the order of the log, as a search in a store's files does."""
    found: list[FetchedRecord] = []
    for topic in topics:
        of_topic: list[FetchedRecord] = []
        async with aclosing(_over_damage(partial(ask, topic), report)) as pages:
            async for page in pages:
                of_topic += page.records
                if len(of_topic) >= limit:
                    break
        found += of_topic[:limit]
    found.sort(key=_physical_offset)
    return found[-limit:]


def _physical_offset(message: FetchedRecord) -> int:
    """Return the end of the message id: 16 hexadecimal digits."""
    return int((message.message_id or "")[-16:], 16)


async def _over_damage(
    ask: Callable[..., AsyncGenerator[MessagesFound, None]], report: Report
) -> AsyncGenerator[MessagesFound, None]:
    """Yield the pages of a query, also after damage, which is reported to `report`."""
    cursor: object = None
    while True:
        try:
            async for page in ask(cursor=cursor):
                yield page
        except ServerRefused as error:
            if error.error_code != DAMAGED:
                raise
            report(error)
            cursor = error.facts().get("cursor")
            if cursor is None:
                return
        else:
            return


async def _by_id(client: LogClient, record_id: str) -> Sequence[FetchedRecord]:
    try:
        return [await client.message(record_id)]
    except ServerRefused as error:
        if error.error_code != _NO_RECORD:
            raise
        return []


def _has_text(record: FetchedRecord, query: FindQuery) -> bool:
    keys = (record.properties or {}).get("KEYS", "")  # of a message
    return query.has_text(record.value, record.key, keys.encode())


def offsets(url: str, wanted: Partitions, *, access: Access, output: str) -> None:
    """Print the first and next offsets of a server's partitions, or their first offsets at or after a time."""

    async def ask(client: LogClient) -> None:
        rows = []
        for topic in [wanted.topic] if wanted.topic is not None else await client.topics():
            numbers = [wanted.partition]
            if wanted.partition is None:
                numbers = [*(await client.topic(topic)).partitions]
            rows += [await _row(client, topic, number or 0, wanted.time_ms) for number in numbers]
        if len(rows) == 1 and output != TABLE:
            write_document(rows[0], output)
        else:
            write_rows([rows], output)

    run_with_client(url, access, ask)


async def _row(client: LogClient, topic: str, partition: int, time_ms: int | None) -> Row:
    place = {"topic": topic, "partition": partition}
    held = await client.offsets(topic, partition)
    if time_ms is None:
        return {**place, "earliest": held.beginning_offset, "latest": held.end_offset}
    found = await client.offset_for_time(topic, partition, max(time_ms, 0))
    if found is None:
        return {**place, "offset": held.end_offset, "timestamp": None}
    return {**place, "offset": found.offset, "timestamp": found.timestamp_ms}
