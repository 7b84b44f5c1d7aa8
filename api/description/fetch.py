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
    about="From any position, with an optional wait. Continue at `X-Next-Offset`, not after the last record: it also "
    "skips hidden records. An empty list means that no record came in time. Bytes that the format cannot show give "
    "`null`, with the bytes in `value_b64` and the reason in `error`. Whole record batches come as they are stored, on "
    "Kafka's stores only; the first may begin before the requested offset. As `application/x-ndjson` or "
    "`text/event-stream` the answer is a stream that continues with new records; its last line gives the reason of an "
    "early end.",
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
                "X-Next-Offset": "The offset to continue at.",
                "X-Beginning-Offset": "The partition's first offset.",
                "X-End-Offset": "The offset of the next record to be stored.",
                "ETag": "The tag of a page that later records do not change.",
            },
        ),
        Answer(304, "The page with this tag is still valid."),
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
        Example("wait for new records", query={"offset": "latest", "timeout": "10"}, answer=[]),
        Example(
            "every stored record, as lines", query={"follow": "false"}, headers={"Accept": NDJSON}
        ),
        Example(
            "events after the last one received",
            query={"max_records": "1"},
            headers={"Accept": EVENT_STREAM, "Last-Event-ID": "0:0"},
        ),
        Example("whole batches", headers={"Accept": RECORD_BATCH}, backends=("kafka",)),
    ),
)
