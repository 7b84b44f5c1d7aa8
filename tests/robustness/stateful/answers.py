"""Answers of stores, in a form in which the store and the model must agree.

Owns the choice of the fields that count; must not know which operations exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from storage import LogStore, StorageError, StoredRecord, TopicPartition

Outcome = tuple[object, ...]


def content(record: StoredRecord) -> Outcome:
    """Return the fields of a stored record that both must agree on."""
    headers = [tuple(h) for h in record.headers if h[0] not in ("TAGS", "KEYS")]
    return (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        headers,
        record.tag,
        list(record.lookup_keys),
    )


def everything(partition: TopicPartition, store: LogStore) -> Sequence[Outcome]:
    """Return all readable records of a partition."""
    return [content(record) for record in store.scan(partition)]


def found_everywhere(
    store: LogStore, topic: str, limit: int, *, max_scanned: int = 7, **what: Any
) -> Sequence[Outcome]:
    """Return the records of all pages of a `find`, sorted: each backend has its own order."""
    found, cursor = list[Outcome](), None
    while True:
        page = store.find(topic, limit=limit, cursor=cursor, max_scanned=max_scanned, **what)
        found += [(number, *content(record)) for number, record in page.records]
        if page.complete:
            return sorted(found, key=lambda row: row[:2])
        cursor = page.cursor


def outcome(call: Callable[[LogStore], object], store: LogStore) -> object:
    """Return the answer, or the error's class and facts."""
    try:
        return call(store)
    except StorageError as error:
        return type(error), error.facts()


def is_error(answer: object) -> bool:
    """Return whether an outcome is an error."""
    return isinstance(answer, tuple) and isinstance(answer[0], type)
