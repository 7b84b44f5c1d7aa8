"""A message's properties as a column: separated into the fields of a record.

Owns the meaning of the names in `properties`, which a read returns all together; must not know Arrow. A value that
another column of the row also has must be equal there, and is used once:

    TAGS, KEYS, __SHARDINGKEY    tag, lookup keys and key
    UNIQ_KEY, WAIT               kept as they are; UNIQ_KEY is also the column unique_id
    __LOGSERVER_SEQ              ignored: it marks an append of its store
    any other                    a header
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from storage import Header, Record
from storage.errors import UnrepresentableRecord

T = TypeVar("T")
UNIQUE_ID: Final = "UNIQ_KEY"
_KEPT: Final = (UNIQUE_ID, "WAIT")
_PASSED: Final = "__LOGSERVER_SEQ"
_KEY: Final = "__SHARDINGKEY"


class Parts(NamedTuple):
    """The columns of some rows. The first six are in a Record's order."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]
    times: Sequence[int | None]
    tags: Sequence[str | None]
    lookups: Sequence[Sequence[str]]
    unique_ids: Sequence[str | None] | None
    properties: Sequence[Sequence[tuple[str, str | None]] | None] | None


def with_properties(parts: Parts) -> list[Record]:
    """Return the records of rows that have properties or unique ids. Raises UnrepresentableRecord with `index`."""
    rows = len(parts.values)
    properties = parts.properties or [None] * rows
    unique_ids = parts.unique_ids or [None] * rows
    return [
        _record(Record(*row), dict(given or ()), unique_id, index)
        for index, (row, given, unique_id) in enumerate(
            zip(zip(*parts[:6], strict=True), properties, unique_ids, strict=True)
        )
    ]


def _record(
    record: Record, given: dict[str, str | None], unique_id: str | None, index: int
) -> Record:
    given.pop(_PASSED, None)
    kept = {name: text for name in _KEPT if (text := given.pop(name, None)) is not None}
    if unique_id is not None:
        kept[UNIQUE_ID] = _same(kept.get(UNIQUE_ID), unique_id, "unique_id", index)
    key_text = given.pop(_KEY, None)
    key = record.key if key_text is None else _same(record.key, key_text.encode(), "key", index)
    tag_text = given.pop("TAGS", None)
    tag = record.tag if tag_text is None else _same(record.tag, tag_text, "tag", index)
    return record._replace(
        key=key,
        tag=tag,
        lookup_keys=record.lookup_keys or _lookups(given.pop("KEYS", None), key),
        headers=_headers(record.headers, {n: v for n, v in given.items() if n != "KEYS"}, index),
        properties=kept or None,
    )


def _same(column: T | None, given: T, field: str, index: int) -> T:
    if column is not None and column != given:
        raise UnrepresentableRecord(
            f"record {index}: {field}: properties tell {given!r}, its own column {column!r}",
            field=field,
            index=index,
        )
    return given


def _lookups(text: str | None, key: bytes | None) -> Sequence[str]:
    """Return the words of KEYS without the record's key, which a store adds by itself."""
    found = text.split() if text else []
    own = None if key is None else key.decode()
    if own in found:
        found.remove(own)
    return found


def _headers(
    headers: Sequence[Header], given: Mapping[str, str | None], index: int
) -> Sequence[Header]:
    there = dict(headers)
    added = []
    for name, text in given.items():
        value = None if text is None else text.encode()
        if name in there:
            _same(there[name], value, "headers", index)
        else:
            added.append((name, value))
    return (*headers, *added)
