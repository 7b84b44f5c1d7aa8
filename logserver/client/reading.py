"""Continuous reading: records one after the other, from one partition or from several at once.

Owns where reading starts, continues and ends; must not make requests: the client fetches a page. At most one page of
each partition waits to be taken, so memory is bounded even if the reader is slow. Waiting is a long poll. A page says
where to continue after hidden offsets, and a broken connection costs one repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias, TypedDict, Unpack

from logserver.client.calls import RecordCalls
from logserver.client.values import FetchedPage, Start
from logserver.errors import ServerRefused
from storage import Isolation

OnDamage: TypeAlias = Callable[[ServerRefused], None]
"""Called with the server's answer to a read of damaged data, which is then skipped. The facts name partition and
offsets.
"""

POLL_MS: Final = 20_000


class ReadOptions(TypedDict, total=False):
    """The options of `LogClient.records` and `LogClient.pages`."""

    follow: bool
    tag: str | None
    isolation: Isolation | None
    on_damage: OnDamage | None


async def read_topic(
    calls: RecordCalls,
    topic: str,
    partition: int | None,
    start: Start,
    **options: Unpack[ReadOptions],
) -> AsyncGenerator[FetchedPage, None]:
    """Yield the pages of one partition, or of all partitions of a topic. See LogClient.records."""
    if partition is not None:
        partitions: Sequence[int] = [partition]
    else:
        partitions = (await calls.topic(topic)).partitions
    readings = [read_pages(calls, topic, number, start, **options) for number in partitions]
    several = options.get("follow", False) and len(readings) > 1
    async with aclosing(_merged(readings) if several else _one_by_one(readings)) as pages:
        async for page in pages:
            yield page


async def read_pages(
    calls: RecordCalls,
    topic: str,
    partition: int,
    start: Start,
    **options: Unpack[ReadOptions],
) -> AsyncIterator[FetchedPage]:
    """Yield the pages of one partition, up to its end at the first page, or with `follow` without an end."""
    follow, on_damage = options.get("follow", False), options.get("on_damage")
    tag, isolation = options.get("tag"), options.get("isolation")

    async def fetch(offset: Start, timeout_ms: int = 0) -> FetchedPage:
        """Return the page at an offset, or at the next good offset after damage."""
        while True:
            try:
                return await calls.fetch(
                    topic, partition, offset, timeout_ms=timeout_ms, tag=tag, isolation=isolation
                )
            except ServerRefused as error:
                following = error.next_good_offset
                if on_damage is None or following is None or following == offset:
                    raise
                on_damage(error)
                offset = following

    page = await fetch(start)
    end = page.end_offset
    yield page
    while follow or page.next_offset < end:
        before = page.next_offset
        page = await fetch(before, POLL_MS if follow else 0)
        if not follow and page.next_offset == before:
            return  # an open transaction begins there: reading stops before it
        yield page


async def _one_by_one(
    readings: Sequence[AsyncIterator[FetchedPage]],
) -> AsyncGenerator[FetchedPage, None]:
    for reading in readings:
        async for page in reading:
            yield page


async def _merged(
    readings: Sequence[AsyncIterator[FetchedPage]],
) -> AsyncGenerator[FetchedPage, None]:
    """Yield pages as they arrive, from any reading. An error of one reading ends all."""
    waiting = {asyncio.ensure_future(anext(reading)): reading for reading in readings}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                reading = waiting.pop(task)
                yield task.result()
                waiting[asyncio.ensure_future(anext(reading))] = reading
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
