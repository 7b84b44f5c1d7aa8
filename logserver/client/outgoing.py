"""Conversion of a program's values to the body of a produce request: pure.

Owns how values become bytes, and the JSON form of records in a request (keys, values and headers in base64, so that
any bytes can be sent); must not know connections.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct

from storage import Header, Record

Bytes: TypeAlias = bytes | bytearray | memoryview
Value: TypeAlias = "Bytes | str | int | float | bool | Mapping[str, Any] | Sequence[Any] | None"
"""A value that can be sent: bytes unchanged, text as UTF-8, None as no value, any other value as JSON."""

CHUNK_BYTES: Final = 64 << 10

Headers: TypeAlias = "Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]"


class RecordParts(TypedDict, total=False):
    """The parts of a record other than its value; see `as_record`."""

    key: Value
    headers: Headers
    timestamp_ms: int | None
    tag: str | None
    lookup_keys: Sequence[str]
    properties: Mapping[str, str] | None


class _Header(Struct, gc=False):
    key: str
    value: bytes | None


class _Record(Struct, omit_defaults=True, gc=False):
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[_Header] = ()
    timestamp: int | None = None
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None


class _Body(Struct):
    records: Sequence[_Record]


def as_bytes(value: Value) -> bytes | None:
    """Convert a key or a value to bytes. Raises ValueError for NaN and infinities, which JSON does not have.

    >>> as_bytes("é"), as_bytes({"n": 1}), as_bytes(0), as_bytes(None), as_bytes(bytearray(b"\\0"))
    (b'\\xc3\\xa9', b'{"n":1}', b'0', None, b'\\x00')
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    encoded = msgspec.json.encode(value)  # NaN and infinities become null
    if b"null" in encoded and not _is_finite(msgspec.to_builtins(value)):
        raise ValueError("JSON has no NaN and no infinities")
    return encoded


def as_record(value: Value, **parts: Unpack[RecordParts]) -> Record:
    """Return a record to produce.

    >>> as_record({"n": 1}, key="k", headers={"h": "x"}).headers
    [('h', b'x')]
    """
    return Record(
        as_bytes(parts.get("key")),
        as_bytes(value),
        _as_headers(parts.get("headers", ())),
        parts.get("timestamp_ms"),
        parts.get("tag"),
        parts.get("lookup_keys", ()),
        parts.get("properties"),
    )


def produce_body(records: Iterable[Record]) -> bytes:
    """Return the body of a produce request in the binary format."""
    return msgspec.json.encode(_Body([_as_row(record) for record in records]))


async def produce_lines(
    records: Iterable[Record] | AsyncIterable[Record],
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield the lines of a streamed produce request, each time with their number.

    Records of an iterable are joined to larger pieces; records of an asynchronous iterable are yielded as they
    arrive.
    """
    if isinstance(records, AsyncIterable):
        async for record in records:
            yield 1, produce_line(record)
        return
    lines: list[bytes] = []
    size_bytes = 0
    for record in records:
        lines.append(produce_line(record))
        size_bytes += len(lines[-1])
        if size_bytes >= CHUNK_BYTES:
            yield len(lines), b"".join(lines)
            lines, size_bytes = [], 0
    if lines:
        yield len(lines), b"".join(lines)


def produce_line(record: Record) -> bytes:
    """Return one line of a streamed produce request."""
    return msgspec.json.encode(_as_row(record)) + b"\n"


def _is_finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _as_row(record: Record) -> _Record:
    try:
        headers = [_Header(name, value) for name, value in record.headers] if record.headers else ()
    except AttributeError:
        message = f"{type(record).__name__} is not a Record: as_record(value) returns one"
        raise TypeError(message) from None
    return _Record(
        record.key,
        record.value,
        headers,
        record.timestamp_ms,
        record.tag,
        record.lookup_keys,
        record.properties,
    )


def _as_headers(headers: Headers) -> list[Header]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
