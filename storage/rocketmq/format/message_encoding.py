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
from typing import Final, NamedTuple
from zlib import crc32

from storage.coding.native import (
    BytesWriter,
    i16,
    i32,
    i64,
    is_native,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from storage.coding.varint import INT32_MAX
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

_LENGTH: Final = Struct(">h")
assert _LENGTH.size == 2
_pack_length: Final = _LENGTH.pack
_pack_v4: Final = FIXED_FIELDS[0].pack
LENGTH_TABLE_SIZE: Final = 1 << 11
LENGTHS: Final[list[bytes]] = [_pack_length(size) for size in range(LENGTH_TABLE_SIZE)]
"""The encoded lengths of nearly all properties, to save a call."""
FIXED_SIZE: Final = BODY_POSITION + _LENGTH.size
_NEAR: Final = 1 << 62
"""No run that begins at an offset up to this one, of either sign, comes to an offset of more than 64 bits."""
_crc32: Final = crc32  # compiled code finds a constant faster than an imported name


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
    first, physical = placement.queue_offset, placement.physical_offset
    if _NATIVE and -_NEAR <= first <= _NEAR and -_NEAR <= physical <= _NEAR:
        return _encode(messages, placement)
    return _encode_plainly(messages, placement)


def _encode(messages: Sequence[RawMessage], placement: Placement) -> list[bytes]:
    topic, magic, queue_id, next_offset, first_physical, stored_ms, store_host = placement
    queue_offset: i64 = next_offset
    physical_offset: i64 = first_physical
    name = topic_field(topic, magic)
    store_bits: i64 = host_bits(store_host, STORE_HOST_V6)
    data = BytesWriter()
    out: list[bytes] = []
    try:
        for message in messages:
            body, properties, flag, given_flag, born_ms, born_host, times, prepared = message
            properties_size: i64 = len(properties)
            bits: i64 = store_bits
            if len(born_host) != HOST_SIZE_V4:
                bits |= host_bits(born_host, BORN_HOST_V6)
            sys_flag: i64 = given_flag & ~HOSTS_V6 | bits
            counts: i64 = sys_flag & TRANSACTION_PREPARED == 0
            size: i64 = FIXED_SIZE + i64(len(body)) + i64(len(name)) + properties_size
            size += i64(len(born_host)) - HOST_SIZE_V4 + i64(len(store_host)) - HOST_SIZE_V4
            # fmt: off
            _check(
                properties_size, size=size, queue_id=queue_id, flag=flag, sys_flag=sys_flag, times=times
            )
            put_head(
                data, size=size, magic=magic, body_crc=i64(_crc32(body)) & CRC_MASK, queue_id=queue_id,
                flag=flag, queue_offset=queue_offset if counts else 0, physical_offset=physical_offset,
                sys_flag=sys_flag, born_ms=born_ms, born_host=born_host, stored_ms=stored_ms,
                store_host=store_host, times=times, prepared=prepared, body_size=len(body),
            )
            # fmt: on
            data.write(body)
            data.write(name)
            write_i16_be(data, i16(properties_size))
            data.write(properties)
            out.append(data.getvalue())
            data.truncate(0)
            physical_offset += size
            queue_offset += counts
    except (OverflowError, ValueError) as cause:
        raise _unrepresentable(messages, len(out)) from cause
    return out


def _encode_plainly(messages: Sequence[RawMessage], placement: Placement) -> list[bytes]:
    """Do what `_encode` does, in fewer steps of interpreted Python."""
    topic, magic, queue_id, queue_offset, physical_offset, stored_ms, store_host = placement
    name = topic_field(topic, magic)
    store_bits = host_bits(store_host, STORE_HOST_V6)
    lengths = LENGTHS
    table_size = LENGTH_TABLE_SIZE
    out: list[bytes] = []
    try:
        for message in messages:
            body, properties, flag, given_flag, born_ms, born_host, times, prepared = message
            body_size = len(body)
            properties_size = len(properties)
            size = FIXED_SIZE + body_size + len(name) + properties_size
            bits = store_bits
            if len(born_host) != HOST_SIZE_V4:
                bits |= host_bits(born_host, BORN_HOST_V6)
            pack = _pack_v4
            if bits:
                fixed = FIXED_FIELDS[bits]
                pack = fixed.pack
                size += fixed.size - BODY_POSITION
            sys_flag = given_flag & ~HOSTS_V6 | bits
            counts = sys_flag & TRANSACTION_PREPARED == 0
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


def put_head(
    data: BytesWriter,
    *,
    size: i64,
    magic: i64,
    body_crc: i64,
    queue_id: i64,
    flag: i64,
    queue_offset: i64,
    physical_offset: i64,
    sys_flag: i64,
    born_ms: i64,
    born_host: bytes,
    stored_ms: i64,
    store_host: bytes,
    times: i64,
    prepared: i64,
    body_size: i64,
) -> None:
    """Add the fields before the body. The caller has checked that the numbers fit, and the host bits of the flag."""
    if not _NATIVE:
        # fmt: off
        data.write(FIXED_FIELDS[sys_flag & HOSTS_V6].pack(
            size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host,
            stored_ms, store_host, times, prepared, body_size,
        ))
        # fmt: on
        return
    write_i32_be(data, i32(size))
    write_i32_be(data, i32(magic))
    write_i32_be(data, i32(body_crc))
    write_i32_be(data, i32(queue_id))
    write_i32_be(data, i32(flag))
    write_i64_be(data, queue_offset)
    write_i64_be(data, physical_offset)
    write_i32_be(data, i32(sys_flag))
    write_i64_be(data, born_ms)
    data.write(born_host)
    write_i64_be(data, stored_ms)
    data.write(store_host)
    write_i32_be(data, i32(times))
    write_i64_be(data, prepared)
    write_i32_be(data, i32(body_size))


def _check(
    properties_size: i64, *, size: i64, queue_id: i64, flag: i64, sys_flag: i64, times: i64
) -> None:
    """Raise ValueError for a number that does not fit its field."""
    if properties_size > MAX_SIGNED_SHORT or not (
        _fits(size) and _fits(queue_id) and _fits(flag) and _fits(sys_flag) and _fits(times)
    ):
        raise ValueError


def _fits(number: i64) -> bool:
    return -INT32_MAX - 1 <= number <= INT32_MAX


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


_NATIVE: Final = is_native(_fits)
