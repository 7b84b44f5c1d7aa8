"""Produce in the v3 API: a stream of objects answered by reports, or a batch of entries with ids.

Owns the encoding of reports, and the batch; must not define shapes (`api.v3.records`) or run the stream
(`api.records.stream`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from api.http.errors import ApiError
from api.records.produce_options import born_host, refuse_key, request_of
from api.records.splitter import Bounds, Item, ObjectSplitter
from api.records.stream import ProduceStream
from api.request_context import RequestContext
from api.v3.records import (
    BatchFailure,
    BatchSuccess,
    ProduceBatchEntry,
    ProduceBatchResponse,
    ProduceFailure,
    ProduceResponse,
    TypedRecords,
    decode_batch,
    decode_typed,
    reports_of,
)
from logserver.service.requests import AppendOutcome, ProduceOptions
from storage import wall_clock_ms
from storage.shown import encode_json


async def produce_records(call: RequestContext) -> web.StreamResponse:
    """Handle POST /v3/clusters/{cluster_id}/topics/{topic}/records."""
    call.params()
    call.content_type()
    refuse_key(call, "each record of a stream is stored by itself, or fails by itself")
    settings = call.settings
    dialect = _Objects(
        bounds=Bounds(settings.max_body_bytes, settings.max_json_depth),
        cluster_id=call.cluster_id,
        topic=call.topic,
        append_time=not call.service.store.capabilities.messages,
    )
    return await ProduceStream(call, dialect, ProduceOptions(born_host=born_host(call))).run()


async def produce_batch(call: RequestContext) -> web.Response:
    """Handle POST /v3/clusters/{cluster_id}/topics/{topic}/records:batch."""
    call.params()
    call.content_type()
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
        if decoded.records:
            options = ProduceOptions(born_host=born_host(call))
            request = request_of(
                call, decoded, options, reservation=reservation, size_bytes=len(body)
            )
            runs = await call.service.produce(request)

    def success(position: int, told: Mapping[str, Any]) -> BatchSuccess:
        return BatchSuccess(id=ids[position], cluster_id=cluster_id, topic_name=call.topic, **told)

    successes, failures = [], []
    reports = reports_of(decoded, runs, success, append_time=append_time)
    for entry_id, report in zip(ids, reports, strict=True):
        if isinstance(report, ApiError):
            failures.append(BatchFailure(entry_id, report.error_code, report.message))
        else:
            successes.append(report)
    return call.json(ProduceBatchResponse(successes, failures), status=207)


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
        found = reports_of(decoded, runs, self._stored, append_time=self.append_time)
        return b"".join(
            self.last_word(report)
            if isinstance(report, ApiError)
            else encode_json(report) + b"\r\n"
            for report in found
        )

    def last_word(self, error: ApiError) -> bytes:
        failure = ProduceFailure(error.error_code, error.message)
        return encode_json(failure) + b"\r\n"

    def _stored(self, position: int, told: Mapping[str, Any]) -> ProduceResponse:
        return ProduceResponse(cluster_id=self.cluster_id, topic_name=self.topic, **told)
