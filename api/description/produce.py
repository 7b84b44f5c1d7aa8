"""Descriptions of the produce calls. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from api.description.doc import (
    OCTETS,
    Answer,
    Doc,
    Example,
    Lines,
    OneOf,
    Shape,
    plain,
)
from api.description.parameters import (
    ACKS,
    COMPRESSION,
    FORMAT,
    IDEMPOTENCY_KEY,
    PRODUCE_TIMEOUT,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SEQUENCE,
    X_HEADER,
    X_KEY,
    X_KEY_BASE64,
    X_TAG,
)
from api.handlers.produce import NewProducer
from api.http.errors import JSON
from api.http.negotiation import (
    BINARY_V2_JSON,
    JSON_V2_JSON,
    NDJSON,
    OCTET_STREAM,
    RECORD_BATCH,
    V2_JSON,
)
from api.records.rendering import BatchOffsetRow, OffsetRow, ProduceAnswer
from api.records.schema import BinaryRecord, Body, JsonRecord, TextRecord
from logserver.tokens import Scope

TAG: Final = "Produce"
_ABOUT: Final = (
    "One row per record comes back, in order. A record that fails alone has its error in its row, and the others are "
    "stored; if none is stored, the first error is the answer, with all rows in `offsets`. A record without "
    "`partition` goes by the hash of its key. Producing to an unknown topic creates it (setting "
    "`auto_create_topics`). NDJSON is a record per line, read and answered as it arrives: send and read at the same "
    "time; a line that fails has its error in its line of the answer. A plain body is one record, unchanged."
)
_BINARY: Final = OneOf((Body[BinaryRecord], Body[TextRecord], Body[JsonRecord]))
_LINES: Final = Lines(OneOf((BinaryRecord, TextRecord, JsonRecord)))
BODIES: Final[Mapping[str, Shape]] = {
    JSON_V2_JSON: _BINARY,
    BINARY_V2_JSON: _BINARY,
    V2_JSON: _BINARY,
    JSON: _BINARY,
    RECORD_BATCH: OCTETS,
    NDJSON: _LINES,
    OCTET_STREAM: OCTETS,
}
ERRORS: Final = (
    40401, 40402, 40904, 40905, 41302, 42201, 42202, 42203, 42206, 42207, 42208, 42209, 50302, 50401, 50701,
)  # fmt: skip
_ROW: Final = {"partition": 0, "offset": 2, "error_code": None, "error": None}


def _answered(*rows: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"offsets": list(rows), "key_schema_id": None, "value_schema_id": None}


_EXAMPLES: Final = (
    Example(
        media_type=JSON_V2_JSON,
        body={"records": [{"key": "k1", "value": {"total": 12}}]},
        answer=_answered(_ROW),
    ),
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

_ANSWERS: Final = (
    Answer(
        200,
        "At least one record was stored.",
        {
            **plain(OneOf((ProduceAnswer[OffsetRow], ProduceAnswer[BatchOffsetRow]))),
            NDJSON: Lines(OffsetRow),
        },
    ),
    Answer(
        202,
        "With `acks=0`: checked, not yet stored.",
        {**plain(ProduceAnswer[OffsetRow]), NDJSON: Lines(OffsetRow)},
    ),
)
_QUERY: Final = (
    ACKS,
    PRODUCE_TIMEOUT,
    COMPRESSION,
    FORMAT,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    SEQUENCE,
)
_HEADERS: Final = (IDEMPOTENCY_KEY, X_KEY, X_KEY_BASE64, X_TAG, X_HEADER)

PRODUCE: Final = Doc(
    id="produce",
    tag=TAG,
    summary="Produce records to a topic",
    about=_ABOUT,
    scope=Scope.PRODUCE,
    query=_QUERY,
    headers=_HEADERS,
    bodies=BODIES,
    answers=_ANSWERS,
    errors=ERRORS,
    examples=_EXAMPLES,
)
PRODUCE_TO_PARTITION: Final = replace(
    PRODUCE,
    id="produceToPartition",
    summary="Produce records to a partition",
    examples=_EXAMPLES[:1],
)
NEW_PRODUCER: Final = Doc(
    id="newProducer",
    tag=TAG,
    summary="Create a producer id",
    about="For `producer_id`, `producer_epoch` and `sequence` of a produce request: a repeat of it is stored once.",
    scope=Scope.PRODUCE,
    bodies=plain(dict[str, object]),
    body_required=False,
    answers=(Answer(200, "An id that no other producer has.", plain(NewProducer)),),
    errors=(50701,),
    examples=(Example(answer={"producer_id": 1125899906842624, "producer_epoch": 0}),),
)
