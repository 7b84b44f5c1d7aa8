"""Messages: records of a topic by what they carry, and one record by its id.

Owns the parameters of these calls, the link to the next page and the answer's shape; how records are
found, and in which order, is the store's business.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web
from msgspec import Raw, Struct

from api.call import Call
from api.errors import MALFORMED, ApiError
from api.negotiation import FORMATS, RECORD_FORMATS, Format
from api.params import Params
from api.rendering import encode_rows, is_large
from logserver.requests import Find
from storage import TopicPartition

DEFAULT_LIMIT: Final = 32
DIRECTIONS: Final = {"forward": False, "backward": True}
SWITCH: Final = {"false": False, "true": True}
_PARAMETERS: Final = (
    "key",
    "unique_id",
    "tag",
    "begin",
    "end",
    "limit",
    "cursor",
    "direction",
    "scan",
    "format",
)


class FoundAnswer(Struct):
    """One page of a query. `next` is the path of the page behind it, null when `complete`."""

    records: Raw
    scanned: int
    indexed: bool
    complete: bool
    next: str | None
    time_axis: str


async def find(call: Call) -> web.Response:
    """GET /topics/{topic}/messages"""
    params = call.params(*_PARAMETERS)
    request = _parsed(call, params)
    body_format = _format(call, params)
    record_id = call.service.store.record_id
    with call.while_connected():
        page = await call.service.find(request)
    found = [(TopicPartition(request.topic, number), record) for number, record in page.records]
    render = partial(encode_rows, found, body_format, record_id)
    is_long = is_large([record for _, record in found])
    rows = await asyncio.to_thread(render) if is_long else render()
    call.service.metrics.fetched(records=len(page.records), size_bytes=len(rows))
    answer = FoundAnswer(
        records=Raw(rows),
        scanned=page.scanned,
        indexed=page.indexed,
        complete=page.complete,
        next=None if page.cursor is None else _link(call, params, page.cursor),
        time_axis=page.time_axis,
    )
    return call.json(answer)


async def get_message(call: Call) -> web.Response:
    """GET /messages/{message_id}"""
    body_format = _format(call, call.params("format"))
    record_id = call.service.store.record_id
    found = await call.service.find_by_id(call.message_id)
    body = encode_rows([found], body_format, record_id)
    call.service.metrics.fetched(records=1, size_bytes=len(body))
    return call.encoded(body.removeprefix(b"[").removesuffix(b"]"))


def _parsed(call: Call, params: Params) -> Find:
    given = [name for name in ("key", "unique_id") if params.text(name) is not None]
    if len(given) > 1:
        raise ApiError(
            MALFORMED, f"query parameters {' and '.join(given)} exclude each other: give one"
        )
    begin_ms = params.integer("begin", None, low=0)
    end_ms = params.integer("end", None, low=0)
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise ApiError(MALFORMED, f"parameter begin is {begin_ms}, which is after end, {end_ms}")
    most = call.settings.max_records_per_request
    return Find(
        topic=call.topic,
        key=params.text("key"),
        unique_id=params.text("unique_id"),
        tag=params.text("tag"),
        from_ms=begin_ms,
        to_ms=end_ms,
        limit=params.integer("limit", min(DEFAULT_LIMIT, most), low=1, high=most),
        cursor=params.text("cursor"),
        backward=params.choice("direction", DIRECTIONS, False),
        scan=params.choice("scan", SWITCH, False),
    )


def _format(call: Call, params: Params) -> Format:
    accepted = RECORD_FORMATS.get(call.answer_type, Format.BINARY)
    return params.choice("format", FORMATS, accepted)


def _link(call: Call, params: Params, cursor: str) -> str:
    """The same query, going on at `cursor`."""
    query = {**params.given, "cursor": cursor}
    return f"{call.request.rel_url.raw_path}?{urlencode(query, quote_via=quote)}"
