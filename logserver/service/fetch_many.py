"""A fetch over many partitions: read them all at once, wait for a publish in any of them, read again.

Owns the share of each partition in the bytes of one answer, and when an answer is enough. Must not know a protocol.
`read_many` blocks and runs in a thread; use `poll_many` on the event loop only.

A hop to a thread takes 100 to 150 us of processor time, as long as the read of half a megabyte that is in memory. So
`read_promptly` reads on the loop what waits for no disk, and a thread reads the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from logserver.service.fetch import Waiters
from storage import (
    Batches,
    BatchPage,
    ClientBatches,
    Isolation,
    PromptBatches,
    StorageError,
    TopicPartition,
)

MIN_READ_BYTES: Final = 1
"""The size of a read when the answer has no bytes left: the store returns no less than one batch."""
PROMPT_PARTITIONS: Final = 16
PROMPT_BYTES: Final = 1 << 20
"""A fetch of more partitions, or beyond so many bytes, is read in a thread: on the loop a megabyte takes 0.3 ms."""
PROMPT_S: Final = 0.002
"""After this time a thread reads the other partitions: 256 small batches take as long as three megabytes."""


class _Read(Protocol):
    """A read of batches; None: it has to be made in another thread."""

    def __call__(
        self, partition: TopicPartition, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> Batches | None: ...


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

    page: Batches | None
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


def read_many(
    batches: ClientBatches, request: FetchMany, begun: Sequence[PartitionPage] = ()
) -> ReadMany:
    """Read a page of each partition. `begun`: the pages of the first partitions, which `read_promptly` has read."""
    pages = list(begun)
    _read_on(batches, batches.read_batches, request, pages)
    return _result(pages)


def read_promptly(
    batches: ClientBatches,
    prompt: PromptBatches,
    request: FetchMany,
    clock: Callable[[], float] = perf_counter,
) -> tuple[ReadMany, bool]:
    """Read the pages of the first partitions, as far as no read waits for a disk and none of them is long.

    For the event loop. Return also whether these are all pages.
    """
    pages: list[PartitionPage] = []
    if len(request.partitions) <= PROMPT_PARTITIONS:
        stop_s = clock() + PROMPT_S

        def is_long(size_bytes: int) -> bool:
            return size_bytes >= PROMPT_BYTES or clock() > stop_s

        _read_on(batches, prompt.read_batches_promptly, request, pages, is_long)
    return _result(pages), len(pages) == len(request.partitions)


def _result(pages: Sequence[PartitionPage]) -> ReadMany:
    size_bytes = sum(len(page.page.data) for page in pages if page.page is not None)
    return ReadMany(pages, size_bytes, any(page.error is not None for page in pages))


def _read_on(
    batches: ClientBatches,
    read: _Read,
    request: FetchMany,
    pages: list[PartitionPage],
    is_long: Callable[[int], bool] | None = None,
) -> None:
    """Add the pages of the other partitions, up to the first that `read` leaves to another thread; or until `is_long`
    says that so many bytes, or the time that they took, are enough.
    """
    size_bytes = _result(pages).size_bytes
    for part in request.partitions[len(pages) :]:
        if pages and is_long is not None and is_long(size_bytes):
            return
        left_bytes = request.max_bytes - size_bytes
        try:
            page: Batches | None = None
            if left_bytes <= 0 and size_bytes:
                page = _unread(batches, part)
            if page is None:
                page = _page(read, part, left_bytes, request, is_first=size_bytes == 0)
        except StorageError as error:
            pages.append(PartitionPage(None, error))
            continue
        if page is None:
            return
        size_bytes += len(page.data)
        pages.append(PartitionPage(page))


def _unread(batches: ClientBatches, part: PartitionFetch) -> BatchPage | None:
    """Return an empty page without a read, for an answer that is full; None for an offset that a read refuses."""
    bounds = batches.bounds(part.partition)
    if not bounds.start <= part.offset <= bounds.end:
        return None
    return BatchPage(b"", part.offset, bounds)


def _page(
    read: _Read,
    part: PartitionFetch,
    left_bytes: int,
    request: FetchMany,
    *,
    is_first: bool,
) -> Batches | None:
    """Return a page that fits into the bytes that are left; the first page of an answer has at least one batch."""
    limit_bytes = max(min(part.max_bytes, left_bytes), MIN_READ_BYTES)
    page = read(part.partition, part.offset, max_bytes=limit_bytes, isolation=request.isolation)
    if page is not None and len(page.data) > left_bytes and not is_first:
        return page._replace(data=b"", next_offset=part.offset, aborted=())
    return page
