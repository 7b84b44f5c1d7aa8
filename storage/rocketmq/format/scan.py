"""A walk over the commit log: consecutive whole good records, without decoding them into values.

Owns the one loop that recovery and rebuild run over every byte of a log; must not know files. It accepts the records
that `decode_message` accepts: `_walk_plain` is a fast copy of its checks for the usual record, and a test compares the
two. Compiled if a compiler is available: then a usual record makes no Python object besides its body, for the CRC.
`message` has the whole layout; the walk reads these fields:

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
from typing import Final, NamedTuple
from zlib import crc32

from storage.coding.native import i64, is_native, read_i32_be, read_i64_be
from storage.errors import Corrupt
from storage.rocketmq.format.message import (
    BODY_CRC_POSITION,
    BODY_POSITION,
    BODY_SIZE_POSITION,
    CRC_MASK,
    FIXED_SIZE_V4,
    HOSTS_V6,
    MAGIC_PADDING,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    MAX_SIGNED_SHORT,
    MAX_TOPIC_V1,
    PADDING_SIZE,
    SYS_FLAG_POSITION,
    decode_message,
    peek,
)
from storage.rocketmq.format.queue_entry import POSITION_BYTES

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
_SIZE: Final = Struct(">i")
assert _SIZE.size == SIZE_BYTES
_unpack_size: Final = _SIZE.unpack_from
_crc32: Final = crc32  # compiled code finds a constant faster than an imported name


class Walked(NamedTuple):
    """The result of a walk: the position after the last good record, the position of that record (-1 without one), and
    why the walk ended.
    """

    end: int
    last: int
    reason: str


def walk(data: bytes, position: i64, end: i64, *, check_crc: bool = True) -> Walked:
    """Walk over the whole good records of `data` from `position` on, up to `end`. The reason of the end is one of:

    - SHORT: the data ends, or the next record is incomplete;
    - BLANK, PADDING or BAD: see there.

    The field physical offset is not compared, as in the real store's recovery.
    """
    last: i64 = -1
    end = min(end, len(data))
    while True:
        stop, plain = _walk_plain(data, position, end, check_crc=check_crc)
        if stop > position:
            last, position = plain, stop
        stopped = _stopped(data, position, end, check_crc=check_crc)
        if stopped:
            return Walked(position, last, stopped)
        last = position
        position += i64(peek(data, position)[0])


def records_in(data: bytes, position: i64, stop: i64, shift: i64) -> list[tuple[int, int]]:
    """Return (position + `shift`, size) of the records in [position, stop), which a walk found good."""
    found: list[tuple[int, int]] = []
    while position < stop:
        size: i64
        if _NATIVE:
            size = i64(read_i32_be(data, position))
        else:
            (size,) = _unpack_size(data, position)
        found.append((position + shift, size))
        position += size
    return found


def unmatched(
    data: bytes, position: i64, stop: i64, shift: i64, *, known: bytes, at: i64
) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges [begin, end) of adjacent records in [position, stop) that are not known, and the position in
    `known` after these records.

    The records are good; `known` has, from `at` on and in ascending order, position + `shift` of the known records as
    big-endian numbers of POSITION_BYTES.
    """
    found: list[tuple[int, int]] = []
    begin: i64 = -1
    known_end: i64 = len(known)
    while position < stop:
        place: i64 = position + shift
        while at < known_end and read_i64_be(known, at) < place:
            at += POSITION_BYTES
        if at < known_end and read_i64_be(known, at) == place:
            if begin >= 0:
                found.append((begin, position))
                begin = -1
        elif begin < 0:
            begin = position
        position += i64(read_i32_be(data, position))
    if begin >= 0:
        found.append((begin, stop))
    return found, at


def _walk_plain(data: bytes, position: i64, end: i64, *, check_crc: bool) -> tuple[i64, i64]:
    """Walk over records of version 1 with IPv4 hosts; return the position of the first bad or different record, and of
    the last record before it.
    """
    unpack = _WALK.unpack_from
    limit: i64 = end - FIXED_SIZE_V4
    last: i64 = position
    size: i64
    magic: i64
    crc: i64
    sys_flag: i64
    body_size: i64
    try:
        while position <= limit:
            if _NATIVE:
                size = i64(read_i32_be(data, position))
                magic = i64(read_i32_be(data, position + MAGIC_POSITION))
                crc = i64(read_i32_be(data, position + BODY_CRC_POSITION))
                sys_flag = i64(read_i32_be(data, position + SYS_FLAG_POSITION))
                body_size = i64(read_i32_be(data, position + BODY_SIZE_POSITION))
            else:
                size, magic, crc, sys_flag, body_size = unpack(data, position)
            stop: i64 = position + size
            if magic != MAGIC_V1 or sys_flag & HOSTS_V6 or stop > end or body_size < 0:
                break
            start: i64 = position + BODY_POSITION
            body_end: i64 = start + body_size
            topic_size: i64 = i64(data[body_end])
            topic_end: i64 = body_end + 1 + topic_size
            # Lengths that lead past the end of the record make this negative, which two bytes never equal.
            properties_size: i64 = stop - 2 - topic_end
            if (
                (i64(data[topic_end]) << 8 | i64(data[topic_end + 1])) != properties_size
                or properties_size > MAX_SIGNED_SHORT
                or topic_size > MAX_TOPIC_V1
            ):
                break
            if check_crc and body_size and i64(_crc32(data[start:body_end])) & CRC_MASK != crc:
                break
            last = position
            position = stop
    except IndexError:
        pass
    return position, last


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


_NATIVE: Final = is_native(_stopped)
