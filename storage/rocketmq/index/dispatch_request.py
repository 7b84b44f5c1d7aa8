"""The dispatch of a record: its fields that the queues and the index need (DispatchRequest).

Owns that value and how it follows from a record's properties; must not do IO. An append makes it from
the message in memory, recovery and rebuild from the stored record, so that all of them build the same
files. Source: CommitLog.checkMessageAndReturnSize of RocketMQ. Compiled if a compiler is
available. Fields that are read of a stored record (the whole record is drawn in `format.message`):

    position  bytes  field            note
    4         4      magic            v2 records, and IPv6 hosts, are decoded in full
    12        4      queue id
    20        8      queue offset
    36        4      sys flag
    56        8      store timestamp
    84        4      body length
    88 + n    1      topic length     after the body, followed by the topic
    .         2      properties length, and the properties up to the record's end
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.rocketmq.format.index_file import index_keys
from storage.rocketmq.format.message import (
    BODY_POSITION,
    HOSTS_V6,
    MAGIC_V1,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Message,
    decode_message,
    takes_queue_offset,
)
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.format.queue_entry import UNIT, code_of
from storage.rocketmq.format.suspect_fields import is_folder_name

if TYPE_CHECKING:
    from mypy_extensions import i64

_HEAD: Final = Struct(
    ">4x"
    "i"  # magic
    "4x"
    "i"  # queue id
    "4x"
    "q"  # queue offset
    "8x"
    "i"  # sys flag
    "16x"
    "q"  # store timestamp
    "20x"
    "i"  # body length
)
assert _HEAD.size == BODY_POSITION

pack_unit: Final = UNIT.pack
LARGEST_GAP: Final = 1_000_000
"""Between queue offsets. A record with a larger jump is damaged."""

Head = tuple[str, int, int, int, int, int]
"""(topic, queue id, queue offset, sys flag, store timestamp, position of the properties in the data) of a record."""


class Dispatch(NamedTuple):
    """The fields of one stored record for its queue and the index. `keys` are the strings to be indexed,
    in order; empty for a record that is not indexed.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    sys_flag: int
    keys: Sequence[str]

    @property
    def is_queued(self) -> bool:
        """Whether the record has an entry in its queue. Prepared and rolled back records have none, nor have records
        of a topic whose name no folder can have.
        """
        return takes_queue_offset(self.sys_flag) and is_folder_name(self.topic)


new_dispatch: Final = tuple.__new__
"""`Dispatch._make` without its length check, in half the time."""


def keys_of(
    topic: str, properties: dict[str, str], sys_flag: int, *, with_tags: bool
) -> Sequence[str]:
    """Return the strings under which a record is indexed."""
    if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return ()
    return index_keys(topic, properties, with_tags=with_tags)


def dispatch_of(
    message: Message,
    physical_offset: int,
    *,
    with_tags: bool,
    delays_ms: Sequence[int] | None = None,
) -> Dispatch:
    """Return the dispatch of a record stored at `physical_offset`; `delays_ms` as for `code_of`."""
    topic, properties = message.topic, decode_properties(message.properties)
    time_ms, sys_flag = message.store_timestamp_ms, message.sys_flag
    # fmt: off
    return new_dispatch(Dispatch, (
        topic, message.queue_id, message.queue_offset, physical_offset, message.size,
        code_of(topic, properties, time_ms, delays_ms), time_ms, sys_flag,
        keys_of(topic, properties, sys_flag, with_tags=with_tags),
    ))
    # fmt: on


def heads_of(data: bytes, records: Sequence[tuple[int, int]], start: int) -> list[Head]:
    """Return the head of each record: its queue, queue offset, flag and time. `records` are good records as
    from `format.scan`, [(physical offset, size)]; `start` is the physical offset of `data`.
    """
    heads: list[Head] = []
    topics: dict[bytes, str] = {}
    unpack = _HEAD.unpack_from
    magic: i64
    sys_flag: i64
    body_size: i64
    for physical_offset, size in records:
        position: i64 = physical_offset - start
        magic, queue_id, queue_offset, sys_flag, time_ms, body_size = unpack(data, position)
        if magic != MAGIC_V1 or sys_flag & HOSTS_V6:
            message = decode_message(data, position, check_crc=False)
            # fmt: off
            heads.append((
                message.topic, message.queue_id, message.queue_offset, message.sys_flag,
                message.store_timestamp_ms, position + size - len(message.properties),
            ))
            # fmt: on
            continue
        topic_start: i64 = position + BODY_POSITION + body_size + 1
        topic_end: i64 = topic_start + data[topic_start - 1]
        name = data[topic_start:topic_end]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = name.decode(errors="replace")
        heads.append((topic, queue_id, queue_offset, sys_flag, time_ms, topic_end + 2))
    return heads
