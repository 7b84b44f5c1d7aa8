"""Decoding of one commit log record: its layout, its values, and the padding at a file's end.

Owns the record's fields and their plausibility; must not know files, queues, or the contents of body and properties.
Sources: MessageExtEncoder, MessageDecoder, CommitLog.checkMessageAndReturnSize and MessageSysFlag of RocketMQ. Drawn
for IPv4 hosts; each IPv6 host moves all fields after it by 12.

    position  bytes  field              note
    0         4      total size         of the whole record
    4         4      magic              da a3 20 a7 (v1) or da a3 20 ab (v2)
    8         4      body CRC           CRC-32 of the stored body without its top bit
    12        4      queue id
    16        4      flag               the user's
    20        8      queue offset       number in its queue; 0 for a prepared or rolled back record
    28        8      physical offset    of this record in the log
    36        4      sys flag           0x01 compressed, 0x02 several tags, 0x0c transaction, 0x10 born host is IPv6,
                                        0x20 store host is IPv6, 0x40 to be unwrapped, 0x80 inner batch, 0x700 codec
    40        8      born timestamp     the client's
    48        8, 20  born host          4 or 16 bytes of address, 4 of port
    56        8      store timestamp
    64        8, 20  store host         likewise
    72        4      reconsume times
    76        8      prepared offset    of the transaction's first half
    84        4      body length
    88        n      body               as the client sent it, perhaps compressed
    .         1, 2   topic length       one signed byte in v1, two in v2
    .         n      topic              UTF-8
    .         2      properties length  signed: at most 32,767
    .         n      properties         see `properties`

A record leaves at least 8 bytes free in its file. A record that does not fit goes to the next file, and padding fills
the rest of this file:

    position  bytes  field              note
    0         4      total size         all that is left of the file, 8 at least
    4         4      magic              cb d4 31 94
    8         n      anything           never read
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from storage.coding.native import i64, is_native, read_i32_be, read_i64_be
from storage.errors import Corrupt, DataError, InvalidArgument, InvalidTopic, Truncated

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_PADDING: Final = -875286124
"""The magics are signed numbers, because they are read as signed."""

COMPRESSED: Final = 0x01
MULTI_TAGS: Final = 0x02
TRANSACTION_MASK: Final = 0x0C
TRANSACTION_PREPARED: Final = 0x04
TRANSACTION_COMMIT: Final = 0x08
TRANSACTION_ROLLBACK: Final = 0x0C
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_TYPE_SHIFT: Final = 8
COMPRESSION_TYPE_MASK: Final = 0x700

CRC_MASK: Final = 0x7FFFFFFF
HOST_SIZE_V4: Final = 8
HOST_SIZE_V6: Final = 20
V6_EXTRA_BYTES: Final = HOST_SIZE_V6 - HOST_SIZE_V4
MAX_TOPIC_V1: Final = 127
"""Most characters of a topic for which a record is v1, and most bytes that the v1 length field can hold."""
MAX_SIGNED_SHORT: Final = 32767
MAX_SIZE: Final = (1 << 31) - 1


def _fixed_fields(born_host_size: int, store_host_size: int) -> Struct:
    return Struct(
        ">"
        "i"  # total size
        "i"  # magic
        "i"  # body CRC
        "i"  # queue id
        "i"  # flag
        "q"  # queue offset
        "q"  # physical offset
        "i"  # sys flag
        "q"  # born timestamp
        f"{born_host_size}s"
        "q"  # store timestamp
        f"{store_host_size}s"
        "i"  # reconsume times
        "q"  # prepared transaction offset
        "i"  # body length
    )


FIXED_FIELDS: Final[dict[int, Struct]] = {
    0: _fixed_fields(HOST_SIZE_V4, HOST_SIZE_V4),
    BORN_HOST_V6: _fixed_fields(HOST_SIZE_V6, HOST_SIZE_V4),
    STORE_HOST_V6: _fixed_fields(HOST_SIZE_V4, HOST_SIZE_V6),
    HOSTS_V6: _fixed_fields(HOST_SIZE_V6, HOST_SIZE_V6),
}
"""All fields before the body, by the host bits of the sys flag."""
BODY_POSITION: Final = 88
"""Position of the body in a record with IPv4 hosts."""
assert {bits: fields.size - BODY_POSITION for bits, fields in FIXED_FIELDS.items()} == {
    0: 0,
    BORN_HOST_V6: 12,
    STORE_HOST_V6: 12,
    HOSTS_V6: 24,
}
_unpack_v4: Final = FIXED_FIELDS[0].unpack_from
FIXED_SIZE_V4: Final = BODY_POSITION + 1 + 2
"""A v1 record with IPv4 hosts without body, topic and properties: the smallest possible record."""

_HEAD: Final = Struct(
    ">"
    "i"  # total size
    "i"  # magic
)
assert _HEAD.size == 8
_SYS_FLAG: Final = Struct(">i")
assert _SYS_FLAG.size == 4
MAGIC_POSITION: Final = 4
BODY_CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
FLAG_POSITION: Final = 16
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
HOST_BITS_POSITION: Final = SYS_FLAG_POSITION + 3
"""Position of the byte of the sys flag that holds the two host bits."""
BORN_TIME_POSITION: Final = 40
BORN_HOST_POSITION: Final = 48
STORE_TIME_POSITION: Final = 56
"""From here on each position is that in a record with IPv4 hosts."""
PREPARED_OFFSET_POSITION: Final = 76
BODY_SIZE_POSITION: Final = 84
PADDING_SIZE: Final = _HEAD.size
_TIME_BYTES: Final = 8
_TIMES_BYTES: Final = 4
_SIZE_BYTES: Final = BODY_POSITION - BODY_SIZE_POSITION
_AFTER_HOSTS_BYTES: Final = BODY_POSITION - PREPARED_OFFSET_POSITION + _TIMES_BYTES
"""Size of the fields between store host and body: reconsume times, prepared offset and body length."""


class Message(NamedTuple):
    """A stored record in wire order. Hosts are their raw bytes, and the properties are never encoded again."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes

    @property
    def transaction(self) -> int:
        """The transaction state: 0, TRANSACTION_PREPARED, TRANSACTION_COMMIT or TRANSACTION_ROLLBACK."""
        return self.sys_flag & TRANSACTION_MASK

    @property
    def in_queue(self) -> bool:
        """Whether the record has an entry in its queue; prepared and rolled back records have none."""
        return takes_queue_offset(self.sys_flag)


def takes_queue_offset(sys_flag: int) -> bool:
    """Return whether a record with this flag has a queue offset; prepared and rolled back records have none."""
    return sys_flag & TRANSACTION_PREPARED == 0


_new_message: Final = tuple.__new__
"""`Message._make` without its length check, in half the time."""
_crc32: Final = crc32  # compiled code finds a constant faster than an imported name


def decode_message(data: bytes, position: i64 = 0, *, check_crc: bool = True) -> Message:
    """Return the record at `position`, which must not be negative.

    Raises Truncated if `data` ends before the record. Raises Corrupt for:

    - another magic (also a padding);
    - lengths that do not add up to the total size;
    - with `check_crc`, a wrong CRC.

    As in the real store, the CRC of an empty body is not checked, and bytes of a topic that are not UTF-8 are replaced.
    """
    if len(data) - position < FIXED_SIZE_V4:
        raise broken_message(data, position)
    start: i64 = position + BODY_POSITION
    unpack = _unpack_v4
    if data[position + HOST_BITS_POSITION] & HOSTS_V6:
        layout = FIXED_FIELDS[data[position + HOST_BITS_POSITION] & HOSTS_V6]
        start = position + layout.size
        if start > len(data):
            raise broken_message(data, position)
        unpack = layout.unpack_from
    # fmt: off
    if _NATIVE:
        (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host,
         stored_ms, store_host, times, prepared, body_size) = _fields_at(data, position, start)
    else:
        (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host,
         stored_ms, store_host, times, prepared, body_size) = unpack(data, position)
    # fmt: on
    end: i64 = position + size
    stop: i64 = start + body_size  # end of the body
    is_v1: bool = magic == MAGIC_V1
    if not (is_v1 or magic == MAGIC_V2) or end > len(data) or not start <= stop < end - 2:
        raise broken_message(data, position)
    topic_start: i64 = stop + 1
    topic_size: i64 = data[stop]
    if not is_v1:
        topic_size = topic_size << 8 | data[topic_start]
        topic_start += 1
    topic_end: i64 = topic_start + topic_size
    if topic_end + 2 > end or (is_v1 and topic_size > MAX_TOPIC_V1):
        raise broken_message(data, position)
    properties_size: i64 = data[topic_end] << 8 | data[topic_end + 1]
    if topic_end + 2 + properties_size != end or properties_size > MAX_SIGNED_SHORT:
        raise broken_message(data, position)
    body = data[start:stop]
    if check_crc and body and _crc32(body) & CRC_MASK != crc:
        raise _wrong_crc(position, expected=crc, found=_crc32(body) & CRC_MASK)
    topic = data[topic_start:topic_end].decode("utf-8", "replace")
    # fmt: off
    message: Message = _new_message(Message, (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host,
        stored_ms, store_host, times, prepared, body, topic, data[topic_end + 2 : end],
    ))
    # fmt: on
    return message


_Fields: TypeAlias = (
    "tuple[i64, i64, i64, i64, i64, i64, i64, i64, i64, bytes, i64, bytes, i64, i64, i64]"
)


def _fields_at(data: bytes, position: i64, start: i64) -> _Fields:
    """Return the fields of the record at `position`, without any object for a number. Its body begins at `start`."""
    born_host_size: i64 = HOST_SIZE_V4
    if i64(data[position + HOST_BITS_POSITION]) & BORN_HOST_V6:
        born_host_size = HOST_SIZE_V6
    time_at: i64 = position + BORN_HOST_POSITION + born_host_size
    times_at: i64 = start - _AFTER_HOSTS_BYTES
    return (
        i64(read_i32_be(data, position)),
        i64(read_i32_be(data, position + MAGIC_POSITION)),
        i64(read_i32_be(data, position + BODY_CRC_POSITION)),
        i64(read_i32_be(data, position + QUEUE_ID_POSITION)),
        i64(read_i32_be(data, position + FLAG_POSITION)),
        read_i64_be(data, position + QUEUE_OFFSET_POSITION),
        read_i64_be(data, position + PHYSICAL_OFFSET_POSITION),
        i64(read_i32_be(data, position + SYS_FLAG_POSITION)),
        read_i64_be(data, position + BORN_TIME_POSITION),
        data[position + BORN_HOST_POSITION : time_at],
        read_i64_be(data, time_at),
        data[time_at + _TIME_BYTES : times_at],
        i64(read_i32_be(data, times_at)),
        read_i64_be(data, times_at + _TIMES_BYTES),
        i64(read_i32_be(data, start - _SIZE_BYTES)),
    )


def peek(data: bytes, position: int) -> tuple[int, int]:
    """Return (total size, magic) at `position`, which may be a record, a padding or neither.

    Raises Truncated if fewer than 8 bytes are left.
    """
    if not 0 <= position <= len(data) - _HEAD.size:
        raise _truncated(position, _HEAD.size)
    head: tuple[int, int] = _HEAD.unpack_from(data, position)
    return head


def broken_message(data: bytes, position: int) -> DataError:
    """Return the error of the record at `position` that `decode_message` or `walk` rejected, except for a wrong CRC."""
    if len(data) - position < _HEAD.size:
        return _truncated(position, _HEAD.size)
    size, magic = peek(data, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _corrupt(
            position,
            f"the magic is {magic & 0xFFFFFFFF:08x}",
            field="magic",
            expected=f"{MAGIC_V1 & 0xFFFFFFFF:08x} or {MAGIC_V2 & 0xFFFFFFFF:08x}",
            found=f"{magic & 0xFFFFFFFF:08x}",
        )
    if size < FIXED_SIZE_V4:
        return _corrupt(
            position,
            f"the total size is {size}",
            field="size",
            expected=f"at least {FIXED_SIZE_V4}",
            found=f"{size}",
        )
    if size > len(data) - position:
        return _truncated(position, size)
    return _corrupt(
        position,
        "the lengths of body, topic and properties do not add up to the total size",
        field="size",
        expected=f"{size}",
        found=_lengths(data[position : position + size], magic),
    )


def _lengths(record: bytes, magic: int) -> str:
    """Return the lengths inside a whole record, as far as they can be followed."""
    (sys_flag,) = _SYS_FLAG.unpack_from(record, SYS_FLAG_POSITION)
    start = FIXED_FIELDS[sys_flag & HOSTS_V6].size
    body_size = int.from_bytes(record[start - 4 : start], signed=True)
    found = f"body {body_size}"
    position = start + body_size
    for name, length_size in (("topic", 1 if magic == MAGIC_V1 else 2), ("properties", 2)):
        if not start <= position <= len(record) - length_size:
            break
        start = position + length_size
        size = int.from_bytes(record[position:start], signed=True)
        found += f", {name} {size}"
        position = start + size
    return found


def _truncated(position: int, needed: int) -> Truncated:
    return Truncated(
        f"the data ends inside the message at {position}",
        kind="message",
        position=position,
        needed=needed,
    )


def _corrupt(position: int, what: str, **facts: object) -> Corrupt:
    return Corrupt(f"message at {position}: {what}", kind="message", position=position, **facts)


def _wrong_crc(position: int, *, expected: int, found: int) -> Corrupt:
    return _corrupt(
        position,
        "the CRC of the body is wrong",
        field="crc",
        expected=f"{expected & 0xFFFFFFFF:08x}",
        found=f"{found:08x}",
    )


def encode_padding(size: int) -> bytes:
    """Return the 8 bytes that begin a padding of `size` bytes. Raises InvalidArgument for a size under 8."""
    if not PADDING_SIZE <= size <= MAX_SIZE:
        raise InvalidArgument(
            f"a padding of {size} bytes: need {PADDING_SIZE} to {MAX_SIZE}", field="size"
        )
    return _HEAD.pack(size, MAGIC_PADDING)


def magic_for(topic: str) -> int:
    """Return the magic of the record version that the real store uses for a topic: v2 for more than 127 characters.

    Characters are Java characters (UTF-16 units). Raises InvalidTopic for a topic that no record can hold:

    - at most 127 characters but more than 127 bytes, which the real store damages;
    - over 32,767 bytes;
    - not valid Unicode.
    """
    try:
        size_bytes = len(topic.encode())
    except UnicodeEncodeError as cause:
        raise InvalidTopic(f"topic {topic!r} is not valid Unicode", topic=topic) from cause
    if len(topic.encode("utf-16-le")) // 2 > MAX_TOPIC_V1:
        magic, limit_bytes = MAGIC_V2, MAX_SIGNED_SHORT
    else:
        magic, limit_bytes = MAGIC_V1, MAX_TOPIC_V1
    if size_bytes > limit_bytes:
        raise InvalidTopic(
            f"topic {topic!r} has {size_bytes} bytes: the limit is {limit_bytes}", topic=topic
        )
    return magic


def message_size(
    *, topic_bytes: int, body_bytes: int, properties_bytes: int, sys_flag: int, magic: int
) -> int:
    """Return the total size of a record with these parts."""
    topic_length_bytes = 2 if magic == MAGIC_V2 else 1
    fixed = FIXED_FIELDS[sys_flag & HOSTS_V6].size + topic_length_bytes + 2
    return fixed + body_bytes + topic_bytes + properties_bytes


_NATIVE: Final = is_native(message_size)
