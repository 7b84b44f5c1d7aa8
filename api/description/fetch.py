"""Descriptions of the fetch calls. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from api.description.doc import OCTETS, Answer, Doc, Example, Lines, plain
from api.description.parameters import (
    FETCH_TIMEOUT,
    FOLLOW,
    FORMAT,
    IF_NONE_MATCH,
    ISOLATION,
    LAST_EVENT_ID,
    MAX_BYTES,
    MAX_RECORDS,
    MIN_BYTES,
    OFFSET,
    TAG,
)
from api.http.negotiation import EVENT_STREAM, JSON_V2_JSON, NDJSON, RECORD_BATCH
from api.records.rendering import RecordRow

_ROW: Final = {
    "topic": "orders",
    "partition": 0,
    "offset": 0,
    "timestamp": 1760000000000,
    "key": "ImsxIg==",
    "value": "eyJ0b3RhbCI6MTJ9",
    "headers": [],
}

FETCH: Final = Doc(
    id="fetch",
    tag="Fetch",
    summary="Records of a partition",
    about="From any place, waiting for them if asked. Go on from `X-Next-Offset`, not from the last record: it gets "
    "past what is not shown. An empty list means that nothing came in time. Bytes that the format cannot show give "
    "`null`, with the bytes in `value_b64` and the reason in `error`. Whole record batches come as they are stored, on "
    "Kafka's stores only; the first may begin before the offset asked for. As `application/x-ndjson` or "
    "`text/event-stream` the answer is a stream that goes on with what comes; its last line says why it ended early.",
    query=(
        OFFSET,
        MAX_RECORDS,
        MAX_BYTES,
        MIN_BYTES,
        FETCH_TIMEOUT,
        ISOLATION,
        TAG,
        FORMAT,
        FOLLOW,
    ),
    headers=(IF_NONE_MATCH, LAST_EVENT_ID),
    answers=(
        Answer(
            200,
            "The records.",
            {
                **plain(Sequence[RecordRow]),
                RECORD_BATCH: OCTETS,
                NDJSON: Lines(RecordRow),
                EVENT_STREAM: Lines(RecordRow),
            },
            headers={
                "X-Next-Offset": "Where to read on.",
                "X-Beginning-Offset": "The partition's first offset.",
                "X-End-Offset": "The next offset to be given.",
                "ETag": "Of a page that later records do not change.",
            },
        ),
        Answer(304, "The page that was kept still holds."),
    ),
    errors=(40401, 40402, 41601, 42207, 50302, 50010),
    examples=(
        Example(query={"max_records": "1"}, answer=[_ROW]),
        Example(
            "the last, as JSON",
            query={"offset": "-1"},
            headers={"Accept": JSON_V2_JSON},
            answer=[{**_ROW, "offset": 1, "key": "k2", "value": {"total": 7}}],
        ),
        Example("wait for what comes", query={"offset": "latest", "timeout": "10"}, answer=[]),
        Example(
            "all that is there, as lines", query={"follow": "false"}, headers={"Accept": NDJSON}
        ),
        Example(
            "events behind the one seen last",
            query={"max_records": "1"},
            headers={"Accept": EVENT_STREAM, "Last-Event-ID": "0:0"},
        ),
        Example("whole batches", headers={"Accept": RECORD_BATCH}, backends=("kafka",)),
    ),
)
