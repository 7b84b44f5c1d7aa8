"""One read of a partition: the start offset, the page, and its size.

Owns the meaning of a fetch's start, and how a read skips offsets without a record for the reader (control records,
aborted transactions, other tags). Blocking; it runs in a thread and must not know the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, TypeVar

from logserver.service.requests import Fetch, StartAt
from storage import (
    BatchPage,
    Isolation,
    LogStore,
    OffsetBounds,
    Page,
    StoredRecord,
    SupportsBatchBytes,
)
from storage.errors import NotOffered

SomePage = TypeVar("SomePage", Page, BatchPage)

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
    weights = record_sizes(page.records)
    if sum(weights) <= max_bytes:
        return page
    fitting = sum(total_bytes <= max_bytes for total_bytes in accumulate(weights)) or 1
    if fitting == len(weights):
        return page
    records = page.records[:fitting]
    return page._replace(records=records, next_offset=page.records[fitting].offset)


def record_sizes(records: Sequence[StoredRecord]) -> list[int]:
    """Return the approximate size of each record in an answer, without a loop over its headers."""
    return [
        len(record.value or b"") + len(record.key or b"") + len(record.headers) * HEADER_BYTES
        for record in records
    ]


def read_batch_page(store: LogStore, request: Fetch) -> ReadResult[BatchPage]:
    """Read whole batches from the batch that contains the start. Raises what `read_batches` raises, and NotOffered."""
    if not isinstance(store, SupportsBatchBytes):
        raise NotOffered(
            f"backend {store.capabilities.backend} hands out no record batches", feature="batches"
        )
    begin = _begin(store, request)
    page = store.read_batches(
        request.partition, begin, max_bytes=request.max_bytes, isolation=request.isolation
    )
    more = page.next_offset < visible_end(page.bounds, request.isolation)
    return ReadResult(page, begin, len(page.data), more)


def _begin(store: LogStore, request: Fetch) -> int:
    """Return the current offset of the request's start."""
    at, value = request.start
    if at is StartAt.OFFSET:
        return value
    if at is StartAt.TIME:
        found = store.offset_for_time(request.partition, value)
        if found is not None:
            return found.offset
    bounds = store.bounds(request.partition)
    end = visible_end(bounds, request.isolation)
    if at is StartAt.EARLIEST:
        return bounds.start
    return max(bounds.start, end - value) if at is StartAt.LAST else end


def visible_end(bounds: OffsetBounds, isolation: Isolation) -> int:
    """Return the end of the offsets that a reader of this isolation may see (exclusive)."""
    return bounds.stable if isolation is Isolation.READ_COMMITTED else bounds.end
