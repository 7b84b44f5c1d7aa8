"""The columns of a row to be written: the columns of Spark's Kafka sink, and a store's own columns.

Owns their names and types. Must not know Spark's or Arrow's classes.

    value       string or binary                            required; null where the backend keeps nulls
    key         string or binary                            null: no key
    topic       string                                      unless option topic names one for all rows
    partition   int                                         null: by the key, as Kafka's producers do
    headers     array<struct<key:string,value:binary>>
    timestamp   timestamp                                   null: the clock
    tag         string
    keys        array<string>                               lookup keys
    unique_id   string                                      RocketMQ only
    properties  map<string,string>                          RocketMQ only; see `rows`

Columns of a read that a store assigns by itself (`offset`, `store_timestamp`, ...) are ignored, so that rows that were
read can be written again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from logserver.pipeline.read.schema import COLUMNS as READ
from storage.errors import InvalidArgument

_TEXT: Final = ("binary", "string")
TYPES: Final[Mapping[str, Sequence[str]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "tag": ("string",),
    "keys": ("array<string>",),
    "unique_id": ("string",),
    "properties": ("map<string,string>",),
}
_MESSAGES_ONLY: Final = ("unique_id", "properties")
_BY_SMALL_NAME: Final = {name.lower(): name for name in (*TYPES, *READ)}


def check_columns(
    fields: Iterable[tuple[str, str]], *, topic: str | None, messages: bool
) -> Mapping[str, int]:
    """Return the position of each column that is written, by its name in TYPES.

    `topic` is the option; `messages`: the target keeps RocketMQ's messages. Raises InvalidArgument if `fields`, the
    schema as (name, type in Spark's notation), does not fit.
    """
    found: dict[str, int] = {}
    for position, (name, kind) in enumerate(fields):
        known = _known(name)
        if known not in TYPES:
            continue
        if known in found:
            raise _misfit(known, "comes twice")
        if kind not in TYPES[known]:
            raise _misfit(known, f"is of type {kind}: it must be {' or '.join(TYPES[known])}")
        if known in _MESSAGES_ONLY and not messages:
            raise _misfit(known, "is RocketMQ's: a Kafka store keeps headers; drop it")
        found[known] = position
    if "value" not in found:
        raise _misfit("value", "is missing: every record has one (it may be null)")
    if "topic" not in found and topic is None:
        raise _misfit("topic", "is missing: give every row one, or all of them by option topic")
    return found


def _known(name: str) -> str:
    known = _BY_SMALL_NAME.get(name.lower())
    if known is None:
        near = difflib.get_close_matches(name.lower(), _BY_SMALL_NAME, n=1)
        hint = f"did you mean {_BY_SMALL_NAME[near[0]]}?" if near else f"known: {', '.join(TYPES)}"
        raise InvalidArgument(f"column {name!r} is unknown: {hint}", field=name)
    return known


def _misfit(column: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"column {column!r} {problem}", field=column)
