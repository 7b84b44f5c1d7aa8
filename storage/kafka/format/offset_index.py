"""The `.index` file of a segment: sparse entries from logical offset to byte position in its
`.log`.

Owns the bytes only; must not decide when an entry is due. Big-endian; from Kafka's OffsetIndex and
AbstractIndex.

    position  bytes  field            note
    0         4      relative offset  LAST offset of a batch minus the segment's base offset, i32
    4         4      position         where that batch STARTS in the .log, i32
    8         ...    more entries     both fields strictly rising; zeros where preallocated

A segment's first batch never gets an entry, so both fields are above zero: eight zero bytes are
never an entry.
"""

from __future__ import annotations

import struct
from typing import Final

from storage.errors import InvalidArgument
from storage.kafka.format.entries import content_end, require_end, unpack_before

KIND: Final = "offset index"
_ENTRY: Final = struct.Struct(
    ">"
    "i"  # relative offset
    "i"  # position
)
ENTRY_SIZE: Final = 8
assert _ENTRY.size == ENTRY_SIZE


def encode_entry(relative_offset: int, position: int) -> bytes:
    """Encode one entry, 8 bytes. Raises InvalidArgument for a value outside (0, 2^31)."""
    if not 0 < relative_offset < 1 << 31:
        raise InvalidArgument(
            f"relative offset {relative_offset} is outside (0, 2^31)", field="relative_offset"
        )
    if not 0 < position < 1 << 31:
        raise InvalidArgument(f"position {position} is outside (0, 2^31)", field="position")
    return _ENTRY.pack(relative_offset, position)


def decode_entries(data: bytes) -> list[tuple[int, int]]:
    """Return all entries (relative offset, position) of a whole file, without a tail of zeros.

    Raises Corrupt at an entry that does not rise above the entry before it, and Truncated at an
    incomplete entry; `leading_entries` reads the entries before the damage.
    """
    end = content_end(data)
    entries = _rising(data, end)
    require_end(KIND, data, position=len(entries) * ENTRY_SIZE, end=end, size_bytes=ENTRY_SIZE)
    return entries


def leading_entries(data: bytes) -> list[tuple[int, int]]:
    """Return the rising entries at the start of the data; zeros, an incomplete entry or damage end them."""
    return _rising(data, content_end(data))


def _rising(data: bytes, end: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = unpack_before(data, end, _ENTRY)
    last_offset = last_position = 0
    for index, (offset, position) in enumerate(entries):
        if offset <= last_offset or position <= last_position:
            del entries[index:]
            break
        last_offset, last_position = offset, position
    return entries
