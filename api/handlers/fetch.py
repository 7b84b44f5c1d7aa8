"""Fetch: records of one partition, from any position, with an optional wait.

Owns the parameters and the answer's headers; must not wait itself: the service does.
"""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from api.description.parameters import (
    FETCH_TIMEOUT,
    FOLLOW,
    FORMAT,
    ISOLATION,
    MAX_BYTES,
    MAX_RECORDS,
    MIN_BYTES,
    OFFSET,
    TAG,
)
from api.handlers.follow import follow
from api.http.caching import cacheable, is_closed
from api.http.negotiation import RECORD_BATCH, RECORD_FORMATS, STREAM_TYPES, Format
from api.records.rendering import encode_page, encode_rows, is_large
from api.request_context import RequestContext
from logserver.service.requests import Fetch
from storage import BatchPage, LogStore, Page, TopicPartition


async def fetch(call: RequestContext) -> web.StreamResponse:
    """Handle GET /topics/{topic}/partitions/{partition}/records."""
    if call.answer_type in STREAM_TYPES:
        return await follow(call)
    request, body_format = _parsed(call)
    # Read before the wait, so that a stop during the wait raises no error.
    store = call.service.store
    page: Page | BatchPage
    if call.answer_type == RECORD_BATCH:
        with call.while_connected():
            page = await call.service.fetch_batches(request)
        body, records = page.data, 0
    else:
        with call.while_connected():
            page = await call.service.fetch(request)
        body = await _rendered(store, request.partition, page, body_format)
        records = len(page.records)
    call.service.metrics.fetched(records=records, size_bytes=len(body))
    headers = {
        "X-Next-Offset": str(page.next_offset),
        "X-Beginning-Offset": str(page.bounds.start),
        "X-End-Offset": str(page.bounds.end),
    }
    if is_closed(request, page):
        return cacheable(call, body, headers)
    return call.encoded(body, headers=headers)


async def _rendered(
    store: LogStore, partition: TopicPartition, page: Page, body_format: Format
) -> bytes:
    if store.capabilities.messages:
        found = [(partition, record) for record in page.records]
        render = partial(encode_rows, found, body_format, store.record_id)
    else:
        render = partial(encode_page, partition, page, body_format)
    return await asyncio.to_thread(render) if is_large(page.records) else render()


def _parsed(call: RequestContext) -> tuple[Fetch, Format]:
    params = call.params()
    params.refuse((FOLLOW,), f"it needs Accept: {' or '.join(STREAM_TYPES)}")
    accepted = RECORD_FORMATS.get(call.answer_type, Format.BINARY)
    request = Fetch(
        partition=call.partition,
        start=params[OFFSET],
        max_records=params[MAX_RECORDS],
        max_bytes=params[MAX_BYTES],
        min_bytes=params[MIN_BYTES],
        timeout_ms=params[FETCH_TIMEOUT],
        isolation=params[ISOLATION],
        tag=params.get(TAG),
        reservation=call.reservation,
        until=call.half_closed,
    )
    return request, params.get(FORMAT) or accepted
