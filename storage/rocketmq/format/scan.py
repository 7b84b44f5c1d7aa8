"""A walk over the commit log: consecutive whole good records, without decoding them into values.

Owns the one loop that recovery and rebuild run over every byte of a log; must not know files. It accepts the records
that `decode_message` accepts: `_walk_plain` is a fast copy of its checks for the usual record, and a test compares the
two. `message` has the whole layout; the walk reads these fields:

    position  bytes  field              note
    0         4      total size         0: the log ends here
    4         4      magic              of a record, or of the padding at a file's end
    8         4      body CRC
    36        4      sys flag           only for the sizes of the hosts
    84        4      body length        at 96 or 108 with IPv6 hosts
    88        n      body               under the CRC
    .         1, 2   topic length
    .         n      topic
    .         2      properties length  the record ends where its total size says
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from storage.errors import Corrupt
from storage.rocketmq.format.message import (
    BODY_POSITION,
    CRC_MASK,
    FIXED_SIZE_V4,
    HOSTS_V6,
    MAGIC_PADDING,
    MAGIC_V1,
    MAGIC_V2,
    MAX_SIGNED_SHORT,
    MAX_TOPIC_V1,
    PADDING_SIZE,
    decode_message,
    peek,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

SHORT: Final = "short"
"""The data ends, perhaps inside a record."""
BLANK: Final = "blank"
"""A total size of 0: nothing was written from here on."""
PADDING: Final = "padding"
"""The rest of the file is unused."""
BAD: Final = "bad"
"""Not a record: `decode_message` gives the reason."""

_WALK: Final = Struct(
    ">"
    "i"  # total size
    "i"  # magic
    "i"  # body CRC
    "24x"
    "i"  # sys flag
    "44x"
    "i"  # body length
)
assert _WALK.size == BODY_POSITION
SIZE_BYTES: Final = 4


def walk(
    data: bytes, position: i64, end: i64, physical_offset: i64, *, check_crc: bool = True
) -> tuple[list[tuple[int, int]], int, str]:
    """Return ([(physical offset, size)] of the whole good records from `position` on, position after them, reason of
    the end).

    `physical_offset` is the physical offset of the byte at `position`; `data` is read up to `end`. The reason is one
    of:

    - SHORT: the data ends, or the next record is incomplete;
    - BLANK, PADDING or BAD: see there.

    The field physical offset is not compared, as in the real store's recovery.
    """
    found: list[tuple[int, int]] = []
    shift: i64 = physical_offset - position
    end = min(end, len(data))
    while True:
        position = _walk_plain(found, data, position, end, shift=shift, check_crc=check_crc)
        stopped = _stopped(data, position, end, check_crc=check_crc)
        if stopped:
            return found, position, stopped
        size, _ = peek(data, position)
        found.append((position + shift, size))
        position += size


def _walk_plain(
    found: list[tuple[int, int]],
    data: bytes,
    position: i64,
    end: i64,
    *,
    shift: i64,
    check_crc: bool,
) -> i64:
    """Walk over records of version 1 with IPv4 hosts; return the position of the first bad or different record."""
    unpack = _WALK.unpack_from
    last: i64 = end - FIXED_SIZE_V4
    size: i64
    magic: i64
    crc: i64
    sys_flag: i64
    body_size: i64
    try:
        while position <= last:
            size, magic, crc, sys_flag, body_size = unpack(data, position)
            stop: i64 = position + size
            if magic != MAGIC_V1 or sys_flag & HOSTS_V6 or stop > end or body_size < 0:
                break
            start: i64 = position + BODY_POSITION
            body_end: i64 = start + body_size
            topic_size: i64 = data[body_end]
            topic_end: i64 = body_end + 1 + topic_size
            # Lengths that lead past the end of the record make this negative, which two bytes never equal.
            properties_size: i64 = stop - 2 - topic_end
            if (
                (data[topic_end] << 8 | data[topic_end + 1]) != properties_size
                or properties_size > MAX_SIGNED_SHORT
                or topic_size > MAX_TOPIC_V1
            ):
                break
            if check_crc and body_size and crc32(data[start:body_end]) & CRC_MASK != crc:
                break
            found.append((position + shift, size))
            position = stop
    except IndexError:
        pass
    return position


def _stopped(data: bytes, position: i64, end: i64, *, check_crc: bool) -> str:
    """Return why the walk ends at `position`; empty if there is a good record."""
    left: i64 = end - position
    if left < PADDING_SIZE:
        return (
            BLANK
            if left >= SIZE_BYTES and not any(data[position : position + SIZE_BYTES])
            else SHORT
        )
    size, magic = peek(data, position)
    if magic == MAGIC_PADDING:
        return PADDING
    if size == 0:
        return BLANK
    if size > left and magic in (MAGIC_V1, MAGIC_V2):
        return SHORT
    try:
        decode_message(data, position, check_crc=check_crc)
    except Corrupt:
        return BAD
    return ""
