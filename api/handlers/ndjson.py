"""Produce as NDJSON: one record per line, and one line of the answer for each.

Owns the encoding of these lines; must not run the stream: `api.records.stream` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from api.description.parameters import FORMAT
from api.http.errors import ApiError
from api.http.negotiation import NDJSON, Format, negotiate
from api.records.produce_options import SEQUENCED, read_options, record_ids, refuse_key
from api.records.rendering import OffsetRow, RecordNames, offset_rows
from api.records.schema import Limits, Produced, decode_records
from api.records.splitter import Bounds, Item, LineSplitter
from api.records.stream import ProduceStream
from api.request_context import RequestContext
from logserver.service.requests import AppendOutcome
from storage.shown import encode_json_lines

_BY_ITSELF: Final = "each record of a stream is stored by itself, or fails by itself"


async def produce_lines(call: RequestContext) -> web.StreamResponse:
    """Handle POST of application/x-ndjson to a topic or a partition."""
    call.answer_type = negotiate(call.request.headers.get("Accept"), (NDJSON,))
    params = call.params()
    params.refuse(SEQUENCED, _BY_ITSELF)
    refuse_key(call, _BY_ITSELF)
    options = read_options(call, params)
    settings = call.settings
    dialect = _Lines(
        params.get(FORMAT) or Format.BINARY,
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
