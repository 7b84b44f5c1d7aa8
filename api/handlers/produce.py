"""Produce: JSON records, one record as a plain body, whole record batches; producer ids.

Owns the answers of these calls; must not decide where a record goes and when it is answered (the service does), nor
run streams (`handlers.ndjson`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web
from msgspec import Struct

from api.description.parameters import ACKS, FORMAT, PRODUCE_TIMEOUT
from api.handlers.ndjson import produce_lines
from api.http.errors import MALFORMED, PAYLOAD, ApiError, as_api_error
from api.http.negotiation import (
    NDJSON,
    OCTET_STREAM,
    PLAIN_TYPES,
    RECORD_BATCH,
    RECORD_FORMATS,
    Format,
    negotiate,
)
from api.records.produce_options import read_options, record_ids, refuse_key, request_of, with_key
from api.records.raw_record import record_of
from api.records.rendering import BatchOffsetRow, OffsetRow, ProduceAnswer, RecordNames, offset_rows
from api.records.schema import PLACE, Limits, Produced, decode_produce
from api.request_context import RequestContext
from logserver.service.memory_budget import Reservation
from logserver.service.requests import Acks, AppendOutcome, ProduceBatches, ProduceOptions


class NewProducer(Struct):
    """A producer id that no other producer has."""

    producer_id: int
    producer_epoch: int


async def produce(call: RequestContext) -> web.StreamResponse:
    """Handle POST /topics/{topic} and POST /topics/{topic}/partitions/{partition}."""
    body_type = call.content_type()
    if body_type == NDJSON:
        return await produce_lines(call)
    if call.answer_type == NDJSON:
        call.answer_type = negotiate(call.request.headers.get("Accept"), PLAIN_TYPES)
    with call.service.budget.reserve(0) as reservation:
        if body_type == RECORD_BATCH:
            return await _produce_batches(call, reservation)
        if body_type == OCTET_STREAM:
            return await _produce_octets(call, reservation)
        return await _produce_records(call, reservation, RECORD_FORMATS[body_type])


async def new_producer(call: RequestContext) -> web.Response:
    """Handle POST /producers."""
    call.params()
    await call.json_body(dict[str, object])
    return call.json(NewProducer(await call.service.new_producer_id(), 0))


async def _produce_records(
    call: RequestContext, reservation: Reservation, body_format: Format
) -> web.Response:
    params = call.params()
    options = read_options(call, params)
    body_format = params.get(FORMAT) or body_format
    body = await call.body(reservation)
    settings = call.settings
    limits = Limits(settings.max_records_per_request, settings.max_json_depth)
    decoded = decode_produce(body, body_format, limits)
    decoded = decoded.for_partition(call.partition_number, PLACE)
    options = with_key(options, call, body, body_format.value)
    return await _store(call, decoded, options, reservation=reservation, size_bytes=len(body))


async def _produce_octets(call: RequestContext, reservation: Reservation) -> web.Response:
    params = call.params()
    if FORMAT.name in params.given:
        raise ApiError(
            MALFORMED, "query parameter format does not go with application/octet-stream"
        )
    options = read_options(call, params)
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
    runs = await call.service.produce(request)
    if options.acks is Acks.NONE and not runs:
        return call.json(ProduceAnswer[OffsetRow](None), status=202)
    return _answer(call, decoded, runs, record_names)


async def _produce_batches(call: RequestContext, reservation: Reservation) -> web.Response:
    params = call.params()
    refuse_key(call, "record batches tell their own sequence")
    for name in params.given.keys() - {ACKS.name, PRODUCE_TIMEOUT.name}:
        raise ApiError(MALFORMED, f"query parameter {name} does not go with record batches")
    acks, timeout_ms = params[ACKS], params.get(PRODUCE_TIMEOUT)
    body = await call.body(reservation)
    if not body:
        raise ApiError(PAYLOAD, "the body is empty: send one or more record batches")
    runs = await call.service.produce_batches(
        ProduceBatches(
            topic=call.topic,
            data=body,
            reservation=reservation,
            partition=call.partition_number,
            acks=acks,
            timeout_ms=timeout_ms,
        )
    )
    if acks is Acks.NONE:
        return call.json(ProduceAnswer[OffsetRow](None), status=202)
    last_offsets = [run.base_offset + len(run.positions) - 1 for run in runs]
    rows = [
        BatchOffsetRow(run.partition, run.base_offset, last)
        for run, last in zip(runs, last_offsets, strict=True)
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
    rows = offset_rows(
        decoded.count, runs, decoded.positions, decoded.failed, record_names=record_names
    )
    if any(run.error is None for run in runs):
        return call.json(ProduceAnswer(rows))
    raise _all_failed(rows, decoded, runs)


def _all_failed(
    rows: Sequence[OffsetRow], decoded: Produced, runs: Sequence[AppendOutcome]
) -> ApiError:
    first = next(row for row in rows if row.error_code is not None)
    facts: dict[str, object] = {"offsets": rows}
    for run in runs:
        if run.error is not None and rows[decoded.positions[run.positions[0]]] is first:
            facts |= as_api_error(run.error).facts
    return ApiError(first.error_code or PAYLOAD, first.error or "", facts=facts)
