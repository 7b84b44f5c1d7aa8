"""The columns of a DataFrame: the columns of Spark's Kafka source, in its order, then RocketMQ's own columns.

Owns their names, their types, and the column of `storage.contract` that each is made of. Must not know Spark's or
Arrow's classes.

    key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>              with includeHeaders; null if a record has none
    tag STRING, keys ARRAY<STRING>, ...                            of a RocketMQ store

`.schema(...)` may select any of them, in any order; other columns are not decoded. A Kafka store has `tag` and `keys`
too (its headers TAGS and KEYS), so that one DataFrame program works with both formats.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from storage import columns as stored
from storage.errors import InvalidArgument


class Column(NamedTuple):
    """A column: its type in Spark's notation, and the stored column it is made of (None: topic or partition)."""

    type: str
    stored: str | None


TEXT: Final = "string"
TIME: Final = "timestamp"

_KAFKA: Final = {
    "key": Column("binary", stored.KEY),
    "value": Column("binary", stored.VALUE),
    "topic": Column(TEXT, None),
    "partition": Column("int", None),
    "offset": Column("bigint", stored.OFFSET),
    "timestamp": Column(TIME, stored.TIMESTAMP),
    "timestampType": Column("int", stored.TIMESTAMP_TYPE),
}
_HEADERS: Final = {"headers": Column("array<struct<key:string,value:binary>>", stored.HEADERS)}
_LOOKUP: Final = {
    "tag": Column(TEXT, stored.TAG),
    "keys": Column("array<string>", stored.KEYS),
}
_MESSAGE: Final = {
    "properties": Column("map<string,string>", stored.PROPERTIES),
    "message_id": Column(TEXT, stored.MESSAGE_ID),
    "unique_id": Column(TEXT, stored.UNIQUE_ID),
    "store_timestamp": Column(TIME, stored.STORE_TIMESTAMP),
    "born_timestamp": Column(TIME, stored.TIMESTAMP),
    "physical_offset": Column("bigint", stored.PHYSICAL_OFFSET),
    "sys_flag": Column("int", stored.SYS_FLAG),
    "flag": Column("int", stored.FLAG),
    "reconsume_times": Column("int", stored.RECONSUME_TIMES),
    "born_host": Column(TEXT, stored.BORN_HOST),
    "store_host": Column(TEXT, stored.STORE_HOST),
    "suspect": Column("array<string>", stored.SUSPECT),
}

COLUMNS: Final[Mapping[str, Column]] = {**_KAFKA, **_HEADERS, **_LOOKUP, **_MESSAGE}
_BY_SMALL_NAME: Final = {name.lower(): name for name in COLUMNS}


def default_schema(backend: str, *, headers: bool) -> str:
    """Return the columns of a read without an explicit schema, as DDL."""
    found = {**_KAFKA, **(_HEADERS if headers else {})}
    if backend == "rocketmq":
        found |= {**_LOOKUP, **_MESSAGE}
    return ", ".join(f"{name} {column.type}" for name, column in found.items())


def check_schema(fields: Iterable[tuple[str, str]], backend: str) -> Sequence[str]:
    """Return the columns of a schema, given as (name, type in Spark's notation), by their names in COLUMNS.

    Raises InvalidArgument for an unknown name, a wrong type, or a schema without columns.
    """
    found = [_checked(name, kind, backend) for name, kind in fields]
    if not found:
        raise InvalidArgument("schema: it has no column; one of any kind will do", field="schema")
    return found


def _checked(name: str, kind: str, backend: str) -> str:
    known = _BY_SMALL_NAME.get(name.lower())
    if known is None:
        near = difflib.get_close_matches(name.lower(), _BY_SMALL_NAME, n=1)
        hint = (
            f"did you mean {_BY_SMALL_NAME[near[0]]}?" if near else f"known: {', '.join(COLUMNS)}"
        )
        raise InvalidArgument(f"schema: column {name!r} is unknown: {hint}", field=name)
    if known in _MESSAGE and backend != "rocketmq":
        raise InvalidArgument(f"schema: a {backend} store has no column {known!r}", field=name)
    if kind != COLUMNS[known].type:
        reason = f"is of type {COLUMNS[known].type}, not {kind}"
        raise InvalidArgument(
            f"schema: column {known!r} {reason}; cast it when it is read", field=name
        )
    return known


def stored_columns(names: Iterable[str]) -> frozenset[str]:
    """Return the columns of `storage.contract` that the named columns are made of."""
    return frozenset(COLUMNS[name].stored or "" for name in names) - {""}
