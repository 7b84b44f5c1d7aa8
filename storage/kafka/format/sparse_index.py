"""The sparse index files of a segment: `.index`, from logical offset to byte position in its `.log`, and `.timeindex`,
from the largest timestamp so far to a logical offset.

Owns their bytes; must not decide when an entry is due. Big-endian; from Kafka's OffsetIndex, TimeIndex and
AbstractIndex. While its segment is active, such a file has megabytes of zeros after a few entries. So the tail is
skipped in blocks, never entry by entry.

`.index`:

    position  bytes  field            note
    0         4      relative offset  LAST offset of a batch minus the segment's base offset, i32
    4         4      position         where that batch STARTS in the .log, i32
    8         ...    more entries     both fields strictly rising; zeros where preallocated

A segment's first batch never gets an entry, so both fields are above zero: eight zero bytes are
never an entry.

`.timeindex`:

    position  bytes  field            note
    0         8      timestamp        largest of the segment so far, ms, i64; strictly rising from 0
    8         4      relative offset  i32, from the base offset: LAST offset of the batch that first
                                      reached that timestamp
    12        ...    more entries     zeros where preallocated

Twelve zero bytes are an entry (time 0 at the base offset) in two cases: a later entry follows, or they
are the whole file, because files are preallocated for more than one entry. Anywhere else they are
zeros of the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from storage.errors import Corrupt, InvalidArgument, Truncated

_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)
_OFFSET_ENTRY: Final = Struct(
    ">"
    "i"  # relative offset
    "i"  # position
)
assert _OFFSET_ENTRY.size == 8
_TIME_ENTRY: Final = Struct(
    ">"
    "q"  # timestamp
    "i"  # relative offset
)
assert _TIME_ENTRY.size == 12


def content_end(data: bytes) -> int:
    """Return the position after the last byte that is not zero; 0 if all bytes are zero.

    Blocks are compared from the end (a memcmp each: 10 MB of zeros take about a millisecond), then
    the last block that is not all zeros is stripped byte by byte.
    """
    end = len(data)
    while end >= _BLOCK_BYTES and data[end - _BLOCK_BYTES : end] == _ZEROS:
        end -= _BLOCK_BYTES
    start = max(0, end - _BLOCK_BYTES)
    return start + len(data[start:end].rstrip(b"\0"))


def unpack_before(data: bytes, end: int, entry: Struct) -> list[Any]:
    """Return the whole entries that contain the bytes before `end`. The last entry may reach past `end`,
    because its own last bytes may be zero.

    With s = the entry's size these are ceil(end / s) entries, but no more than floor(len(data) / s).
    """
    count = min(-(-end // entry.size), len(data) // entry.size)
    return list(entry.iter_unpack(memoryview(data)[: count * entry.size]))


def require_end(kind: str, data: bytes, *, position: int, end: int, size_bytes: int) -> None:
    """Raise unless the good entries, which end at `position`, cover the content, which ends at `end`.

    Raises Truncated if an incomplete entry follows, else Corrupt.
    """
    if end <= position:
        return
    left = len(data) - position
    if left < size_bytes:
        raise Truncated(
            f"{kind}: {left} bytes at position {position}, an entry has {size_bytes}",
            kind=kind,
            position=position,
            needed=size_bytes,
        )
    raise Corrupt(
        f"{kind}: the entry at position {position} does not rise above the one before it",
        kind=kind,
        position=position,
        expected="a rising entry",
        found=data[position : position + size_bytes].hex(),
    )


class _Field(NamedTuple):
    """A number of an entry: its name, its text in messages, and its range."""

    name: str
    text: str
    lowest: int
    bits: int

    def check(self, value: int) -> None:
        if not self.lowest <= value < 1 << self.bits:
            bracket = "(" if self.lowest else "["
            raise InvalidArgument(
                f"{self.text.format(value)} is outside {bracket}0, 2^{self.bits})", field=self.name
            )


class SparseFormat:
    """The format of one kind of index file, in both directions."""

    def __init__(self, kind: str, entry: Struct, first: _Field, second: _Field) -> None:
        self.kind = kind
        self.entry_size = entry.size
        self.key_type = entry.format[1]  # of the first field, as `array` names it
        self._entry = entry
        self._first = first
        self._second = second
        self._has_zero_entry = not first.lowest

    def encode_entry(self, first: int, second: int) -> bytes:
        """Encode one entry. Raises InvalidArgument for a value outside the range of its field."""
        self._first.check(first)
        self._second.check(second)
        return self._entry.pack(first, second)

    def encode_entries(self, firsts: Sequence[int], seconds: Sequence[int]) -> bytes:
        """Encode entries, given as two columns. Raises InvalidArgument for a value outside the range of its field."""
        for field, values in ((self._first, firsts), (self._second, seconds)):
            if values:
                field.check(min(values))
                field.check(max(values))
        return b"".join(map(self._entry.pack, firsts, seconds))

    def decode_entries(self, data: bytes) -> list[tuple[int, int]]:
        """Return all entries of a whole file, without a tail of zeros.

        Raises Corrupt at an entry that does not rise above the entry before it, and Truncated at an
        incomplete entry; `leading_entries` reads the entries before the damage.
        """
        end = self._content_end(data)
        entries = self._rising(data, end)
        size_bytes = self.entry_size
        position = len(entries) * size_bytes
        require_end(self.kind, data, position=position, end=end, size_bytes=size_bytes)
        return entries

    def leading_entries(self, data: bytes) -> list[tuple[int, int]]:
        """Return the rising entries at the start of the data; zeros, an incomplete entry or damage end them."""
        return self._rising(data, self._content_end(data))

    def _content_end(self, data: bytes) -> int:
        is_one_entry = self._has_zero_entry and len(data) == self.entry_size
        return self.entry_size if is_one_entry else content_end(data)

    def _rising(self, data: bytes, end: int) -> list[tuple[int, int]]:
        entries: list[tuple[int, int]] = unpack_before(data, end, self._entry)
        least_first, least_second, step = (
            self._first.lowest,
            self._second.lowest,
            self._second.lowest,
        )
        for index, (first, second) in enumerate(entries):
            if first < least_first or second < least_second:
                del entries[index:]
                break
            least_first, least_second = first + 1, second + step
        return entries


offset_index: Final = SparseFormat(
    "offset index",
    _OFFSET_ENTRY,
    _Field("relative_offset", "relative offset {}", 1, 31),
    _Field("position", "position {}", 1, 31),
)
"""Entries (relative offset, position); both rise."""
time_index: Final = SparseFormat(
    "time index",
    _TIME_ENTRY,
    _Field("timestamp_ms", "timestamp {} ms", 0, 63),
    _Field("relative_offset", "relative offset {}", 0, 31),
)
"""Entries (timestamp in ms, relative offset); the offset may stay the same."""
