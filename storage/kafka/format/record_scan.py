"""The positions of the records of a batch, found by the chain of their lengths alone.

Owns that walk, the one part of reading columns that cannot be done for many records at once; must
not inspect a record (its layout is in `record`). Compiled if there is a C compiler.

    position  bytes  field   note
    0         1..10  length  zig-zag varint, of what follows; the next record begins after that
    .         n      record  from its attributes to its last header
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.coding.varint import decode_varint
from storage.errors import DataError
from storage.kafka.format.record import MIN_RECORD_BYTES

if TYPE_CHECKING:
    from mypy_extensions import i64


def add_positions(out: list[int], data: bytes, position: i64, end: i64, count: i64) -> bool:
    """Append the position of each of the `count` records of `data[position:end]`. Return True if they
    fill it exactly; otherwise the appended positions are meaningless.

    A negative length is handled as if it were positive. Its sign is the lowest bit of its first byte,
    so the caller can check all records at once.
    """
    if count > (end - position) // MIN_RECORD_BYTES:
        return False
    try:
        while count > 0:
            count -= 1
            out.append(position)
            length: i64 = data[position]
            if length < 0x80:
                position += (length >> 1) + 1
                continue
            group: i64 = data[position + 1]
            if group < 0x80:
                position += ((length & 0x7F | group << 7) >> 1) + 2
                continue
            length, position = decode_varint(data, position)
            if not 0 <= length <= end - position:
                return False
            position += length
    except (IndexError, DataError):
        return False
    return position == end
