"""Follow: the records of one partition as a continuous stream.

Owns the parameters and the life of such an answer; must not know the encoding of a record (`api.records.ndjson_sse`).
The answer begins after the first page was read, so that an error of the request has its own status. It ends with the
reason. The next page is read when the client has received the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

from aiohttp import web

from api.description.parameters import (
    FOLLOW,
    FORMAT,
    ISOLATION,
    LAST_EVENT_ID,
    MAX_BYTES,
    MIN_BYTES,
    OFFSET,
    STREAM_RECORDS,
    STREAM_TIMEOUT,
    TAG,
)
from api.http.errors import as_api_error
from api.http.negotiation import EVENT_STREAM, Format
from api.records.ndjson_sse import FRAMES, Frames, resumed_at
from api.records.rendering import encode_lines, is_large
from api.request_context import RequestContext
from logserver.service.requests import Follow, Start, StartAt
from storage import Page, StorageError

# A proxy must neither cache the answer nor buffer it.
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def follow(call: RequestContext) -> web.StreamResponse:
    """Handle GET /topics/{topic}/partitions/{partition}/records as a stream."""
    request, body_format = _parsed(call)
    with call.while_connected():
        async with aclosing(call.service.follow(request)) as pages:
            first = await anext(pages)
            headers = {
                "X-Beginning-Offset": str(first.bounds.start),
                "X-End-Offset": str(first.bounds.end),
                **_HEADERS,
            }
            if call.request.method == "HEAD":
                return call.encoded(b"", headers=headers)
            stream = await call.stream(headers)
            await _Stream(call, request, body_format).send(stream, first, pages)
    return stream


class _Stream:
    """One stream in progress."""

    def __init__(self, call: RequestContext, request: Follow, body_format: Format) -> None:
        self._call = call
        self._partition = request.partition
        self._is_live = request.live
        self._frames: Frames = FRAMES[call.answer_type](request.partition.partition)
        self._format = body_format
        store = call.service.store
        self._record_id = store.record_id if store.capabilities.messages else None

    async def send(
        self, stream: web.StreamResponse, page: Page, pages: AsyncGenerator[Page, None]
    ) -> None:
        """Send every page, then the end or the error. Waits if the client reads slowly."""
        frames = self._frames
        await stream.write(await self._framed(page) if page.records else b"")
        try:
            async for page in pages:
                await stream.write(await self._framed(page))
        except StorageError as error:
            last = frames.error(as_api_error(error))
        else:
            last = frames.end(page.next_offset)
        await stream.write_eof(last)

    async def _framed(self, page: Page) -> bytes:
        records = page.records
        if not records:
            return self._frames.beat(page.next_offset) if self._is_live else b""
        render = partial(encode_lines, self._partition, records, self._format, self._record_id)
        rows = await asyncio.to_thread(render) if is_large(records) else render()
        body = self._frames.records(rows, records)
        self._call.service.metrics.fetched(records=len(records), size_bytes=len(body))
        return body


def _parsed(call: RequestContext) -> tuple[Follow, Format]:
    params = call.params()
    params.refuse((MIN_BYTES, MAX_BYTES), "a stream has no pages")
    partition, start = call.partition, params[OFFSET]
    last_event_id = call.request.headers.get(LAST_EVENT_ID.name)
    if last_event_id and call.answer_type == EVENT_STREAM:
        start = Start(StartAt.OFFSET, resumed_at(last_event_id, partition.partition))
    request = Follow(
        partition=partition,
        start=start,
        max_records=params.get(STREAM_RECORDS),
        idle_ms=params.get(STREAM_TIMEOUT),
        live=params.get(FOLLOW) is not False,
        isolation=params[ISOLATION],
        tag=params.get(TAG),
        until=call.half_closed,
    )
    return request, params.get(FORMAT) or Format.BINARY
