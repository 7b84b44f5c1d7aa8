"""Delayed messages that are due: from bytes of the log to the records that deliver them, many in one pass.

Owns which record delivers a delayed one; must not read a file, nor decide what happens to a record that cannot be
delivered: the pass ends before it. Source: ScheduleMessageService.messageTimeUp of RocketMQ 5.5.0.

A usual record, v1 with IPv4 hosts, is copied. All others are decoded and encoded again: `time_up` has the rule, and a
test holds both ways equal. The parts of the copy (`format.message` has the whole record):

    position  bytes  field             in the copy
    0         88     fields            size, queue id, prepared offset; offsets and store time are set by `placed`
    88        n      body              the same
    .         1      topic length      of REAL_TOPIC
    .         n      topic             REAL_TOPIC
    .         2      properties length the same
    .         n      properties        the same: DELAY, REAL_TOPIC and REAL_QID stay, as in the broker's records
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from storage.coding.native import i64, is_native, read_i16_be, read_i32_be, read_i64_be
from storage.errors import CallerError, DataError, InvalidArgument
from storage.model import RawMessage, TopicPartition
from storage.rocketmq.format.message import (
    BODY_CRC_POSITION,
    BODY_POSITION,
    BODY_SIZE_POSITION,
    CRC_MASK,
    FIXED_SIZE_V4,
    HOST_BITS_POSITION,
    HOSTS_V6,
    MAGIC_POSITION,
    MAGIC_V1,
    MAX_SIZE,
    QUEUE_ID_POSITION,
    TRANSACTION_PREPARED,
    Message,
    decode_message,
)
from storage.rocketmq.format.names import HALF_TOPIC
from storage.rocketmq.format.properties import (
    CRC32,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    properties_text,
    property_value,
)
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.log.encoding import Encoder
from storage.rocketmq.log.record_run import SEQUENCE_PROPERTY, RecordRun, RunWriter

QUEUE_ID: Final = re.compile(r"[+]?\d{1,10}", re.ASCII)
_SEQUENCE: Final = f"{SEQUENCE_PROPERTY}{NAME_VALUE_SEPARATOR}".encode()
_CRC: Final = f"{CRC32}{NAME_VALUE_SEPARATOR}".encode()
_REAL_TOPIC: Final = f"{REAL_TOPIC}{NAME_VALUE_SEPARATOR}".encode()
_REAL_QUEUE_ID: Final = f"{REAL_QUEUE_ID}{NAME_VALUE_SEPARATOR}".encode()
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_UNUSUAL_FLAGS: Final = HOSTS_V6 | TRANSACTION_PREPARED
_NAME_VALUE: Final = 1
_PROPERTY: Final = 2
_REAL_TOP: Final = int.from_bytes(b"REAL_TOP")
_IC: Final = int.from_bytes(b"IC")
_REAL_QID: Final = int.from_bytes(b"REAL_QID")
_LOGSERVER: Final = int.from_bytes(b"__LOGSER")
_CRC_NAME: Final = int.from_bytes(b"__CRC32#")
_new_message: Final = tuple.__new__
"""Create a RawMessage without a Python call."""


class DueMessage(NamedTuple):
    """A message to be delivered, and the store host of its record."""

    partition: TopicPartition
    host: bytes
    message: RawMessage


class DueRecords:
    """The records that deliver due messages of one queue. The records of a target queue keep the order of the messages.

    Not thread-safe.
    """

    def __init__(
        self,
        encoder: Encoder,
        source: TopicPartition,
        check_topic: Callable[[str], None] | None = None,
    ) -> None:
        """`check_topic`: called with each topic before its first record is added; it may raise a CallerError."""
        self._encoder = encoder
        self._check_topic = check_topic
        self._source = source
        self._source_topic = source.topic.encode()
        self._source_queue = source.partition
        self._with_crc = encoder.with_crc
        self._writers: dict[TopicPartition, RunWriter] = {}

    def runs(self) -> list[tuple[TopicPartition, RecordRun]]:
        """Return the records by target queue. Nothing must be added after it. Their store hosts may differ, so the
        locators that an append returns are not theirs.
        """
        return [
            (partition, writer.run(with_crc=self._with_crc))
            for partition, writer in self._writers.items()
        ]

    def take(
        self, data: bytes, start: int, entries: Sequence[QueueEntry], first: int, room_bytes: int
    ) -> tuple[int, int]:
        """Add the records that deliver the records of `entries[first:]`, in order. `data`: the log from `start` on.

        Return how many entries were taken, and the bytes of their records. The pass ends before an entry whose record
        is not in `data`, is damaged or belongs to another queue, names no queue, cannot be stored, or does not fit into
        `room_bytes`.
        """
        end: i64 = len(data)
        room: i64 = room_bytes
        used: i64 = 0
        at: i64 = first
        stop: i64 = len(entries)
        while at < stop:
            physical_offset, size_bytes, _ = entries[at]
            size: i64 = size_bytes
            if not 0 <= physical_offset - start <= end:
                break
            position: i64 = physical_offset - start
            if size <= 0 or position + size > end or used + size > room:
                break
            try:
                if self._with_crc or not self._copy(data, position, size):
                    message = decode_message(data, position)
                    if (message.topic, message.queue_id) != self._source:
                        break
                    self.put(message)
            except (DataError, CallerError):
                break
            used += size
            at += 1
        return int(at) - first, int(used)

    def _copy(self, data: bytes, position: i64, size: i64) -> bool:
        """Add the copy of the record at a position; return False, and add nothing, if the record is not a usual one, is
        damaged, or is the first of its target. Raises InvalidArgument if it names no topic and queue.
        """
        stop: i64 = position + size
        if size < FIXED_SIZE_V4 or i64(read_i32_be(data, position)) != size:
            return False
        if read_i32_be(data, position + MAGIC_POSITION) != MAGIC_V1:
            return False
        if i64(data[position + HOST_BITS_POSITION]) & _UNUSUAL_FLAGS:
            return False
        if read_i32_be(data, position + QUEUE_ID_POSITION) != self._source_queue:
            return False
        body_at: i64 = position + BODY_POSITION
        body_size: i64 = i64(read_i32_be(data, position + BODY_SIZE_POSITION))
        topic_at: i64 = body_at + body_size + 1
        if body_size <= 0 or topic_at + 2 > stop:
            return False
        topic_end: i64 = topic_at + i64(data[topic_at - 1])
        if topic_end + 2 > stop or data[topic_at:topic_end] != self._source_topic:
            return False
        properties_at: i64 = topic_end + 2
        if properties_at + i64(read_i16_be(data, topic_end)) != stop:
            return False
        body = data[body_at : topic_at - 1]
        if i64(crc32(body)) & CRC_MASK != i64(read_i32_be(data, position + BODY_CRC_POSITION)):
            return False
        properties = data[properties_at:stop]
        values = _walked(properties) if _NATIVE else _found(properties)
        writer = None if values is None else self._writers.get(_partition_of(*values))
        return writer is not None and writer.put_copy(data[position:body_at], body, properties)

    def put(self, message: Message) -> None:
        """Add the record that delivers a message. Raises InvalidArgument if the message names no topic and queue, and
        the errors of `check_topic` and `Encoder.put_raw`.
        """
        partition, host, raw = time_up(message)
        writer = self._writers.get(partition)
        if writer is None:
            if self._check_topic is not None:
                self._check_topic(partition.topic)
            # A limit that was lowered since the message was accepted must not lose it.
            writer = self._encoder.writer_to(partition, host, limit_bytes=MAX_SIZE)
        self._encoder.put_raw(writer, [raw], host)
        self._writers[partition] = writer


def time_up(message: Message) -> DueMessage:
    """Return the record that delivers a message (ScheduleMessageService.messageTimeUp).

    The properties DELAY, REAL_TOPIC and REAL_QID stay, as in the broker's records. The mark of a sequence is dropped:
    it belongs to the queue of the delay level. Raises InvalidArgument if it does not name its topic and queue.
    """
    stored = message.properties
    partition = _partition_of(
        property_value(stored, _REAL_TOPIC), property_value(stored, _REAL_QUEUE_ID)
    )
    if _holds_dropped(stored):
        pieces = stored.split(_SEPARATOR)
        stored = _SEPARATOR.join(
            [p for p in pieces if not p.startswith(_SEQUENCE) and not p.startswith(_CRC)]
        )
    # fmt: off
    raw: RawMessage = _new_message(RawMessage, (
        message.body, stored, message.flag, message.sys_flag, message.born_timestamp_ms, message.born_host,
        message.reconsume_times, 0,
    ))
    # fmt: on
    return DueMessage(partition, message.store_host, raw)


@lru_cache(maxsize=1024)
def _partition_of(topic: bytes, queue_id: bytes) -> TopicPartition:
    """Return the queue with these values of REAL_TOPIC and REAL_QID. Raises InvalidArgument."""
    name, number = properties_text(topic), properties_text(queue_id)
    if not name or name == HALF_TOPIC or not QUEUE_ID.fullmatch(number):
        raise InvalidArgument(
            f"the message names topic {name!r} and queue {number!r}: no queue of a topic for messages",
            field=REAL_TOPIC,
        )
    return TopicPartition(name, int(number))


def _holds_dropped(stored: bytes) -> bool:
    """Return whether a property may have to be dropped."""
    return _SEQUENCE in stored or _CRC in stored


# ---- the values of REAL_TOPIC and REAL_QID, as `property_value` returns them; None if a property may be dropped ----


def _found(stored: bytes) -> tuple[bytes, bytes] | None:
    if _holds_dropped(stored):
        return None
    return property_value(stored, _REAL_TOPIC), property_value(stored, _REAL_QUEUE_ID)


def _walked(stored: bytes) -> tuple[bytes, bytes] | None:
    """Do what `_found` does in one walk over the bytes, which only compiled code does faster."""
    topic_at: i64 = 0
    topic_end: i64 = 0
    queue_at: i64 = 0
    queue_end: i64 = 0
    at: i64 = 0
    end: i64 = len(stored)
    while at < end:
        name_end: i64 = at
        while name_end < end and stored[name_end] != _NAME_VALUE and stored[name_end] != _PROPERTY:
            name_end += 1
        stop: i64 = name_end
        while stop < end and stored[stop] != _PROPERTY:
            stop += 1
        size: i64 = name_end - at
        if size >= 8 and stop > name_end:
            begin: i64 = read_i64_be(stored, at)
            if size == 10 and begin == _REAL_TOP and read_i16_be(stored, at + 8) == _IC:
                if stop > name_end + 1:
                    topic_at, topic_end = name_end + 1, stop
            elif size == 8 and begin == _REAL_QID:
                if stop > name_end + 1:
                    queue_at, queue_end = name_end + 1, stop
            elif begin in (_LOGSERVER, _CRC_NAME):
                return None
        at = stop + 1
    return stored[topic_at:topic_end], stored[queue_at:queue_end]


_NATIVE: Final = is_native(time_up)
