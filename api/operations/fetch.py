"""Fetch: records of one partition from any position, as a page with an optional wait or as a continuous stream.

Owns the parameters and headers of both, and the life of a stream; must not wait itself (the service does), nor know the
encoding of a record (`api.records`). A stream begins after its first page was read, so that an error of the request has
its own status. It ends with the reason. The next page is read when the client has received the last one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from aiohttp import web

from api.http.caching import cacheable, is_closed
from api.http.errors import as_api_error
from api.http.negotiation import (
    EVENT_STREAM,
    JSON_V2_JSON,
    NDJSON,
    RECORD_BATCH,
    RECORD_FORMATS,
    STREAM_TYPES,
    Format,
)
from api.http.parameters import Choice, Integer, Parameter, StartPosition, Text
from api.operation import OCTETS, Answer, Example, Lines, Resource, plain
from api.operations.parameters import FORMAT, MAX_PAGE_BYTES, TAG
from api.records.encode import RecordRow, encode_lines, encode_page, encode_rows, run_encoder
from api.records.ndjson_sse import FRAMES, resumed_at
from api.request_context import RequestContext
from logserver.service.requests import Fetch, Follow, Start, StartAt
from storage import Batches, Isolation, LogStore, Page, StorageError, TopicPartition

FETCH: Final = Resource("Fetch")

_OFFSET: Final = Parameter(
    "offset",
    StartPosition(),
    "Where to begin: `N`, `earliest`, `latest` (only new records), `-N` (the last N), `@MS` (the first at or after "
    "that time).",
    default="earliest",
)
_MAX_RECORDS: Final = Parameter(
    "max_records",
    Integer(1, "max_records_per_request"),
    "At most this many records. A stream ends after this many, without it never.",
    "500",
)
_MAX_BYTES: Final = Parameter(
    "max_bytes",
    Integer(1, MAX_PAGE_BYTES),
    "About this many bytes; at least one record is returned, of any size.",
    str(1 << 20),
)
_MIN_BYTES: Final = Parameter(
    "min_bytes",
    Integer(0, MAX_PAGE_BYTES),
    "The wait ends at this many bytes of keys and values.",
    "1",
)
_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(0, "max_wait_ms"),
    "How long to wait for `min_bytes`, in milliseconds. A stream ends when no record has come for this "
    "long, without it never.",
    "0",
)
_ISOLATION: Final = Parameter(
    "isolation",
    Choice({level.value: level for level in Isolation}),
    "`read_committed` leaves out aborted transactions and ends at the last stable offset.",
    Isolation.READ_UNCOMMITTED.value,
)
_FOLLOW: Final = Parameter(
    "follow",
    Choice({"true": True, "false": False}),
    "For a stream. `false`: it ends at the end that the log has when the request arrives.",
)
_PAGE_PARAMETERS: Final = (
    _OFFSET, _MAX_RECORDS, _MAX_BYTES, _MIN_BYTES, _TIMEOUT, _ISOLATION, TAG, FORMAT,
)  # fmt: skip
# The meaning for a stream of two parameters that a page has too.
_STREAM_RECORDS: Final = Parameter(
    "max_records", Integer(1), "The stream ends after this many records."
)
_STREAM_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(0, "max_wait_ms"),
    "The stream ends when no record has come for this long, in milliseconds.",
)
_LAST_EVENT_ID: Final = Parameter(
    "Last-Event-ID",
    Text(),
    "`partition:offset` of the last received event: takes precedence over `offset`.",
)
_IF_NONE_MATCH: Final = Parameter(
    "If-None-Match", Text(), "The `ETag` of a cached page: 304 if it is still valid."
)

# A proxy must neither cache a stream nor buffer it.
_STREAM_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

_ROW: Final = {
    "topic": "orders",
    "partition": 0,
    "offset": 0,
    "timestamp": 1760000000000,
    "key": "ImsxIg==",
    "value": "eyJ0b3RhbCI6MTJ9",
    "headers": [],
}


@FETCH.get(
    "/topics/{topic}/partitions/{partition}/records",
    Answer(
        200,
        "The records.",
        {
            **plain(Sequence[RecordRow]),
            RECORD_BATCH: OCTETS,
            NDJSON: Lines(RecordRow),
            EVENT_STREAM: Lines(RecordRow),
        },
        headers={
            "X-Next-Offset": "The offset to continue at.",
            "X-Beginning-Offset": "The partition's first offset.",
            "X-End-Offset": "The offset of the next record to be stored.",
            "ETag": "The tag of a page that later records do not change.",
        },
    ),
    Answer(304, "The page with this tag is still valid."),
    query=(
        _OFFSET,
        _MAX_RECORDS,
        _MAX_BYTES,
        _MIN_BYTES,
        _TIMEOUT,
        _ISOLATION,
        TAG,
        FORMAT,
        _FOLLOW,
    ),
    headers=(_IF_NONE_MATCH, _LAST_EVENT_ID),
    errors=(40401, 40402, 41601, 42207, 50302, 50010),
    examples=(
        Example(query={"max_records": "1"}, answer=[_ROW]),
        Example(
            "the last, as JSON",
            query={"offset": "-1"},
            headers={"Accept": JSON_V2_JSON},
            answer=[{**_ROW, "offset": 1, "key": "k2", "value": {"total": 7}}],
        ),
        Example("wait for new records", query={"offset": "latest", "timeout": "10"}, answer=[]),
        Example(
            "every stored record, as lines", query={"follow": "false"}, headers={"Accept": NDJSON}
        ),
        Example(
            "events after the last one received",
            query={"max_records": "1"},
            headers={"Accept": EVENT_STREAM, "Last-Event-ID": "0:0"},
        ),
        Example("whole batches", headers={"Accept": RECORD_BATCH}, backends=("kafka",)),
    ),
)
async def fetch(call: RequestContext) -> web.StreamResponse:
    """Records of a partition.

    From any position, with an optional wait. Continue at `X-Next-Offset`, not after the last record: it also skips
    hidden records. An empty list means that no record came in time. Bytes that the format cannot show give `null`,
    with the bytes in `value_b64` and the reason in `error`. Whole record batches come as they are stored, on Kafka's
    stores only; the first may begin before the requested offset. As `application/x-ndjson` or `text/event-stream` the
    answer is a stream that continues with new records; its last line gives the reason of an early end.
    """
    if call.answer_type in STREAM_TYPES:
        return await _follow(call)
    request, body_format = _page_request(call)
    # Read before the wait, so that a stop during the wait raises no error.
    store = call.service.store
    page: Page | Batches
    body: bytes | bytearray
    if call.answer_type == RECORD_BATCH:
        with call.while_connected():
            page = batches = await call.service.fetch_batches(request)
        body, records = batches.data, 0
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
        located = [(partition, record) for record in page.records]
        render = partial(encode_rows, located, body_format, store.record_id)
    else:
        render = partial(encode_page, partition, page, body_format)
    return await run_encoder(page.records, render)


def _page_request(call: RequestContext) -> tuple[Fetch, Format]:
    params = call.params
    if _FOLLOW.name in params.query:
        params.refuse((_FOLLOW,), f"it needs Accept: {' or '.join(STREAM_TYPES)}")
    accepted = RECORD_FORMATS.get(call.answer_type, Format.BINARY)
    partition = call.partition
    start, max_records, max_bytes, min_bytes, timeout_ms, isolation, tag, body_format = (
        params.values(_PAGE_PARAMETERS)
    )
    request = Fetch(
        partition=partition,
        start=start,
        max_records=max_records,
        max_bytes=max_bytes,
        min_bytes=min_bytes,
        timeout_ms=timeout_ms,
        isolation=isolation,
        tag=tag,
        reservation=call.reservation,
        until=call.half_closed,
    )
    return request, body_format or accepted


async def _follow(call: RequestContext) -> web.StreamResponse:
    request, body_format = _stream_request(call)
    with call.while_connected():
        async with aclosing(call.service.follow(request)) as pages:
            first = await anext(pages)
            headers = {
                "X-Beginning-Offset": str(first.bounds.start),
                "X-End-Offset": str(first.bounds.end),
                **_STREAM_HEADERS,
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
        self._frames = FRAMES[call.answer_type](request.partition.partition)
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
        rows = await run_encoder(records, render)
        body = self._frames.records(rows, records)
        self._call.service.metrics.fetched(records=len(records), size_bytes=len(body))
        return body


def _stream_request(call: RequestContext) -> tuple[Follow, Format]:
    params = call.params
    params.refuse((_MIN_BYTES, _MAX_BYTES), "a stream has no pages")
    partition, start = call.partition, params[_OFFSET]
    last_event_id = call.request.headers.get(_LAST_EVENT_ID.name)
    if last_event_id and call.answer_type == EVENT_STREAM:
        start = Start(StartAt.OFFSET, resumed_at(last_event_id, partition.partition))
    request = Follow(
        partition=partition,
        start=start,
        max_records=params.get(_STREAM_RECORDS),
        idle_ms=params.get(_STREAM_TIMEOUT),
        live=params.get(_FOLLOW) is not False,
        isolation=params[_ISOLATION],
        tag=params.get(TAG),
        until=call.half_closed,
    )
    return request, params.get(FORMAT) or Format.BINARY
