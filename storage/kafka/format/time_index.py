"""The `.timeindex` file of a segment: sparse entries from the largest timestamp so far to a logical
offset.

Owns the bytes only; must not decide when an entry is due. Big-endian; from Kafka's TimeIndex and
AbstractIndex.

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

import struct
from typing import Final

from storage.errors import InvalidArgument
from storage.kafka.format.entries import content_end, require_end, unpack_before

KIND: Final = "time index"
_ENTRY: Final = struct.Struct(
    ">"
    "q"  # timestamp
    "i"  # relative offset
)
ENTRY_SIZE: Final = 12
assert _ENTRY.size == ENTRY_SIZE


def encode_entry(timestamp_ms: int, relative_offset: int) -> bytes:
    """Encode one entry, 12 bytes. Raises InvalidArgument for a negative value or one that does not
    fit.
    """
    if not 0 <= timestamp_ms < 1 << 63:
        raise InvalidArgument(
            f"timestamp {timestamp_ms} ms is outside [0, 2^63)", field="timestamp_ms"
        )
    if not 0 <= relative_offset < 1 << 31:
        raise InvalidArgument(
            f"relative offset {relative_offset} is outside [0, 2^31)", field="relative_offset"
        )
    return _ENTRY.pack(timestamp_ms, relative_offset)


def decode_entries(data: bytes) -> list[tuple[int, int]]:
    """Return all entries (timestamp in ms, relative offset) of a whole file, without a tail of zeros.

    Raises Corrupt at an entry that does not rise above the entry before it, and Truncated at an
    incomplete entry; `leading_entries` reads the entries before the damage.
    """
    end = _content_end(data)
    entries = _rising(data, end)
    require_end(KIND, data, position=len(entries) * ENTRY_SIZE, end=end, size_bytes=ENTRY_SIZE)
    return entries


def leading_entries(data: bytes) -> list[tuple[int, int]]:
    """Return the rising entries at the start of the data; zeros, an incomplete entry or damage end them."""
    return _rising(data, _content_end(data))


def _content_end(data: bytes) -> int:
    return ENTRY_SIZE if len(data) == ENTRY_SIZE else content_end(data)


def _rising(data: bytes, end: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = unpack_before(data, end, _ENTRY)
    last_timestamp, last_offset = -1, 0
    for index, (timestamp, offset) in enumerate(entries):
        if timestamp <= last_timestamp or offset < last_offset:
            del entries[index:]
            break
        last_timestamp, last_offset = timestamp, offset
    return entries
