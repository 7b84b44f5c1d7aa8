"""A fetch: read a page of a partition, wait for new records, read again.

Owns the meaning of a fetch's start, how a read skips offsets without a record for the reader (control records, aborted
transactions, other tags), when a page is enough, and the tasks that wait. The functions `read_*` block and run in a
thread; use `Waiters` and `poll` on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, TypeVar

from msgspec import structs

from logserver.errors import Busy
from logserver.service.requests import Fetch, Start, StartAt
from storage import (
    Batches,
    Isolation,
    LogStore,
    OffsetBounds,
    Page,
    PromptBatches,
    StoredRecord,
    TopicPartition,
    batches_of,
)
from storage.errors import NotOffered

SomePage = TypeVar("SomePage", Page, Batches)

# Size in bytes that a header adds to an answer, without its own bytes, which may be none.
HEADER_BYTES: Final = 32

# Number of pages without a record for this reader that one read skips before it returns.
MAX_EMPTY_PAGES: Final = 64


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[SomePage]):
    """A page and the offset it was read from.

    `size_bytes`: the size of keys and values, or of batches. `more`: whether more records follow the page.
    """

    page: SomePage
    begin: int
    size_bytes: int
    more: bool


class Waiters:
    """Counted publishes per partition, and the tasks that wait for the next publish: at most `limit`.

    A reader takes a ticket and reads. If the page is not enough, it waits for a publish after its ticket, so it misses
    no publish in between. A publish wakes all waiters of its partition at once.

    `closed`: the server stops, so no task waits any more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes = 0  # of all partitions; a partition stores the number of its last change
        self._published: dict[TopicPartition, int] = {}
        self._forgotten = 0  # the last change that removed a partition
        self._waiting: dict[TopicPartition, asyncio.Future[None]] = {}
        self.closed = False
        self.count = 0

    def ticket(self, partition: TopicPartition) -> int:
        """Return a ticket for `changed`; take it before reading."""
        return self._published.get(partition, self._forgotten)

    def notify(self, partition: TopicPartition) -> None:
        """Count a publish of this partition, and wake all waiters."""
        self._changes += 1
        self._published[partition] = self._changes
        self._wake(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Forget a deleted partition, and wake all waiters.

        The tickets of all partitions without a publish change, so their readers read once more.
        """
        self._changes += 1
        self._forgotten = self._changes
        self._published.pop(partition, None)
        self._wake(partition)

    def _wake(self, partition: TopicPartition) -> None:
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            waiting.set_result(None)

    async def changed(
        self,
        tickets: Mapping[TopicPartition, int],
        timeout_s: float,
        *,
        or_done: asyncio.Future[None] | None = None,
    ) -> bool:
        """Wait for a publish in one of these partitions after its ticket was taken. Return False if the time expires
        or the server stops.

        `or_done` ends the wait like a publish. Raises Busy if too many tasks wait already.
        """
        if self.closed:
            return False
        if any(self.ticket(partition) != ticket for partition, ticket in tickets.items()):
            return True
        if self.count >= self._limit:
            raise Busy(
                f"{self.count} fetches wait for records, the limit is {self._limit} "
                "(max_waiting_fetches): try again later"
            )
        waiting = [self._next_publish(partition) for partition in tickets]
        if or_done is not None:
            waiting.append(or_done)
        self.count += 1
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self.count -= 1
        return bool(done) and not self.closed

    def _next_publish(self, partition: TopicPartition) -> asyncio.Future[None]:
        """Return the future that all waiters of a partition share."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = asyncio.get_running_loop().create_future()
        return waiting

    def close(self) -> None:
        """Wake all waiters; no task can wait any more."""
        self.closed = True
        for waiting in self._waiting.values():
            waiting.set_result(None)
        self._waiting.clear()


async def poll(
    request: Fetch, read: Callable[[Fetch], Awaitable[ReadResult[SomePage]]], waiters: Waiters
) -> SomePage:
    """Read; until `min_bytes` are available or the timeout expires, wait for new records and read again.

    Raises what `read` raises, and Busy if too many requests wait. May be cancelled.
    """
    now = asyncio.get_running_loop().time
    deadline_s = now() + request.timeout_ms / 1000
    while True:
        tickets = {request.partition: waiters.ticket(request.partition)}
        result = await read(request)
        if result.more or result.size_bytes >= max(request.min_bytes, 1):
            return result.page
        left_s = deadline_s - now()
        if left_s <= 0 or (request.until is not None and request.until.done()):
            return result.page
        if not await waiters.changed(tickets, left_s, or_done=request.until):
            return result.page
        begin = result.begin if result.size_bytes else result.page.next_offset
        request = structs.replace(request, start=Start(StartAt.OFFSET, begin))


def read_page(store: LogStore, request: Fetch) -> ReadResult[Page]:
    """Read records from the start on. Raises what LogStore.read raises."""
    begin = _begin(store, request)
    page = _matching(store, request, begin)
    more = page.next_offset < visible_end(page.bounds, request.isolation)
    for _ in range(MAX_EMPTY_PAGES):
        if page.records or not more:
            break
        page = _matching(store, request, page.next_offset)
        more = page.next_offset < visible_end(page.bounds, request.isolation)
    sizes = [len(record.value or b"") + len(record.key or b"") for record in page.records]
    size_bytes = sum(sizes)
    return ReadResult(page, begin, max(size_bytes, len(page.records)), more)


def _matching(store: LogStore, request: Fetch, offset: int) -> Page:
    page = store.read(
        request.partition,
        offset,
        max_records=request.max_records,
        max_bytes=request.max_bytes,
        isolation=request.isolation,
    )
    if request.tag is not None:
        records = [record for record in page.records if record.tag == request.tag]
        page = page._replace(records=records)
    return _cut(page, request.max_bytes)


def _cut(page: Page, max_bytes: int) -> Page:
    """Return a page of at most `max_bytes`, headers included, but at least one record.

    The store counts bytes as stored, and a million headers can be small there.
    """
    sizes = record_sizes(page.records)
    if sum(sizes) <= max_bytes:
        return page
    fitting = sum(total_bytes <= max_bytes for total_bytes in accumulate(sizes)) or 1
    if fitting == len(sizes):
        return page
    records = page.records[:fitting]
    return page._replace(records=records, next_offset=page.records[fitting].offset)


def record_sizes(records: Sequence[StoredRecord]) -> list[int]:
    """Return the approximate size of each record in an answer, without a loop over its headers."""
    return [
        len(record.value or b"") + len(record.key or b"") + len(record.headers) * HEADER_BYTES
        for record in records
    ]


def read_batch_page(store: LogStore, request: Fetch) -> ReadResult[Batches]:
    """Read whole batches from the batch that contains the start. Raises what `read_batches` raises, and NotOffered."""
    batches = batches_of(store)
    if batches is None:
        raise NotOffered(
            f"backend {store.capabilities.backend} hands out no record batches", feature="batches"
        )
    begin = _begin(store, request)
    page = batches.read_batches(
        request.partition, begin, max_bytes=request.max_bytes, isolation=request.isolation
    )
    more = page.next_offset < visible_end(page.bounds, request.isolation)
    return ReadResult(page, begin, len(page.data), more)


def read_batches_promptly(
    store: LogStore, prompt: PromptBatches, request: Fetch
) -> ReadResult[Batches] | None:
    """Read what `read_batch_page` reads, on the event loop. Return None if a thread has to read it."""
    if request.start.at is StartAt.TIME:
        return None
    begin = _begin(store, request)
    view = prompt.read_batches_promptly(
        request.partition, begin, max_bytes=request.max_bytes, isolation=request.isolation
    )
    if view is None:
        return None
    more = view.next_offset < visible_end(view.bounds, request.isolation)
    return ReadResult(view, begin, len(view.data), more)


def _begin(store: LogStore, request: Fetch) -> int:
    """Return the current offset of the request's start."""
    at, value = request.start
    if at is StartAt.OFFSET:
        return value
    if at is StartAt.TIME:
        record = store.offset_for_time(request.partition, value)
        if record is not None:
            return record.offset
    bounds = store.bounds(request.partition)
    end = visible_end(bounds, request.isolation)
    if at is StartAt.EARLIEST:
        return bounds.start
    return max(bounds.start, end - value) if at is StartAt.LAST else end


def visible_end(bounds: OffsetBounds, isolation: Isolation) -> int:
    """Return the end of the offsets that a reader of this isolation may see (exclusive)."""
    return bounds.stable if isolation is Isolation.READ_COMMITTED else bounds.end
