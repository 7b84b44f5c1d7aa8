"""A message of format v0 or v1, as brokers before 0.11 wrote them: recognised, and not reported
as damage, but never read.

Owns the fields that identify the format; must not know files. Source: LegacyRecord of Kafka's clients. A
compressed message, which contains other messages, has the same fields.

    position  bytes  field       note
    0         8      offset      of a compressed message: of the last message in it; not covered by the CRC
    8         4      size        of what follows this field, at least 14; not covered
    12        4      CRC-32      of everything from the magic on; not the CRC-32C of a batch
    16        1      magic       0 or 1; a batch (v2) has its own at the same place
    17        1      attributes  bits 0-2 codec, 3 LogAppendTime
    18        8      timestamp   only with magic 1
    ..        4 + n  key         the length, -1: null
    ..        4 + n  value       the length, -1: null
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

from storage.errors import Corrupt, Truncated

KIND: Final = "old message"
MAGICS: Final = (0, 1)
HEAD_SIZE: Final = 17
"""The number of bytes that identify a message."""
SIZE_BEFORE_SIZE: Final = 12
CRC_START: Final = 16
MIN_SIZE: Final = 14
_HEAD: Final = Struct(
    ">"
    "q"  # offset
    "i"  # size
    "I"  # CRC-32
    "b"  # magic
)
assert _HEAD.size == HEAD_SIZE


class OldMessage(NamedTuple):
    """The first fields in wire order."""

    offset: int
    size: int
    crc: int
    magic: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole message."""
        return SIZE_BEFORE_SIZE + self.size


def decode_head(data: bytes | bytearray, position: int = 0) -> OldMessage:
    """Decode the message's first fields at `position`; neither the CRC nor the rest of it is checked.

    Raises Truncated if there are fewer than 17 bytes, Corrupt for values that no such message has.
    """
    if not 0 <= position <= len(data) - HEAD_SIZE:
        raise _truncated(position, HEAD_SIZE)
    message = OldMessage(*_HEAD.unpack_from(data, position))
    if message.magic not in MAGICS or message.size < MIN_SIZE or message.offset < 0:
        raise Corrupt(f"no {KIND} at {position}", kind=KIND, position=position)
    return message


def check_crc(data: bytes | bytearray, position: int, message: OldMessage) -> bool:
    """Whether the CRC of the whole message at `position` is right. Raises Truncated if the message is incomplete."""
    stop = position + message.size_bytes
    if stop > len(data):
        raise _truncated(position, message.size_bytes)
    return zlib.crc32(memoryview(data)[position + CRC_START : stop]) == message.crc


def _truncated(position: int, needed: int) -> Truncated:
    return Truncated(
        f"the data ends inside the {KIND} at {position}",
        kind=KIND,
        position=position,
        needed=needed,
    )
