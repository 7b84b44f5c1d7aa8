"""Produce: JSON records, lines of JSON, one record as a plain body, whole record batches; producer ids.

Owns the answers of these operations; must not decide where a record goes and when it is answered (the service does),
nor run a stream (`api.records.stream`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import Struct

from api.connection.response_headers import WARNINGS
from api.http.errors import JSON, MALFORMED, PAYLOAD, ApiError, as_api_error
from api.http.negotiation import (
    BINARY_V2_JSON,
    JSON_V2_JSON,
    NDJSON,
    OCTET_STREAM,
    PLAIN_TYPES,
    RECORD_BATCH,
    RECORD_FORMATS,
    V2_JSON,
    Format,
    negotiate,
)
from api.operation import OCTETS, Answer, Details, Example, Lines, OneOf, Resource, optional, plain
from api.operations.parameters import FORMAT
from api.records.decode import (
    PLACE,
    BinaryRecord,
    Body,
    JsonRecord,
    Limits,
    NotBase64,
    Produced,
    TextRecord,
    decode_produce,
    decode_records,
)
from api.records.encode import (
    BatchOffsetRow,
    OffsetRow,
    ProduceAnswer,
    RecordNames,
    offset_rows,
    one_stored,
)
from api.records.produce_options import (
    ACKS,
    ASYNC,
    COMPRESSION,
    DELAYS,
    IDEMPOTENCY_KEY,
    SEQUENCED,
    TIMEOUT,
    TRANSACTION,
    in_transaction,
    read_acks,
    read_options,
    record_ids,
    refuse_key,
    request_of,
    warn_of_times,
    with_key,
)
from api.records.raw_record import RECORD_HEADERS, record_of
from api.records.splitter import Bounds, Item, LineSplitter
from api.records.stream import ProduceStream
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from logserver.service.memory_budget import Reservation
from logserver.service.requests import Acks, AppendOutcome, ProduceBatches, ProduceOptions
from storage.display import encode_json_lines

PRODUCE: Final = Resource("Produce")

_BY_ITSELF: Final = "each record of a stream is stored by itself, or fails by itself"


class NewProducer(Struct):
    """A producer id that no other producer has."""

    producer_id: int
    producer_epoch: int


_JSON_BODY: Final = OneOf((Body[BinaryRecord], Body[TextRecord], Body[JsonRecord]))
_BODIES: Final = {
    JSON_V2_JSON: _JSON_BODY,
    BINARY_V2_JSON: _JSON_BODY,
    V2_JSON: _JSON_BODY,
    JSON: _JSON_BODY,
    RECORD_BATCH: OCTETS,
    NDJSON: Lines(OneOf((BinaryRecord, TextRecord, JsonRecord))),
    OCTET_STREAM: OCTETS,
}
_ANSWERS: Final = (
    Answer(
        200,
        "At least one record was stored.",
        {
            **plain(OneOf((ProduceAnswer[OffsetRow], ProduceAnswer[BatchOffsetRow]))),
            NDJSON: Lines(OffsetRow),
        },
        {WARNINGS: "The records whose time is far ahead of the server's clock."},
    ),
    Answer(
        202,
        "With `acks=0`: checked, not yet stored.",
        {**plain(ProduceAnswer[OffsetRow]), NDJSON: Lines(OffsetRow)},
    ),
    Answer(204, "With `async=true`: checked, not yet stored."),
)
_DETAILS: Final[Details] = {
    "about": "Under `application/json` keys and values are base64, as in the Kafka REST Proxy; any other value refuses "
    "the whole request. Send `application/vnd.kafka.json.v2+json` for JSON, or `format=text` for text. One row per "
    "record comes back, in order. A record that fails alone has its error in its row, and the others are stored; if "
    "none is stored, the first error is the answer, with all rows in `offsets`. A record without "
    "`partition` goes by the hash of its key. Producing to an unknown topic creates it (setting `auto_create_topics`). "
    "NDJSON is a record per line, read and answered as it arrives: send and read at the same time; a line that fails "
    "has its error in its line of the answer. A plain body is one record, unchanged. RocketMQ's format: a record with "
    "`delay_level`, `deliver_at` or `delay_ms` is kept until its time; its row has no offset, but `delay_level`, "
    "`deliver_at` and the `message_id` of the waiting message.",
    "scope": Scope.PRODUCE,
    "query": (ACKS, ASYNC, TIMEOUT, COMPRESSION, FORMAT, TRANSACTION, *SEQUENCED, *DELAYS),
    "headers": (IDEMPOTENCY_KEY, *RECORD_HEADERS),
    "errors": (
        40401, 40402, 40406, 40903, 40904, 40905, 41302, 42201, 42202, 42203, 42206, 42207, 42208, 42209, 50302, 50401,
        50701,
    ),
}  # fmt: skip
_ROW: Final = {"partition": 0, "offset": 2, "error_code": None, "error": None}


def _answered(*rows: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"offsets": list(rows), "key_schema_id": None, "value_schema_id": None}


_JSON_EXAMPLE: Final = Example(
    media_type=JSON_V2_JSON,
    body={"records": [{"key": "k1", "value": {"total": 12}}]},
    answer=_answered(_ROW),
)
_EXAMPLES: Final = (
    _JSON_EXAMPLE,
    Example(
        "base64",
        media_type=BINARY_V2_JSON,
        body={"records": [{"key": "azE=", "value": "aGVsbG8="}, {"value": "d29ybGQ="}]},
        answer=_answered(_ROW, {**_ROW, "offset": 3}),
    ),
    Example(
        "text with a tag, lookup keys and a header",
        query={"format": "text"},
        media_type=JSON,
        body={
            "records": [
                {
                    "value": "hello",
                    "tag": "new",
                    "keys": ["k1", "k2"],
                    "headers": [{"key": "source", "value": "shop"}],
                }
            ]
        },
        answer=_answered(_ROW),
    ),
    Example(
        "once, however often it is sent",
        headers={"Idempotency-Key": "order 4711, first try"},
        media_type=JSON_V2_JSON,
        body={"records": [{"key": "k1", "value": {"total": 12}}]},
        answer=_answered(_ROW),
    ),
    Example(
        "delivered in five seconds",
        media_type=JSON_V2_JSON,
        body={"records": [{"value": {"total": 12}, "delay_ms": 4000}]},
        answer=_answered({**_ROW, "offset": None, "delay_level": 2, "deliver_at": 1760000005123}),
        backends=("rocketmq",),
    ),
    Example(
        "one record is refused",
        media_type=BINARY_V2_JSON,
        body={"records": [{"value": "aGVsbG8="}, {"value": "***"}]},
        answer=_answered(
            _ROW, {"partition": None, "offset": None, "error_code": 42202, "error": "..."}
        ),
    ),
    Example(
        "without waiting",
        query={"acks": "0"},
        media_type=JSON,
        body={"records": [{"value": "aGVsbG8="}]},
        status=202,
        answer={"offsets": None, "key_schema_id": None, "value_schema_id": None},
    ),
    Example(
        "without an answer's body",
        query={"async": "true"},
        media_type=JSON_V2_JSON,
        body={"records": [{"value": {"total": 12}}]},
        status=204,
    ),
    Example(
        "a stream of lines",
        query={"format": "json"},
        headers={"Accept": NDJSON},
        media_type=NDJSON,
        body='{"key":"k1","value":{"total":12}}\n',
    ),
    Example(
        "one record as it is",
        headers={"X-Key": "k1", "X-Tag": "new", "X-Header-Source": "shop"},
        media_type=OCTET_STREAM,
        body="hello",
        answer=_answered(_ROW),
    ),
)


@PRODUCE.post("/topics/{topic}", *_ANSWERS, bodies=_BODIES, examples=_EXAMPLES, **_DETAILS)
async def produce(call: RequestContext) -> web.StreamResponse:
    """Produce records to a topic."""
    body_type = call.body_type
    if body_type == NDJSON:
        return await _produce_lines(call)
    if call.answer_type == NDJSON:
        call.answer_type = negotiate(call.request.headers.get("Accept"), PLAIN_TYPES)
    with Reservation(call.service.budget) as reservation:
        if body_type == RECORD_BATCH:
            return await _produce_batches(call, reservation)
        if body_type == OCTET_STREAM:
            return await _produce_octets(call, reservation)
        return await _produce_records(call, reservation, RECORD_FORMATS[body_type])


@PRODUCE.post(
    "/topics/{topic}/partitions/{partition}",
    *_ANSWERS,
    bodies=_BODIES,
    examples=(_JSON_EXAMPLE,),
    **_DETAILS,
)
def produce_to_partition(call: RequestContext) -> Awaitable[web.StreamResponse]:
    """Produce records to a partition."""
    return produce(call)


@PRODUCE.post(
    "/producers",
    Answer(200, "An id that no other producer has.", NewProducer),
    body=optional(dict[str, object]),
    scope=Scope.PRODUCE,
    errors=(50701,),
    examples=(Example(answer={"producer_id": 1125899906842624, "producer_epoch": 0}),),
)
async def new_producer(call: RequestContext, _: dict[str, object] | None) -> web.Response:
    """Create a producer id.

    For `producer_id`, `producer_epoch` and `sequence` of a produce request: a repeat of it is stored once.
    """
    return call.json(NewProducer(await call.service.producer.new_id(), 0))


async def _produce_records(
    call: RequestContext, reservation: Reservation, body_format: Format
) -> web.Response:
    options = await in_transaction(read_options(call), call)
    body_format = call.params.get(FORMAT) or body_format
    body = await call.body(reservation)
    settings = call.service.settings
    limits = Limits(settings.max_records_per_request, settings.max_json_depth)
    decoded = decode_produce(body, body_format, limits)
    if call.body_type == JSON and FORMAT.name not in call.params.query:
        _refuse_other_than_base64(decoded)
    if decoded.partitions is not None:
        decoded = decoded.for_partition(call.partition_number, PLACE)
    if IDEMPOTENCY_KEY.name in call.request.headers:
        options = with_key(options, call, body, body_format.value)
    return await _store(call, decoded, options, reservation=reservation, size_bytes=len(body))


def _refuse_other_than_base64(decoded: Produced) -> None:
    """Refuse a request as a whole if one of its keys or values is not base64.

    `application/json` names no format. A client that sends one text or object most likely sends no base64 at all, and
    a text such as `test` would be stored as other bytes, because it is base64 by chance.
    """
    for _, error in decoded.failed:
        if isinstance(error, NotBase64):
            rows = offset_rows(decoded.count, [], decoded.positions, decoded.failed)
            message = f"{error.message}; nothing of the request is stored"
            raise ApiError(error.error_code, message, facts={"offsets": rows})


async def _produce_octets(call: RequestContext, reservation: Reservation) -> web.Response:
    if FORMAT.name in call.params.query:
        raise ApiError(
            MALFORMED, "query parameter format does not go with application/octet-stream"
        )
    options = await in_transaction(read_options(call), call)
    body = await call.body(reservation)
    record = record_of(call.request.headers, body)
    decoded = Produced(count=1, records=[record], positions=range(1), partitions=None)
    options = with_key(options, call, msgspec.msgpack.encode(record), OCTET_STREAM)
    return await _store(call, decoded, options, reservation=reservation, size_bytes=len(body))


async def _store(
    call: RequestContext,
    decoded: Produced,
    options: ProduceOptions,
    *,
    reservation: Reservation,
    size_bytes: int,
) -> web.Response:
    """Store the valid records of one request, or none if the request is all or nothing and a record is invalid."""
    all_or_nothing = options.producer is not None or options.acks is Acks.NONE
    if not decoded.records or (all_or_nothing and decoded.failed):
        return _answer(call, decoded, [])
    request = request_of(call, decoded, options, reservation=reservation, size_bytes=size_bytes)
    record_names = record_ids(call.service.store, call.topic)
    producer = call.service.producer
    runs = await producer.produce(request)
    if options.acks is Acks.NONE and not runs:
        response = _unawaited(call)
    else:
        response = _answer(call, decoded, runs, record_names)
    if decoded.may_have_times:
        ahead = producer.far_ahead(call.topic, decoded.records, runs)
        warn_of_times(response, [PLACE.format(decoded.positions[index]) for index in ahead])
    return response


def _unawaited(call: RequestContext) -> web.Response:
    """Return the answer to a request that does not wait for its records to be stored."""
    if call.params.get(ASYNC):
        return web.Response(status=204)
    return call.json(ProduceAnswer[OffsetRow](None), status=202)


async def _produce_batches(call: RequestContext, reservation: Reservation) -> web.Response:
    params = call.params
    refuse_key(call, "record batches tell their own sequence")
    for name in params.query.keys() - {ACKS.name, ASYNC.name, TIMEOUT.name, TRANSACTION.name}:
        raise ApiError(MALFORMED, f"query parameter {name} does not go with record batches")
    acks, timeout_ms = read_acks(params), params.get(TIMEOUT)
    options = await in_transaction(ProduceOptions(acks=acks), call)
    body = await call.body(reservation)
    if not body:
        raise ApiError(PAYLOAD, "the body is empty: send one or more record batches")
    runs = await call.service.producer.produce_batches(
        ProduceBatches(
            topic=call.topic,
            data=body,
            reservation=reservation,
            partition=call.partition_number,
            acks=acks,
            timeout_ms=timeout_ms,
            transaction=options.transaction,
        )
    )
    if acks is Acks.NONE:
        return _unawaited(call)
    rows = [
        BatchOffsetRow(run.partition, run.base_offset, run.base_offset + len(run.positions) - 1)
        for run in runs
    ]
    return call.json(ProduceAnswer(rows))


def _answer(
    call: RequestContext,
    decoded: Produced,
    runs: Sequence[AppendOutcome],
    record_names: RecordNames | None = None,
) -> web.Response:
    """Return 200 if any record was stored; else raise the first record's error, with all rows in its facts.

    `record_names`: see `offset_rows`.
    """
    if decoded.count == 1 and len(runs) == 1 and runs[0].error is None and record_names is None:
        return call.encoded(one_stored(runs[0].partition, runs[0].base_offset))
    rows = offset_rows(
        decoded.count, runs, decoded.positions, decoded.failed, record_names=record_names
    )
    for run in runs:
        if run.error is None:
            return call.json(ProduceAnswer(rows))
    first = next(row for row in rows if row.error_code is not None)
    facts: dict[str, object] = {"offsets": rows}
    for run in runs:
        if run.error is not None and rows[decoded.positions[run.positions[0]]] is first:
            facts |= as_api_error(run.error).facts
    raise ApiError(first.error_code or PAYLOAD, first.error or "", facts=facts)


async def _produce_lines(call: RequestContext) -> web.StreamResponse:
    call.answer_type = negotiate(call.request.headers.get("Accept"), (NDJSON,))
    call.params.refuse((*SEQUENCED, TRANSACTION), _BY_ITSELF)
    call.params.refuse((ASYNC,), "a stream is answered while it is sent")
    refuse_key(call, _BY_ITSELF)
    options = read_options(call)
    settings = call.settings
    dialect = _Lines(
        call.params.get(FORMAT) or Format.BINARY,
        Bounds(settings.max_body_bytes, settings.max_json_depth),
        record_ids(call.service.store, call.topic),
    )
    return await ProduceStream(call, dialect, options).run()


@dataclass(frozen=True, slots=True)
class _Lines:
    """Records in the form of `records` of a JSON body, rows in the form of its answer."""

    kind: Format
    bounds: Bounds
    record_names: RecordNames | None

    def splitter(self) -> LineSplitter:
        return LineSplitter(self.bounds)

    def decode(self, items: Sequence[Item]) -> Produced:
        return decode_records(items, self.kind, Limits(len(items), self.bounds.max_depth))

    def reports(self, decoded: Produced, runs: Sequence[AppendOutcome]) -> bytes:
        rows = offset_rows(
            decoded.count, runs, decoded.positions, decoded.failed, record_names=self.record_names
        )
        return encode_json_lines(rows)

    def last_word(self, error: ApiError) -> bytes:
        return encode_json_lines([OffsetRow(None, None, error.error_code, error.message)])
