"""A fetch over many partitions: read them all in one hop, wait for a publish in any of them, read again.

Owns the share of each partition in the bytes of one answer, and when an answer is enough. Must not know a protocol.
`read_many` blocks and runs in a thread; use `poll_many` on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from logserver.service.fetch import Waiters
from storage import (
    BatchPage,
    ClientBatches,
    Isolation,
    StorageError,
    TopicPartition,
)

MIN_READ_BYTES: Final = 1
"""The size of a read when the answer has no bytes left: the store returns no less than one batch."""


class PartitionFetch(NamedTuple):
    """The part of one partition: batches from `offset` on, at most `max_bytes` unless the first batch is larger."""

    partition: TopicPartition
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMany:
    """A fetch over partitions, in the order in which they may use the bytes of the answer.

    With `timeout_ms` wait until `min_bytes` are available. The first batch of an answer is returned even if it is
    larger than `max_bytes`. Partitions after the byte limit get an empty page.
    """

    partitions: Sequence[PartitionFetch]
    max_bytes: int
    min_bytes: int = 1
    timeout_ms: int = 0
    isolation: Isolation = Isolation.READ_UNCOMMITTED


class PartitionPage(NamedTuple):
    """The result of one partition: a page, or the error of its read."""

    page: BatchPage | None
    error: StorageError | None = None


class ReadMany(NamedTuple):
    """The pages in the order of the request, and their size. `urgent`: a page has an error, so nothing waits."""

    pages: Sequence[PartitionPage]
    size_bytes: int
    urgent: bool


async def poll_many(
    request: FetchMany, read: Callable[[FetchMany], Awaitable[ReadMany]], waiters: Waiters
) -> Sequence[PartitionPage]:
    """Read; until `min_bytes` are available, a read fails or the timeout expires, wait and read again.

    Raises Busy if too many requests wait. May be cancelled.
    """
    now = asyncio.get_running_loop().time
    deadline_s = now() + request.timeout_ms / 1000
    while True:
        tickets = {part.partition: waiters.ticket(part.partition) for part in request.partitions}
        result = await read(request)
        if result.urgent or result.size_bytes >= request.min_bytes:
            return result.pages
        left_s = deadline_s - now()
        if left_s <= 0:
            return result.pages
        if not tickets:
            await asyncio.sleep(left_s)
            return result.pages
        if not await waiters.changed(tickets, left_s):
            return result.pages


def read_many(batches: ClientBatches, request: FetchMany) -> ReadMany:
    """Read a page of each partition."""
    pages: list[PartitionPage] = []
    size_bytes = 0
    urgent = False
    for part in request.partitions:
        left_bytes = request.max_bytes - size_bytes
        try:
            page = _unread(batches, part) if left_bytes <= 0 and size_bytes else None
            page = page or _page(batches, part, left_bytes, request, is_first=size_bytes == 0)
        except StorageError as error:
            pages.append(PartitionPage(None, error))
            urgent = True
            continue
        size_bytes += len(page.data)
        pages.append(PartitionPage(page))
    return ReadMany(pages, size_bytes, urgent)


def _unread(batches: ClientBatches, part: PartitionFetch) -> BatchPage | None:
    """Return an empty page without a read, for an answer that is full; None for an offset that a read refuses."""
    bounds = batches.bounds(part.partition)
    if not bounds.start <= part.offset <= bounds.end:
        return None
    return BatchPage(b"", part.offset, bounds)


def _page(
    batches: ClientBatches,
    part: PartitionFetch,
    left_bytes: int,
    request: FetchMany,
    *,
    is_first: bool,
) -> BatchPage:
    """Return a page that fits into the bytes that are left; the first page of an answer has at least one batch."""
    limit_bytes = max(min(part.max_bytes, left_bytes), MIN_READ_BYTES)
    page = batches.read_batches(
        part.partition, part.offset, max_bytes=limit_bytes, isolation=request.isolation
    )
    if len(page.data) > left_bytes and not is_first:
        return page._replace(data=b"", next_offset=part.offset, aborted=())
    return page
