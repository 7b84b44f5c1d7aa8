"""Light message queues (LMQ): queues of topics `%LMQ%...`, whose units lead to records of other topics.

Owns which of them a record is in; must not read the log. Source: ConsumeQueue.multiDispatchLmqQueue of
RocketMQ. A record names them, and in the same order its offsets there:

    INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b
    INNER_MULTI_QUEUE_OFFSET  17,3

A queue that is there is kept up with the log as all others are. None is made: brokers take one that
nobody uses away, and its records stay in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage.model import TopicPartition
from storage.rocketmq.dispatch import Dispatch, dispatch_of
from storage.rocketmq.format.message import Message, decode_message
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.queues import QueueTable
from storage.rocketmq.walking import Stretch

PREFIX: Final = "%LMQ%"
QUEUE_ID: Final = 0
NAMES: Final = "INNER_MULTI_DISPATCH"
OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
_MARK: Final = OFFSETS.encode()


def is_lmq(topic: str) -> bool:
    """Whether records of other topics may be in the topic's queue (MixAll.isLmq)."""
    return topic.startswith(PREFIX)


def lmq_offsets(message: Message) -> Mapping[str, int]:
    """The LMQ topics in whose queues a record is, and its offset in each."""
    if _MARK not in message.properties:
        return {}
    properties = decode_properties(message.properties)
    topics = properties.get(NAMES, "").rstrip(",").split(",")  # as Java splits
    offsets = properties.get(OFFSETS, "").rstrip(",").split(",")
    if len(topics) != len(offsets):
        return {}
    return {
        topic: int(offset)
        for topic, offset in zip(topics, offsets, strict=True)
        if is_lmq(topic) and offset.isascii() and offset.isdigit()
    }


def is_in_lmq(message: Message, partition: TopicPartition) -> bool:
    """Whether a record of another topic is in this queue too."""
    return partition.partition == QUEUE_ID and partition.topic in lmq_offsets(message)


def lmq_dispatches(stretch: Stretch, queues: QueueTable) -> list[Dispatch]:
    """What the records of a stretch tell those LMQ queues that are there. None has keys: the index has
    them under the records' own topics.
    """
    found: list[Dispatch] = []
    data, start = stretch.data, stretch.start
    for physical_offset, size in stretch.records if _MARK in data else ():
        position = physical_offset - start
        if data.find(_MARK, position, position + size) >= 0:
            message = decode_message(data, position, check_crc=False)
            found += of_message(message, physical_offset, queues)
    return found


def of_message(message: Message, physical_offset: int, queues: QueueTable) -> list[Dispatch]:
    """As `lmq_dispatches`, of one record."""
    if not message.in_queue:
        return []
    of_record = dispatch_of(message, physical_offset, with_tags=False)
    return [
        of_record._replace(topic=topic, queue_id=QUEUE_ID, queue_offset=offset, keys=())
        for topic, offset in lmq_offsets(message).items()
        if queues.get(topic, QUEUE_ID) is not None
    ]
