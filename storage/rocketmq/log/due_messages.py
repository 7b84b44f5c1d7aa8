"""Delayed messages that are due: from bytes of the log to the messages that deliver them, many in one pass.

Owns which message delivers a delayed one; must not read a file, nor decide what happens to a record that cannot be
delivered: the pass ends before it. Source: ScheduleMessageService.messageTimeUp of RocketMQ 5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from storage.errors import DataError, InvalidArgument
from storage.model import RawMessage, TopicPartition
from storage.rocketmq.format.message import Message, decode_message
from storage.rocketmq.format.names import HALF_TOPIC
from storage.rocketmq.format.properties import (
    CRC32,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    properties_text,
)
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.log.record_run import SEQUENCE_PROPERTY

QUEUE_ID: Final = re.compile(r"[+]?\d{1,10}", re.ASCII)
_SEQUENCE: Final = f"{SEQUENCE_PROPERTY}{NAME_VALUE_SEPARATOR}".encode()
_CRC: Final = f"{CRC32}{NAME_VALUE_SEPARATOR}".encode()
_REAL_TOPIC: Final = f"{REAL_TOPIC}{NAME_VALUE_SEPARATOR}".encode()
_REAL_QUEUE_ID: Final = f"{REAL_QUEUE_ID}{NAME_VALUE_SEPARATOR}".encode()
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_new_message: Final = tuple.__new__
"""Create a RawMessage without a Python call."""


class DueMessage(NamedTuple):
    """A message to be delivered, and the store host of its record."""

    partition: TopicPartition
    host: bytes
    message: RawMessage


def take_due(
    data: bytes,
    start: int,
    entries: Sequence[QueueEntry],
    partition: TopicPartition,
    *,
    room_bytes: int,
    due: list[DueMessage],
) -> tuple[int, int]:
    """Append to `due` the messages that deliver the records of `entries`, in order. `data`: the log from `start` on.

    Return how many entries were taken, and the bytes of their records. The pass ends before an entry whose record is
    not in `data`, is damaged or belongs to another queue than `partition`, names no queue, or does not fit into
    `room_bytes`.
    """
    topic, queue_id = partition
    end = len(data)
    taken = 0
    used_bytes = 0
    for entry in entries:
        size = entry.size
        position = entry.physical_offset - start
        if position < 0 or size <= 0 or position + size > end or used_bytes + size > room_bytes:
            break
        try:
            message = decode_message(data, position)
            if message.topic != topic or message.queue_id != queue_id:
                break
            due.append(time_up(message))
        except (DataError, InvalidArgument):
            break
        used_bytes += size
        taken += 1
    return taken, used_bytes


def time_up(message: Message) -> DueMessage:
    """Return the record that delivers a message (ScheduleMessageService.messageTimeUp).

    The properties DELAY, REAL_TOPIC and REAL_QID stay, as in the broker's records. The mark of a sequence is dropped:
    it belongs to the queue of the delay level. Raises InvalidArgument if it does not name its topic and queue.
    """
    stored = message.properties
    partition = _partition_of(_value(stored, _REAL_TOPIC), _value(stored, _REAL_QUEUE_ID))
    if _SEQUENCE in stored or _CRC in stored:
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


def _value(stored: bytes, name: bytes) -> bytes:
    """Return the value of a property as `decode_properties` does, at a fifth of its cost; empty if it is missing.

    `name`: the name with its separator. If a name occurs twice, the later value that is not empty counts.
    """
    end = len(stored)
    while True:
        at = stored.rfind(name, 0, end)
        if at < 0:
            return b""
        begin = at + len(name)
        stop = stored.find(_SEPARATOR, begin)
        value = stored[begin:] if stop < 0 else stored[begin:stop]
        if value and (not at or stored[at - 1 : at] == _SEPARATOR):
            return value
        end = begin - 1


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
