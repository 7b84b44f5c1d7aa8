"""Random messages of the message table: values of every type, in every version of a field."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

from storage.kafka.format.messages.schema import STRUCT, Field, Message, messages

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED: Final = {"uint16": 16, "uint32": 32}
TEXTS: Final = ("", "a", "orders", "\u00e4\u6f22\U0001f600", "x" * 200)
RECORDS: Final = "records"  # Kafka's classes require whole batches in these fields


def random_fields(schema: Sequence[Field], version: int, seed: random.Random) -> dict[str, Any]:
    """Return a value for each field of a version; tagged fields sometimes get their default."""
    fields: dict[str, Any] = {}
    for field in schema:
        if version in field.tagged and seed.random() < 0.4:
            fields[field.name] = field.default
        elif version in field.tagged or version in field.versions:
            fields[field.name] = _value(field, version, seed)
    return fields


def _value(field: Field, version: int, seed: random.Random) -> Any:
    if version in field.nullable and seed.random() < 0.25:
        return None
    if field.is_array:
        return [_one(field, version, seed) for _ in range(seed.choice((0, 1, 2, 3)))]
    return _one(field, version, seed)


def _one(field: Field, version: int, seed: random.Random) -> Any:
    if field.type == STRUCT:
        return random_fields(field.fields, version, seed)
    if field.type in _BITS:
        half = 1 << (_BITS[field.type] - 1)
        return seed.choice((-half, half - 1, 0, seed.randrange(-half, half)))
    if field.type in _UNSIGNED:
        return seed.randrange(1 << _UNSIGNED[field.type])
    if field.type == "uuid":
        return seed.randbytes(16)
    if field.type == "float64":
        return seed.choice((0.0, -1.5, 1e300))
    if field.type == "bool":
        return seed.random() < 0.5
    return seed.choice(TEXTS) if field.type == "string" else seed.randbytes(seed.choice((0, 1, 70)))


def has_records(schema: Sequence[Field]) -> bool:
    """Return whether a message contains record batches."""
    return any(field.type == RECORDS or has_records(field.fields) for field in schema)


def every_version() -> Iterator[tuple[Message, int]]:
    """Yield each message of the table in each of its versions."""
    for message in messages().values():
        for version in message.versions:
            yield message, version
