"""Variable-length integers: seven bits per byte, the lowest first, the high bit set in every byte except the last.

Owns both forms that Kafka writes; must not know any structure. The plain form ("uvarint") is used for lengths and tags
of the protocol. The zig-zag form ("varint") is used for all numbers of a record; 0, -1, 1, -2 become 0, 1, 2, 3.
Source: ByteUtils of Kafka's clients.

    position  bytes  field   note
    0         1..10  groups  7 bits each; the tenth byte of a 64-bit number holds one bit

A longer form than needed (80 00 for 0) is accepted, as in Kafka, and never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.errors import Corrupt, InvalidArgument, Truncated

if TYPE_CHECKING:
    from mypy_extensions import i64

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
UINT64_MAX: Final = (1 << 64) - 1

TABLE_SIZE: Final = 1 << 13
"""The first zig-zag number that takes more than two bytes: smaller numbers cover nearly all numbers of nearly all
records.
"""


def _encode_groups(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


VARINTS: Final[list[bytes]] = [_encode_groups(value << 1) for value in range(TABLE_SIZE)]
"""The zig-zag forms of 0 <= value < TABLE_SIZE, for loops where a call per number is too slow."""


def encode_varint(value: int) -> bytes:
    """Return the zig-zag form of a signed 64-bit number. Raises InvalidArgument outside that range."""
    if 0 <= value < TABLE_SIZE:
        return VARINTS[value]
    if not INT64_MIN <= value <= INT64_MAX:
        raise InvalidArgument(f"{value} does not fit into a signed 64-bit varint", field="varint")
    return _encode_groups(value << 1 if value >= 0 else (-value << 1) - 1)


def encode_uvarint(value: int) -> bytes:
    """Return the plain form of an unsigned 64-bit number. Raises InvalidArgument outside that range."""
    if not 0 <= value <= UINT64_MAX:
        raise InvalidArgument(
            f"{value} does not fit into an unsigned 64-bit varint", field="uvarint"
        )
    return _encode_groups(value)


def decode_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """Return (value, next position) of the zig-zag number at `position`, which must not be negative.

    Raises Truncated if `data` ends inside the number, Corrupt if the number has more than 64 bits.
    """
    try:
        number: i64 = data[position]
        if number < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
        group: i64 = data[position + 1]
    except IndexError:
        raise _truncated(position) from None
    if group < 0x80:
        number = number & 0x7F | group << 7
        return (number >> 1) ^ -(number & 1), position + 2
    number, top, position = _decode_groups(data, position)
    return ((number >> 1) | (top << 62)) ^ -(number & 1), position


def decode_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, next position) of the plain number at `position`. Raises as `decode_varint`."""
    low, top, following = _decode_groups(data, position)
    number: int = low
    return (number | 1 << 63 if top else number), following


def _decode_groups(data: bytes, position: i64) -> tuple[i64, i64, i64]:
    """Return (the low 63 bits, bit 63, next position). Two parts are needed because a compiled integer has 64 bits
    including its sign.
    """
    start = position
    low: i64 = 0
    shift: i64 = 0
    try:
        while shift < 63:
            group: i64 = data[position]
            position += 1
            low |= (group & 0x7F) << shift
            if group < 0x80:
                return low, 0, position
            shift += 7
        top: i64 = data[position]
    except IndexError:
        raise _truncated(start) from None
    if top > 1:
        raise Corrupt(
            "a varint has more than 64 bits",
            kind="varint",
            position=start,
            expected="0 or 1 in the tenth byte",
            found=f"{top}",
        )
    return low, top, position + 1


def _truncated(position: int) -> Truncated:
    return Truncated("the data ends inside a varint", kind="varint", position=position, needed=1)
