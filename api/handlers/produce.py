"""Produce: JSON records and whole record batches; producer ids.

Owns the parameters and answers of these calls; where a record goes and when it is answered is the
service's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiohttp import web

from api.call import Call
from api.errors import MALFORMED, NOT_OFFERED, PAYLOAD, ApiError, as_api_error
from api.negotiation import FORMATS, RECORD_BATCH, RECORD_FORMATS, Format
from api.params import Params
from api.rendering import BatchOffsetRow, OffsetRow, ProduceAnswer, offset_rows
from api.schema import Limits, Produced, decode_produce
from logserver.budget import Hold
from logserver.requests import Produce, ProduceBatches
from logserver.writer import Acks, Run
from storage import LogStore, ProducerSequence, TopicPartition

ACKS: Final[Mapping[str, Acks]] = {
    "all": Acks.ALL,
    "-1": Acks.ALL,
    "1": Acks.WRITTEN,
    "0": Acks.NONE,
}
COMPRESSIONS: Final = {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}
MESSAGE_COMPRESSIONS: Final = {name: name for name in ("none", "zlib", "lz4", "zstd")}
_BODY_TYPES: Final = (*RECORD_FORMATS, RECORD_BATCH)
_SEQUENCE: Final = ("producer_id", "producer_epoch", "sequence")


async def produce(call: Call) -> web.Response:
    """POST /topics/{topic}, POST /topics/{topic}/partitions/{partition}"""
    body_type = call.content_type(_BODY_TYPES)
    if "Idempotency-Key" in call.request.headers:
        raise ApiError(
            NOT_OFFERED,
            "Idempotency-Key is not offered yet: use producer_id, producer_epoch and sequence",
        )
    with call.service.hold(0) as hold:
        if body_type == RECORD_BATCH:
            return await _produce_batches(call, hold)
        return await _produce_records(call, hold, RECORD_FORMATS[body_type])


async def new_producer(call: Call) -> web.Response:
    """POST /producers"""
    call.params()
    await call.json_body(dict[str, object])
    producer_id = await call.service.new_producer_id()
    return call.json({"producer_id": producer_id, "producer_epoch": 0})


async def _produce_records(call: Call, hold: Hold, body_format: Format) -> web.Response:
    params = call.params("acks", "timeout", "compression", "format", *_SEQUENCE)
    acks = params.choice("acks", ACKS, Acks.ALL)
    store = call.service.store
    compressions = MESSAGE_COMPRESSIONS if store.capabilities.messages else COMPRESSIONS
    compression = params.choice("compression", compressions, None)
    timeout_ms = params.integer("timeout", None, low=1, high=call.settings.max_wait_ms)
    producer = _sequence(params)
    body_format = params.choice("format", FORMATS, body_format)
    body = await call.body(hold)
    settings = call.settings
    limits = Limits(settings.max_records_per_request, settings.max_json_depth)
    decoded = decode_produce(body, body_format, limits)
    _check_partitions(decoded, call.partition_number)
    all_or_nothing = producer is not None or acks is Acks.NONE
    if not decoded.records or (all_or_nothing and decoded.failed):
        return _answer(call, decoded, [])
    runs = await call.service.produce(
        Produce(
            topic=call.topic,
            records=decoded.records,
            hold=hold,
            size_bytes=len(body),
            partition=call.partition_number,
            partitions=decoded.partitions,
            acks=acks,
            timeout_ms=timeout_ms,
            compression=compression,
            producer=producer,
            born_host=call.peer if store.capabilities.messages else None,
        )
    )
    if acks is Acks.NONE:
        return call.json(ProduceAnswer(None), status=202)
    return _answer(call, decoded, runs, _record_ids(store, call.topic))


async def _produce_batches(call: Call, hold: Hold) -> web.Response:
    params = call.params("acks", "timeout")
    acks = params.choice("acks", ACKS, Acks.ALL)
    timeout_ms = params.integer("timeout", None, low=1, high=call.settings.max_wait_ms)
    body = await call.body(hold)
    if not body:
        raise ApiError(PAYLOAD, "the body is empty: send one or more record batches")
    runs = await call.service.produce_batches(
        ProduceBatches(
            topic=call.topic,
            data=body,
            hold=hold,
            partition=call.partition_number,
            acks=acks,
            timeout_ms=timeout_ms,
        )
    )
    if acks is Acks.NONE:
        return call.json(ProduceAnswer(None), status=202)
    last_offsets = [run.base_offset + len(run.positions) - 1 for run in runs]
    rows = [
        BatchOffsetRow(run.partition, run.base_offset, last)
        for run, last in zip(runs, last_offsets, strict=True)
    ]
    return call.json(ProduceAnswer(rows))


def _sequence(params: Params) -> ProducerSequence | None:
    """The producer's id, epoch and sequence: all of them or none."""
    given = [name for name in _SEQUENCE if params.text(name) is not None]
    if not given:
        return None
    if len(given) < len(_SEQUENCE):
        missing = next(name for name in _SEQUENCE if name not in given)
        raise ApiError(
            MALFORMED, f"query parameter {missing} is missing: it belongs to {', '.join(given)}"
        )
    return ProducerSequence(
        params.integer("producer_id", 0, low=0),
        params.integer("producer_epoch", 0, low=0, high=(1 << 15) - 1),
        params.integer("sequence", 0, low=0, high=(1 << 31) - 1),
    )


def _check_partitions(decoded: Produced, path_partition: int | None) -> None:
    """Records posted to a partition cannot name another one."""
    if path_partition is None or decoded.partitions is None:
        return
    for position, number in zip(decoded.positions, decoded.partitions, strict=True):
        if number not in {None, path_partition}:
            raise ApiError(
                PAYLOAD,
                f"records[{position}].partition is {number}, and the path says {path_partition}",
            )


def _answer(
    call: Call,
    decoded: Produced,
    runs: Sequence[Run],
    record_id: Callable[[int, int], str] | None = None,
) -> web.Response:
    """200 if any record was stored; else the first record's error speaks for all, with every row
    beside it. `record_id` as in `offset_rows`.
    """
    rows = offset_rows(decoded.count, runs, decoded.positions, decoded.failed, record_id=record_id)
    if any(run.error is None for run in runs):
        return call.json(ProduceAnswer(rows))
    raise _all_failed(rows, decoded, runs)


def _record_ids(store: LogStore, topic: str) -> Callable[[int, int], str] | None:
    """How an answer names a record by partition and locator, None where it does not."""
    if not store.capabilities.messages:
        return None
    return lambda number, locator: store.record_id(TopicPartition(topic, number), locator)


def _all_failed(rows: Sequence[OffsetRow], decoded: Produced, runs: Sequence[Run]) -> ApiError:
    first = next(row for row in rows if row.error_code is not None)
    facts: dict[str, object] = {"offsets": rows}
    for run in runs:
        if run.error is not None and rows[decoded.positions[run.positions[0]]] is first:
            facts |= as_api_error(run.error).facts
    return ApiError(first.error_code or PAYLOAD, first.error or "", facts=facts)
