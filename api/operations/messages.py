"""Messages: records of a topic by key, id, tag or time, and one record by its id.

Owns the parameters of these operations, the link to the next page and the answer's shape; must not know how records are
found, and in which order: the store decides.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web
from msgspec import Raw, Struct

from api.http.errors import MALFORMED, ApiError
from api.http.negotiation import RECORD_FORMATS, Format
from api.http.parameters import Choice, Integer, Parameter, Params, Text
from api.operation import Answer, Example, Resource
from api.operations.parameters import CURSOR, FORMAT, TAG
from api.records.encode import RecordRow, encode_rows, run_encoder
from api.request_context import RequestContext
from storage import FindQuery, TopicPartition

MESSAGES: Final = Resource("Query")

_KEY: Final = Parameter("key", Text(), "Records whose key this is, or one of their lookup keys.")
_UNIQUE_ID: Final = Parameter(
    "unique_id", Text(), "RocketMQ: the property `UNIQ_KEY`. Not together with `key`."
)
_BEGIN: Final = Parameter("begin", Integer(), "Records at or after this time, in milliseconds.")
_END: Final = Parameter("end", Integer(), "Records at or before this time, in milliseconds.")
_LIMIT: Final = Parameter(
    "limit", Integer(1, "max_records_per_request"), "At most this many records.", "32"
)
_DIRECTION: Final = Parameter(
    "direction",
    Choice({"forward": False, "backward": True}),
    "`backward`: the same records in reverse order, newest first.",
    "forward",
)
_SCAN: Final = Parameter(
    "scan",
    Choice({"false": False, "true": True}),
    "`true`: read the records themselves, without an index.",
    "false",
)


class FoundAnswer(Struct):
    """One page of a query. `next` is the path of the next page, null when `complete`."""

    records: Raw
    scanned: int
    indexed: bool
    complete: bool
    next: str | None
    time_axis: str


_ROW: Final = {
    "topic": "orders",
    "partition": 0,
    "offset": 0,
    "timestamp": 1760000000000,
    "key": "k1",
    "value": {"total": 12},
    "headers": [],
    "message_id": "orders:0:0",
}


@MESSAGES.get(
    "/topics/{topic}/messages",
    Answer(200, "One page of matching records.", FoundAnswer),
    query=(_KEY, _UNIQUE_ID, TAG, _BEGIN, _END, _LIMIT, CURSOR, _DIRECTION, _SCAN, FORMAT),
    errors=(40401, 42201, 50010),
    examples=(
        Example(
            query={"key": '"k1"', "format": "json"},
            answer={
                "records": [_ROW],
                "scanned": 2,
                "indexed": False,
                "complete": True,
                "next": None,
                "time_axis": "timestamp",
            },
        ),
    ),
)
async def find_messages(call: RequestContext) -> web.Response:
    """Records of a topic by key, id, tag or time.

    A record must match every given parameter; without any, every record matches. A query reads a bounded number of
    records: `scanned`. While `complete` is false, `next` is the path of the next page of the same query: follow it,
    even if `records` is empty.
    """
    query = _query(call.params)
    body_format = _format(call)
    record_id = call.service.store.record_id
    with call.while_connected():
        page = await call.service.find(call.topic, query)
    located = [(TopicPartition(call.topic, number), record) for number, record in page.records]
    render = partial(encode_rows, located, body_format, record_id)
    rows = await run_encoder([record for _, record in located], render)
    call.service.metrics.fetched(records=len(page.records), size_bytes=len(rows))
    answer = FoundAnswer(
        records=Raw(rows),
        scanned=page.scanned,
        indexed=page.indexed,
        complete=page.complete,
        next=None if page.cursor is None else call.link(page.cursor),
        time_axis=page.time_axis,
    )
    return call.json(answer)


@MESSAGES.get(
    "/messages/{message_id}",
    Answer(200, "The record.", RecordRow),
    query=(FORMAT,),
    errors=(40404, 42201, 50010),
    examples=(Example(query={"format": "json"}, answer=_ROW),),
)
async def get_message(call: RequestContext) -> web.Response:
    """One record by its id."""
    body_format = _format(call)
    record_id = call.service.store.record_id
    located = await call.service.find_by_id(call.path["message_id"])
    body = encode_rows([located], body_format, record_id)
    call.service.metrics.fetched(records=1, size_bytes=len(body))
    return call.encoded(body.removeprefix(b"[").removesuffix(b"]"))


def _query(params: Params) -> FindQuery:
    exclusive = [one.name for one in (_KEY, _UNIQUE_ID) if params.get(one) is not None]
    if len(exclusive) > 1:
        raise ApiError(
            MALFORMED, f"query parameters {' and '.join(exclusive)} exclude each other: give one"
        )
    begin_ms, end_ms = params.get(_BEGIN), params.get(_END)
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise ApiError(MALFORMED, f"parameter begin is {begin_ms}, which is after end, {end_ms}")
    return FindQuery(
        key=params.get(_KEY),
        unique_id=params.get(_UNIQUE_ID),
        tag=params.get(TAG),
        from_ms=begin_ms,
        to_ms=end_ms,
        limit=params[_LIMIT],
        cursor=params.get(CURSOR),
        backward=params[_DIRECTION],
        scan=params[_SCAN],
    )


def _format(call: RequestContext) -> Format:
    return call.params.get(FORMAT) or RECORD_FORMATS.get(call.answer_type, Format.BINARY)
