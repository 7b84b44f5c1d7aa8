"""Bytes of a stream to its records, without IO.

Owns where a record begins and ends, and how much of an incomplete record is kept; must not know the content of a
record, which a decoder reads. The result does not depend on how the bytes are cut into pieces. A record that is too
large or nested too deeply is skipped to its end without being kept, and an error takes its place.

    lines      {"value":1} LF {"value":2} CR LF        blank lines are ignored
    objects    {"value":{"data":1}} {"value":..}{...   white space between them is ignored
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from api.http.errors import MALFORMED, PAYLOAD, RECORD_TOO_LARGE, ApiError

Item: TypeAlias = bytes | ApiError

_OPEN_OBJECT: Final = ord("{")
_CLOSING: Final = frozenset({b"}", b"]"})
# Text outside strings, up to the next bracket or quote, or the end.
_NEXT: Final = re.compile(rb'[^{}\[\]"]*+([{}\[\]"]?)')
_BETWEEN: Final = re.compile(rb"[ \t\r\n]*+")

# Matches a whole flat object, which most are, in one step at a quarter of the cost. The quantifiers are possessive,
# so that nothing is kept for backtracking. Python before 3.11.5 loses its position where such a group fails
# (gh-106052); there every object is found by its brackets.
_FLAT_DEPTH: Final = 4
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = re.compile(
    reduce(
        lambda inner, _: rb'(?:[^{}\[\]"]++|%b|[{\[]%b[}\]])*+' % (_STRING, inner),
        range(_FLAT_DEPTH - 1),
        rb'(?:[^{}\[\]"]++|%b)*+' % _STRING,
    ).join((rb"\{", rb"[}\]]")),
    re.DOTALL,
)
HAS_FLAT: Final = re.findall(rb'^(?:x|"[^"]*+")*+', b'x"x') == [b"x"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one record."""

    max_bytes: int
    max_depth: int

    def too_large(self) -> ApiError:
        """Return the error for a record over `max_bytes`."""
        return ApiError(
            RECORD_TOO_LARGE,
            f"the record's JSON is larger than {self.max_bytes} bytes (max_body_bytes)",
            facts={"limit_bytes": self.max_bytes},
        )

    def too_deep(self) -> ApiError:
        """Return the error for a record nested deeper than `max_depth`."""
        return ApiError(PAYLOAD, f"the record is nested deeper than {self.max_depth} levels")


class _Pending:
    """The beginning of a record; dropped if it exceeds the limit."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._kept = bytearray()
        self._refused: ApiError | None = None

    @property
    def size_bytes(self) -> int:
        return len(self._kept)

    @property
    def begun(self) -> bool:
        """True if a record has begun, kept or not."""
        return bool(self._kept) or self._refused is not None

    def add(self, piece: bytes) -> None:
        """Keep one more piece."""
        if self._refused is None:
            self._kept += piece
            if len(self._kept) > self._bounds.max_bytes:
                self.refuse(self._bounds.too_large())

    def refuse(self, error: ApiError) -> None:
        """Drop this record and keep only the error; the last error counts."""
        self._refused = error
        self._kept = bytearray()

    def end_with(self, piece: bytes) -> Item:
        """Return the whole record, or its error, and begin the next one."""
        if not self._kept and self._refused is None and len(piece) <= self._bounds.max_bytes:
            return piece
        self.add(piece)
        item = self._refused or bytes(self._kept)
        self._kept = bytearray()
        self._refused = None
        return item


class Splitter:
    """A splitter of a stream into records. `ended`: no further record can be found."""

    def __init__(self, bounds: Bounds) -> None:
        self.ended = False
        self._bounds = bounds
        self._pending = _Pending(bounds)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes kept of an incomplete record."""
        return self._pending.size_bytes

    def feed(self, data: bytes) -> list[Item]:
        """Return the records that end in `data`; after an error that ends the stream, this error is the last item."""
        raise NotImplementedError

    def close(self) -> list[Item]:
        """Return the record that the end of the stream completes, or the error: at most one item."""
        raise NotImplementedError


class LineSplitter(Splitter):
    """One record per line; the last line may lack its line feed. Blank lines are skipped."""

    def feed(self, data: bytes) -> list[Item]:
        end = data.rfind(b"\n") + 1
        if end and not self._pending.begun and data[:end].isspace():
            self._pending.add(data[end:])
            return []  # a gzip body can hold millions of blank lines
        *lines, rest = data.split(b"\n")
        items = [self._pending.end_with(line) for line in lines]
        self._pending.add(rest)
        return _without_blank(items)

    def close(self) -> list[Item]:
        return _without_blank([self._pending.end_with(b"")])


class ObjectSplitter(Splitter):
    """JSON objects one after the other. Brackets are counted, not matched: the decoder does that.

    Anything other than white space between two objects ends the stream, because the start of the next record is
    unknown.
    """

    def __init__(self, bounds: Bounds, *, try_flat: bool = HAS_FLAT) -> None:
        super().__init__(bounds)
        self._try_flat = try_flat and bounds.max_depth >= _FLAT_DEPTH
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the last piece ended between a backslash and the escaped byte

    def feed(self, data: bytes) -> list[Item]:
        items: list[Item] = []
        position = 0
        while position < len(data) and not self.ended:
            if not self._depth:
                position = _end(_BETWEEN, data, position)
                if position == len(data):
                    break
                if data[position] != _OPEN_OBJECT:
                    self.ended = True
                    items.append(_no_object(data[position : position + 1]))
                    break
                flat = _FLAT.match(data, position) if self._try_flat else None
                if flat is not None:
                    items.append(self._pending.end_with(flat[0]))
                    position = flat.end()
                    continue
            begin, position = position, self._scan(data, position)
            if self._depth:
                self._pending.add(data[begin:position])
            else:
                items.append(self._pending.end_with(data[begin:position]))
        return items

    def close(self) -> list[Item]:
        if not self._depth or self.ended:
            return []
        return [ApiError(MALFORMED, "the stream ends within a record")]

    def _scan(self, data: bytes, position: int) -> int:
        """Return the position after the end of the current object, or the end of the data."""
        if self._in_string:
            position = self._scan_string(data, position)
        while position < len(data):
            match = _NEXT.match(data, position)
            assert match is not None  # the pattern matches any text
            position, mark = match.end(), match[1]
            if mark == b'"':
                position = self._scan_string(data, position)
            elif mark in _CLOSING:
                self._depth -= 1
                if not self._depth:
                    break
            elif mark:
                self._depth += 1
                if self._depth > self._bounds.max_depth:
                    self._pending.refuse(self._bounds.too_deep())
        return position

    def _scan_string(self, data: bytes, position: int) -> int:
        """Return the position after the closing quote of the string, or the end of the data."""
        while True:
            begin = position + self._escaped
            quote = data.find(b'"', begin)
            position = quote if quote >= 0 else len(data)
            before = data[begin:position]
            self._escaped = (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
            self._in_string = quote < 0 or self._escaped
            if quote < 0:
                return position
            if not self._escaped:
                return position + 1


def _end(pattern: re.Pattern[bytes], data: bytes, position: int) -> int:
    match = pattern.match(data, position)
    return position if match is None else match.end()


def _without_blank(items: list[Item]) -> list[Item]:
    return [item for item in items if isinstance(item, ApiError) or not _is_blank(item)]


def _is_blank(line: bytes) -> bool:
    return not line or line.isspace()


def _no_object(text: bytes) -> ApiError:
    return ApiError(
        MALFORMED,
        f"records are JSON objects one after the other, and {ascii(text)[1:]} begins none",
    )
