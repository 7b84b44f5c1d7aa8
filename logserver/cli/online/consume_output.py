r"""Output of the commands that read records: formats of a record, and a printer of records as they arrive.

Owns standard output of these commands. Records are written and flushed page by page, so that the reader of a pipe gets
each record at once. A record is printed as JSON, as a line of text, or by a format string like kcat's:

    %s  value            %S  its length, -1: null    %t  topic       \n \r \t  as usual
    %k  key              %K  its length, -1: null    %p  partition   \xNN      one byte
    %h  headers as n=v,  %T  timestamp in ms         %o  offset      %%        a percent sign
    %R  length of the value as four bytes, big-endian, signed
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from logserver.client import FetchedRecord
from storage.errors import InvalidArgument

STDOUT: Final = 1

Show: TypeAlias = Callable[[FetchedRecord], bytes]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PIECES: Final = re.compile(r"%(.)|%|\\x([0-9a-fA-F]{1,2})|\\(.)|\\|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}


def row(record: FetchedRecord) -> Mapping[str, object]:
    """Return a record as in the API's text format; data that is not UTF-8 is null, and its bytes are in `..._b64`."""
    shown: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_texts("key", record.key),
        **_texts("value", record.value),
        "headers": [{"key": name, **_texts("value", value)} for name, value in record.headers],
    }
    if record.tag is not None:
        shown["tag"] = record.tag
    if record.lookup_keys:
        shown["keys"] = record.lookup_keys
    for name in ("properties", "message_id", "store_timestamp_ms"):
        value = getattr(record, name)
        if value is not None:
            shown[name.removesuffix("_ms")] = value
    return shown


def as_json(record: FetchedRecord) -> bytes:
    """Format a record as one line of JSON."""
    return msgspec.json.encode(row(record)) + b"\n"


def as_line(record: FetchedRecord) -> bytes:
    """Format a record as one line of text: place, time, key and value."""
    moment = _EPOCH + timedelta(milliseconds=record.timestamp_ms) if _is_shown(record) else None
    time = "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    key = "-" if record.key is None else _line(record.key)
    value = "-" if record.value is None else _line(record.value)
    place = f"{record.topic}:{record.partition}:{record.offset}"
    return f"{place}  {time}  {key}  {value}\n".encode("utf-8", "backslashreplace")


def by_format(text: str, *, null: bytes = b"") -> Show:
    """Return a function that formats records by a format string. Raises InvalidArgument for a wrong string."""
    pieces: list[bytes | Show] = []
    for match in _PIECES.finditer(text):
        if match[0] == "%":
            raise InvalidArgument("the format ends within a %", field="format")
        token = match[1]
        pieces.append(_unescaped(match) if token is None else _token(token, null))
    return lambda record: b"".join(
        piece if isinstance(piece, bytes) else piece(record) for piece in pieces
    )


def unescaped(text: str) -> bytes:
    r"""Convert text with \n, \r, \t and \xNN to bytes.

    >>> unescaped(r"\t\x00,")
    b'\t\x00,'
    """
    pieces = (_unescaped(match) for match in _PIECES.finditer(text))
    return b"".join(pieces)


def _unescaped(match: re.Match[str]) -> bytes:
    _, digits, escape = match.groups()
    if digits is not None:
        return bytes([int(digits, 16)])
    return os.fsencode(match[0]) if escape is None else _ESCAPES.get(escape, os.fsencode(escape))


def _token(token: str, null: bytes) -> bytes | Show:
    fields: Mapping[str, Show] = {
        "s": lambda record: null if record.value is None else record.value,
        "k": lambda record: null if record.key is None else record.key,
        "S": lambda record: _length(record.value),
        "K": lambda record: _length(record.key),
        "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": lambda record: _headers(record, null),
    }
    if token == "%":
        return b"%"
    if token not in fields:
        known = " ".join(f"%{name}" for name in fields)
        raise InvalidArgument(f"the format has %{token}: allowed are {known} %%", field="format")
    return fields[token]


def _headers(record: FetchedRecord, null: bytes) -> bytes:
    pairs: Sequence[tuple[str, bytes | None]] = record.headers
    return b",".join(
        name.encode() + b"=" + (null if value is None else value) for name, value in pairs
    )


def _length(data: bytes | None) -> bytes:
    return b"%d" % _size(data)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _texts(name: str, data: bytes | None) -> Mapping[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_b64": data}


def _is_shown(record: FetchedRecord) -> bool:
    """Return whether the time has a calendar date that can be printed."""
    return 0 <= record.timestamp_ms < 253_402_300_800_000  # the year 10,000


def _line(data: bytes) -> str:
    """Return the text on one line."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@asynccontextmanager
async def until_reader_closes() -> AsyncIterator[None]:
    """Raise BrokenPipeError as soon as the reader of standard output closes it.

    A command that waits for records would not notice this before the next record.
    """
    loop, task, has_closed = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def leave() -> None:
        has_closed.set()
        loop.remove_reader(STDOUT)
        if task is not None:
            task.cancel()

    is_pipe = stat.S_ISFIFO(os.fstat(STDOUT).st_mode)
    if is_pipe:
        loop.add_reader(STDOUT, leave)  # never readable; reports when the reader closes its end
    try:
        yield
    except asyncio.CancelledError:
        if has_closed.is_set():
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(STDOUT)


class Printer:
    """A printer of records as they arrive. `left` records are still to be printed (None: any number)."""

    def __init__(self, show: Show, count: int | None) -> None:
        self._show = show
        self.left = count

    def write(self, records: Sequence[FetchedRecord]) -> bool:
        """Print and flush; return True if all wanted records have been printed."""
        taken = records if self.left is None else records[: self.left]
        sys.stdout.buffer.write(b"".join(map(self._show, taken)))
        sys.stdout.buffer.flush()
        if self.left is not None:
            self.left -= len(taken)
        return self.left == 0
