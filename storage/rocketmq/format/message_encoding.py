"""Encoding of commit log records: a run of new messages for one queue becomes the bytes that the real store writes.

Owns encoding, the other direction of `message`; must not decide the position or content of records. Source:
MessageExtEncoder and CommitLog.DefaultAppendMessageCallback of RocketMQ. `message` has the whole layout; fields are
set per record or per run:

    position  bytes  field            note
    0         36     size to offsets  size, CRC and offsets computed here; magic and queue of the run, flag given
    36        4      sys flag         given; its two host bits set from the hosts' sizes
    40        8, 8   born timestamp   given, and the born host
    56        8, 8   store timestamp  of the run, and the store host
    72        12     reconsume times  given, and the prepared offset
    84        n      body             given, its length before it
    .         n      topic            of the run, its length before it
    .         n      properties       given, its length before it
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from storage.errors import InvalidArgument, InvalidTopic, UnrepresentableRecord
from storage.model import RawMessage
from storage.rocketmq.format.message import (
    BODY_POSITION,
    BORN_HOST_V6,
    CRC_MASK,
    FIXED_FIELDS,
    HOST_SIZE_V4,
    HOST_SIZE_V6,
    HOSTS_V6,
    MAGIC_V2,
    MAX_SIGNED_SHORT,
    MAX_TOPIC_V1,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

_LENGTH: Final = Struct(">h")
assert _LENGTH.size == 2
_pack_length: Final = _LENGTH.pack
_pack_v4: Final = FIXED_FIELDS[0].pack
LENGTH_TABLE_SIZE: Final = 1 << 11
LENGTHS: Final[list[bytes]] = [_pack_length(size) for size in range(LENGTH_TABLE_SIZE)]
"""The encoded lengths of nearly all properties, to save a call."""
FIXED_SIZE: Final = BODY_POSITION + _LENGTH.size


class Placement(NamedTuple):
    """The place of a run of records: its queue, the offsets of the first record, and the fields shared by all."""

    topic: bytes
    magic: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    store_host: bytes


def encode_messages(messages: Sequence[RawMessage], placement: Placement) -> list[bytes]:
    """Return one record for each message, placed one after another from `placement` on.

    Queue offsets are consecutive; a prepared or rolled back message gets 0 and does not count. Raises:

    - UnrepresentableRecord (field, index) for properties over 32,767 bytes or a number outside its field;
    - InvalidTopic for a topic too long for the placement's magic;
    - InvalidArgument for a host that has neither 8 nor 20 bytes.
    """
    topic, magic, queue_id, next_offset, first_physical, stored_ms, store_host = placement
    queue_offset: i64 = next_offset
    physical_offset: i64 = first_physical
    name = topic_field(topic, magic)
    store_bits: i64 = host_bits(store_host, STORE_HOST_V6)
    lengths = LENGTHS
    table_size: i64 = LENGTH_TABLE_SIZE
    out: list[bytes] = []
    try:
        for message in messages:
            body, properties, flag, given_flag, born_ms, born_host, times, prepared = message
            body_size: i64 = len(body)
            properties_size: i64 = len(properties)
            size: i64 = FIXED_SIZE + body_size + len(name) + properties_size
            bits: i64 = store_bits
            if len(born_host) != HOST_SIZE_V4:
                bits |= host_bits(born_host, BORN_HOST_V6)
            pack = _pack_v4
            if bits:
                fixed = FIXED_FIELDS[bits]
                pack = fixed.pack
                size += fixed.size - BODY_POSITION
            sys_flag: i64 = given_flag & ~HOSTS_V6 | bits
            counts: i64 = sys_flag & TRANSACTION_PREPARED == 0
            # fmt: off
            head = pack(
                size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset if counts else 0,
                physical_offset, sys_flag, born_ms, born_host, stored_ms, store_host, times, prepared,
                body_size,
            )
            # fmt: on
            length = (
                lengths[properties_size]
                if properties_size < table_size
                else _pack_length(properties_size)
            )
            out.append(b"".join((head, body, name, length, properties)))
            physical_offset += size
            queue_offset += counts
    except (StructError, ValueError) as cause:
        raise _unrepresentable(messages, len(out)) from cause
    return out


def topic_field(topic: bytes, magic: int) -> bytes:
    """Return the topic with its length in front. Raises InvalidTopic if the topic is too long for the magic."""
    limit_bytes = MAX_SIGNED_SHORT if magic == MAGIC_V2 else MAX_TOPIC_V1
    if len(topic) > limit_bytes:
        raise InvalidTopic(
            f"a topic has {len(topic)} bytes: the limit is {limit_bytes}",
            topic=topic.decode(errors="replace"),
        )
    return (_pack_length(len(topic)) if magic == MAGIC_V2 else bytes([len(topic)])) + topic


def host_bits(host: bytes, bit: int) -> int:
    """Return the sys flag bits for a host of this size: `bit`, or 0 for IPv4. Raises InvalidArgument."""
    if len(host) == HOST_SIZE_V4:
        return 0
    if len(host) == HOST_SIZE_V6:
        return bit
    raise InvalidArgument(
        f"a host has {len(host)} bytes: need {HOST_SIZE_V4} or {HOST_SIZE_V6}", field="host"
    )


def _unrepresentable(messages: Sequence[RawMessage], index: int) -> UnrepresentableRecord:
    size_bytes = len(messages[index].properties)
    if size_bytes > MAX_SIGNED_SHORT:
        return UnrepresentableRecord(
            f"record {index}: the properties have {size_bytes} bytes: the limit is {MAX_SIGNED_SHORT}",
            field="properties",
            index=index,
        )
    return UnrepresentableRecord(
        f"record {index}: a number does not fit its field", field="message", index=index
    )
