"""Messages: records of a topic by key, id, tag or time, and one record by its id.

Owns the parameters of these calls, the link to the next page and the answer's shape; must not know how records are
found, and in which order: the store decides.
"""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web
from msgspec import Raw, Struct

from api.description.parameters import (
    BEGIN,
    CURSOR,
    DIRECTION,
    END,
    FORMAT,
    KEY,
    LIMIT,
    SCAN,
    TAG,
    UNIQUE_ID,
)
from api.http.errors import MALFORMED, ApiError
from api.http.negotiation import RECORD_FORMATS, Format
from api.http.parameters import Params
from api.records.rendering import encode_rows, is_large
from api.request_context import RequestContext
from storage import FindQuery, TopicPartition


class FoundAnswer(Struct):
    """One page of a query. `next` is the path of the next page, null when `complete`."""

    records: Raw
    scanned: int
    indexed: bool
    complete: bool
    next: str | None
    time_axis: str


async def find(call: RequestContext) -> web.Response:
    """Handle GET /topics/{topic}/messages."""
    params = call.params()
    query = _parsed(params)
    body_format = _format(call, params)
    record_id = call.service.store.record_id
    with call.while_connected():
        page = await call.service.find(call.topic, query)
    found = [(TopicPartition(call.topic, number), record) for number, record in page.records]
    render = partial(encode_rows, found, body_format, record_id)
    is_long = is_large([record for _, record in found])
    rows = await asyncio.to_thread(render) if is_long else render()
    call.service.metrics.fetched(records=len(page.records), size_bytes=len(rows))
    answer = FoundAnswer(
        records=Raw(rows),
        scanned=page.scanned,
        indexed=page.indexed,
        complete=page.complete,
        next=None if page.cursor is None else call.link(params, page.cursor),
        time_axis=page.time_axis,
    )
    return call.json(answer)


async def get_message(call: RequestContext) -> web.Response:
    """Handle GET /messages/{message_id}."""
    body_format = _format(call, call.params())
    record_id = call.service.store.record_id
    found = await call.service.find_by_id(call.message_id)
    body = encode_rows([found], body_format, record_id)
    call.service.metrics.fetched(records=1, size_bytes=len(body))
    return call.encoded(body.removeprefix(b"[").removesuffix(b"]"))


def _parsed(params: Params) -> FindQuery:
    given = [one.name for one in (KEY, UNIQUE_ID) if params.get(one) is not None]
    if len(given) > 1:
        raise ApiError(
            MALFORMED, f"query parameters {' and '.join(given)} exclude each other: give one"
        )
    begin_ms = params.get(BEGIN)
    end_ms = params.get(END)
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise ApiError(MALFORMED, f"parameter begin is {begin_ms}, which is after end, {end_ms}")
    return FindQuery(
        key=params.get(KEY),
        unique_id=params.get(UNIQUE_ID),
        tag=params.get(TAG),
        from_ms=begin_ms,
        to_ms=end_ms,
        limit=params[LIMIT],
        cursor=params.get(CURSOR),
        backward=params[DIRECTION],
        scan=params[SCAN],
    )


def _format(call: RequestContext, params: Params) -> Format:
    accepted = RECORD_FORMATS.get(call.answer_type, Format.BINARY)
    return params.get(FORMAT) or accepted
