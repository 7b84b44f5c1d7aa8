"""Descriptions of the message calls. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from typing import Final

from api.description.doc import Answer, Doc, Example, plain
from api.description.parameters import (
    BEGIN,
    CURSOR,
    DIRECTION,
    END,
    FORMAT,
    KEY,
    LIMIT,
    SCAN,
    TAG,
    UNIQUE_ID,
)
from api.handlers.messages import FoundAnswer
from api.records.rendering import RecordRow

PART: Final = "Query"
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

FIND: Final = Doc(
    id="findMessages",
    tag=PART,
    summary="Records of a topic by key, id, tag or time",
    about="A record must match every given parameter; without any, every record matches. A query reads a bounded "
    "number of records: `scanned`. While `complete` is false, `next` is the path of the next page of the same query: follow "
    "it, even if `records` is empty.",
    query=(KEY, UNIQUE_ID, TAG, BEGIN, END, LIMIT, CURSOR, DIRECTION, SCAN, FORMAT),
    answers=(Answer(200, "One page of matching records.", plain(FoundAnswer)),),
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
GET_MESSAGE: Final = Doc(
    id="getMessage",
    tag=PART,
    summary="One record by its id",
    query=(FORMAT,),
    answers=(Answer(200, "The record.", plain(RecordRow)),),
    errors=(40404, 42201, 50010),
    examples=(Example(query={"format": "json"}, answer=_ROW),),
)
