"""The body of a batch as sent by a client: its members one after another, each with its own properties.

Owns that encoding, both directions; must not know the commit log. There each member becomes an ordinary record, with
no trace of the batch. Source: MessageDecoder.encodeMessage and decodeMessage of RocketMQ.

    position  bytes  field              note
    0         4      total size         of the member
    4         4      magic              0, never checked
    8         4      CRC                0, never checked
    12        4      flag               the user's
    16        4      body length
    20        n      body
    .         2      properties length  signed: at most 32,767
    .         n      properties         as in a record
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from storage.errors import Corrupt, DataError, Truncated, UnrepresentableRecord
from storage.rocketmq.format.properties import MAX_PROPERTIES_BYTES

_FIXED: Final = Struct(
    ">"
    "i"  # total size
    "4x"  # magic
    "4x"  # CRC
    "i"  # flag
    "i"  # body length
)
assert _FIXED.size == 20
_PROPERTIES_LENGTH: Final = Struct(">h")
assert _PROPERTIES_LENGTH.size == 2
MIN_MEMBER_SIZE: Final = _FIXED.size + _PROPERTIES_LENGTH.size


class BatchMember(NamedTuple):
    """One message of a batch; all other values belong to the batch. Its fields are the first of a `RawMessage`."""

    body: bytes
    properties: bytes
    flag: int = 0


def encode_batch_body(members: Iterable[BatchMember]) -> bytes:
    """Return the encoded members, in order.

    Raises UnrepresentableRecord (field, index) if properties or a flag do not fit their field.
    """
    parts: list[bytes] = []
    for index, (body, properties, flag) in enumerate(members):
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise UnrepresentableRecord(
                f"record {index}: the properties have {len(properties)} bytes: the limit is {MAX_PROPERTIES_BYTES}",
                field="properties",
                index=index,
            )
        if not -(1 << 31) <= flag < 1 << 31:
            raise UnrepresentableRecord(
                f"record {index}: flag {flag} does not fit into 32 bits", field="flag", index=index
            )
        size = MIN_MEMBER_SIZE + len(body) + len(properties)
        parts += (_FIXED.pack(size, flag, len(body)), body)
        parts += (_PROPERTIES_LENGTH.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch_body(data: bytes) -> list[BatchMember]:
    """Return the members that fill `data`. Raises Truncated if it ends inside a member, Corrupt if lengths do not add
    up.
    """
    members: list[BatchMember] = []
    position = 0
    while position < len(data):
        if len(data) - position < MIN_MEMBER_SIZE:
            raise _broken(position, MIN_MEMBER_SIZE, len(data))
        size, flag, body_size = _FIXED.unpack_from(data, position)
        start = position + _FIXED.size
        stop = start + body_size
        end = position + size
        if size < MIN_MEMBER_SIZE or end > len(data) or not start <= stop <= end - 2:
            raise _broken(position, size, len(data))
        (properties_size,) = _PROPERTIES_LENGTH.unpack_from(data, stop)
        if properties_size != end - stop - _PROPERTIES_LENGTH.size:
            raise _broken(position, size, len(data))
        members.append(BatchMember(data[start:stop], data[end - properties_size : end], flag))
        position = end
    return members


def _broken(position: int, size: int, end: int) -> DataError:
    """Return the error of the member at `position`, which should have `size` bytes."""
    if position + size > end:
        return Truncated(
            f"the data ends inside the batch member at {position}",
            kind="batch member",
            position=position,
            needed=size,
        )
    return Corrupt(
        f"batch member at {position}: its lengths do not add up to its size",
        kind="batch member",
        position=position,
    )
