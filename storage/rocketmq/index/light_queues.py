"""Light message queues (LMQ): queues of topics `%LMQ%...`, whose entries point to records of other topics.

Owns the rule that assigns records to these queues; must not read the log. Source: ConsumeQueue.multiDispatchLmqQueue of
RocketMQ. A record names its LMQ queues and, in the same order, its offset in each:

    INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b
    INNER_MULTI_QUEUE_OFFSET  17,3

A queue that exists is kept up to date with the log like every other queue. None is created: brokers remove an LMQ queue
that is not used, and its records stay in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage.coding.varint import INT64_MAX
from storage.model import TopicPartition
from storage.rocketmq.format.message import Message, decode_message
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.index.dispatch_request import Dispatch, dispatch_of
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.log.scan import LogRange

PREFIX: Final = "%LMQ%"
QUEUE_ID: Final = 0
NAMES: Final = "INNER_MULTI_DISPATCH"
OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
_MAX_DIGITS: Final = len(str(INT64_MAX))
_MARK: Final = OFFSETS.encode()


def is_lmq(topic: str) -> bool:
    """Return whether the topic's queue may contain records of other topics (MixAll.isLmq)."""
    return topic.startswith(PREFIX)


def lmq_offsets(message: Message) -> Mapping[str, int]:
    """Return the LMQ topics whose queues contain a record, with its offset in each."""
    if _MARK not in message.properties:
        return {}
    properties = decode_properties(message.properties)
    topics = properties.get(NAMES, "").rstrip(",").split(",")  # Java drops empty parts at the end
    offsets = properties.get(OFFSETS, "").rstrip(",").split(",")
    if len(topics) != len(offsets):
        return {}
    return {
        topic: int(offset)
        for topic, offset in zip(topics, offsets, strict=True)
        if is_lmq(topic) and _is_offset(offset)
    }


def _is_offset(text: str) -> bool:
    """Return whether the text is a number of 63 bits. The client wrote it, so it may have any length."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= INT64_MAX


def is_in_lmq(message: Message, partition: TopicPartition) -> bool:
    """Return whether this LMQ queue contains a record of another topic."""
    return partition.partition == QUEUE_ID and partition.topic in lmq_offsets(message)


def lmq_dispatches(log_range: LogRange, queues: QueueTable) -> list[Dispatch]:
    """Return the dispatches of records to the LMQ queues that exist.

    They have no keys: the index has these under the records' own topics.
    """
    found: list[Dispatch] = []
    data, start = log_range.data, log_range.start
    for physical_offset, size in log_range.records if _MARK in data else ():
        position = physical_offset - start
        if data.find(_MARK, position, position + size) >= 0:
            message = decode_message(data, position, check_crc=False)
            found += of_message(message, physical_offset, queues)
    return found


def of_message(message: Message, physical_offset: int, queues: QueueTable) -> list[Dispatch]:
    """Return the dispatches of one record, as `lmq_dispatches`."""
    if not message.in_queue:
        return []
    of_record = dispatch_of(message, physical_offset, with_tags=False)
    return [
        of_record._replace(topic=topic, queue_id=QUEUE_ID, queue_offset=offset, keys=())
        for topic, offset in lmq_offsets(message).items()
        if queues.get(topic, QUEUE_ID) is not None
    ]
