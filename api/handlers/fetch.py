"""Fetch: records of one partition, from any place, waiting for them if asked.

Owns the parameters and the answer's headers; how a wait is met is the service's business.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from aiohttp import web

from api.call import Call
from api.negotiation import FORMATS, RECORD_BATCH, RECORD_FORMATS, Format
from api.rendering import encode_page, encode_rows, is_large
from logserver.requests import Fetch
from storage import Isolation, LogStore, OffsetBounds, Page, TopicPartition

ISOLATIONS: Final = {level.value: level for level in Isolation}
MAX_PAGE_BYTES: Final = 64 << 20
_PARAMETERS: Final = (
    "offset",
    "timeout",
    "min_bytes",
    "max_bytes",
    "max_records",
    "isolation",
    "tag",
    "format",
)


async def fetch(call: Call) -> web.Response:
    """GET /topics/{topic}/partitions/{partition}/records"""
    request, body_format = _parsed(call)
    store = call.service.store
    if call.answer_type == RECORD_BATCH:
        with call.while_connected():
            batches = await call.service.fetch_batches(request)
        body, records = batches.data, 0
        headers = _headers(batches.next_offset, batches.bounds)
    else:
        with call.while_connected():
            page = await call.service.fetch(request)
        body = await _rendered(store, request.partition, page, body_format)
        records = len(page.records)
        headers = _headers(page.next_offset, page.bounds)
    call.service.metrics.fetched(records=records, size_bytes=len(body))
    headers["Content-Type"] = call.answer_type
    return web.Response(body=body, headers=headers)


async def _rendered(
    store: LogStore, partition: TopicPartition, page: Page, body_format: Format
) -> bytes:
    if store.capabilities.messages:
        found = [(partition, record) for record in page.records]
        render = partial(encode_rows, found, body_format, store.record_id)
    else:
        render = partial(encode_page, partition, page, body_format)
    return await asyncio.to_thread(render) if is_large(page.records) else render()


def _parsed(call: Call) -> tuple[Fetch, Format]:
    params = call.params(*_PARAMETERS)
    settings = call.settings
    accepted = RECORD_FORMATS.get(call.answer_type, Format.BINARY)
    request = Fetch(
        partition=call.partition,
        start=params.start("offset"),
        max_records=params.integer(
            "max_records",
            min(500, settings.max_records_per_request),
            low=1,
            high=settings.max_records_per_request,
        ),
        max_bytes=params.integer("max_bytes", 1 << 20, low=1, high=MAX_PAGE_BYTES),
        min_bytes=params.integer("min_bytes", 1, low=0, high=MAX_PAGE_BYTES),
        timeout_ms=params.integer("timeout", 0, low=0, high=settings.max_wait_ms),
        isolation=params.choice("isolation", ISOLATIONS, Isolation.READ_UNCOMMITTED),
        tag=params.text("tag"),
    )
    return request, params.choice("format", FORMATS, accepted)


def _headers(next_offset: int, bounds: OffsetBounds) -> dict[str, str]:
    return {
        "X-Next-Offset": str(next_offset),
        "X-Beginning-Offset": str(bounds.start),
        "X-End-Offset": str(bounds.end),
    }
