"""Produce in the Kafka REST v3 API: a stream of objects answered by reports, or a batch of entries with ids.

Owns these operations and the encoding of reports; must not define the shapes of records (`api.records.v3`) or run the
stream (`api.records.stream`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from api.connection.response_headers import WARNINGS
from api.http.errors import JSON, ApiError
from api.operation import Answer, Example, Lines, OneOf, Resource
from api.operations.v3.topics import TOPIC, V3_TOPICS
from api.records.produce_options import born_host, refuse_key, request_of, warn_of_times
from api.records.splitter import Bounds, Item, ObjectSplitter
from api.records.stream import ProduceStream
from api.records.v3 import (
    BatchFailure,
    BatchSuccess,
    ProduceBatchEntry,
    ProduceBatchRequest,
    ProduceBatchResponse,
    ProduceFailure,
    ProduceRequest,
    ProduceResponse,
    TypedRecords,
    decode_batch,
    decode_typed,
    reports_of,
)
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from logserver.service.requests import AppendOutcome, ProduceOptions
from storage import wall_clock_ms
from storage.display import encode_json

V3_PRODUCE: Final = Resource(V3_TOPICS.tag)

_ERRORS: Final = (404, 40401, 42203, 50302, 50701)
_RECORD: Final = {
    "key": {"type": "STRING", "data": "k1"},
    "value": {"type": "JSON", "data": {"total": 12}},
}


@V3_PRODUCE.post(
    f"{TOPIC}/records",
    Answer(200, "A report per record.", {JSON: Lines(OneOf((ProduceResponse, ProduceFailure)))}),
    bodies={JSON: Lines(ProduceRequest)},
    scope=Scope.PRODUCE,
    errors=_ERRORS,
    examples=(Example(media_type=JSON, body=_RECORD),),
)
async def v3_produce_records(call: RequestContext) -> web.StreamResponse:
    """Produce records, as a stream.

    JSON objects one after the other, without a limit of time; the answer begins at once and has a report per record, in
    order, each ended by CR LF: `error_code` 200, or the error of that record. Read the reports while you send.
    """
    refuse_key(call, "each record of a stream is stored by itself, or fails by itself")
    settings = call.settings
    dialect = _Objects(
        bounds=Bounds(settings.max_body_bytes, settings.max_json_depth),
        cluster_id=call.cluster_id,
        topic=call.topic,
        append_time=not call.service.store.capabilities.messages,
    )
    return await ProduceStream(call, dialect, ProduceOptions(born_host=born_host(call))).run()


@V3_PRODUCE.post(
    f"{TOPIC}/records:batch",
    Answer(
        207,
        "The result of each entry.",
        {JSON: ProduceBatchResponse},
        {WARNINGS: "The ids of entries whose time is far ahead of the server's clock."},
    ),
    bodies={JSON: ProduceBatchRequest},
    scope=Scope.PRODUCE,
    errors=_ERRORS,
    examples=(
        Example(
            media_type=JSON,
            body={"entries": [{"id": "1", **_RECORD}, {"id": "2", "value": {"type": "AVRO"}}]},
            status=207,
            answer={
                "successes": [{"id": "1", "partition_id": 0, "offset": 2}],
                "failures": [{"id": "2", "error_code": 42207, "message": "..."}],
            },
        ),
    ),
)
async def v3_produce_batch(call: RequestContext) -> web.Response:
    """Produce records, as a batch.

    Each entry has an id of its own; its report has the same id.
    """
    refuse_key(call, "the entries of a batch have ids for their reports only")
    cluster_id, settings = call.cluster_id, call.settings
    append_time = not call.service.store.capabilities.messages
    with call.service.budget.reserve(0) as reservation:
        body = await call.body(reservation)
        ids, entries = decode_batch(body, max_records=settings.max_records_per_request)
        decoded = decode_typed(
            entries,
            max_depth=settings.max_json_depth,
            now_ms=wall_clock_ms(),
            kind=ProduceBatchEntry,
        )
        runs: Sequence[AppendOutcome] = ()
        ahead: Sequence[int] = ()
        if decoded.records:
            options = ProduceOptions(born_host=born_host(call))
            request = request_of(
                call, decoded, options, reservation=reservation, size_bytes=len(body)
            )
            producer = call.service.producer
            runs = await producer.produce(request)
            ahead = producer.far_ahead(call.topic, decoded.records, runs)

    def success(position: int, fields: Mapping[str, Any]) -> BatchSuccess:
        return BatchSuccess(
            id=ids[position], cluster_id=cluster_id, topic_name=call.topic, **fields
        )

    successes, failures = [], []
    reports = reports_of(decoded, runs, success, append_time=append_time)
    for entry_id, report in zip(ids, reports, strict=True):
        if isinstance(report, ApiError):
            failures.append(BatchFailure(entry_id, report.error_code, report.message))
        else:
            successes.append(report)
    response = call.json(ProduceBatchResponse(successes, failures), status=207)
    warn_of_times(response, [ids[decoded.positions[index]] for index in ahead])
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objects:
    """Objects one after the other, and a report for each; each report ends with CR LF."""

    bounds: Bounds
    cluster_id: str
    topic: str
    append_time: bool

    def splitter(self) -> ObjectSplitter:
        return ObjectSplitter(self.bounds)

    def decode(self, items: Sequence[Item]) -> TypedRecords:
        return decode_typed(items, max_depth=self.bounds.max_depth, now_ms=wall_clock_ms())

    def reports(self, decoded: TypedRecords, runs: Sequence[AppendOutcome]) -> bytes:
        results = reports_of(decoded, runs, self._stored, append_time=self.append_time)
        return b"".join(
            self.last_word(report)
            if isinstance(report, ApiError)
            else encode_json(report) + b"\r\n"
            for report in results
        )

    def last_word(self, error: ApiError) -> bytes:
        failure = ProduceFailure(error.error_code, error.message)
        return encode_json(failure) + b"\r\n"

    def _stored(self, position: int, fields: Mapping[str, Any]) -> ProduceResponse:
        return ProduceResponse(cluster_id=self.cluster_id, topic_name=self.topic, **fields)
