"""Blank records, which fill ranges that a salvage could not keep, so that the log stays one run of records.

Owns their bytes; must not decide where they go. A blank is a rolled back record, which neither RocketMQ
nor logserver puts into a queue or the index. It is only in the log and has the size of the lost bytes:

    good record | blank record, or several | good record       in a file
    good record | blank record | padding                       to the end of one
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.model import RawMessage
from storage.rocketmq.format.message import (
    FIXED_SIZE_V4,
    MAGIC_V1,
    PADDING_SIZE,
    TRANSACTION_ROLLBACK,
    encode_padding,
)
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.properties import CRC_PROPERTY_SIZE, closed_record, with_crc_place

TOPIC: Final = "-"
SMALLEST: Final = FIXED_SIZE_V4 + len(TOPIC)
"""The smallest possible size of a lost record: a topic has at least one character."""
LARGEST: Final = 1 << 20
_TEXT: Final = b"left behind by logserver salvage"
_HOST: Final = bytes(8)


def is_blank(topic: str, sys_flag: int) -> bool:
    """Return whether a record with this topic and flag is a blank."""
    return topic == TOPIC and sys_flag == TRANSACTION_ROLLBACK


def fill(
    start: int, end: int, *, file_end: int, time_ms: int, with_crc: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield (physical offset, bytes) that make [start, end) of one file readable. The range must be at least as
    long as a record, or end at the file's end and be at least as long as a padding. `with_crc`: each blank with
    enough room ends in a CRC over the record.
    """
    smallest = SMALLEST + (CRC_PROPERTY_SIZE if with_crc else 0)
    if end == file_end:
        if end - start >= smallest + PADDING_SIZE:
            yield start, _blank(start, smallest, time_ms, with_crc=with_crc)
            start += smallest
        if end - start >= PADDING_SIZE:
            yield start, encode_padding(end - start)
        return
    while start < end:
        left = end - start
        size = left if left < LARGEST + smallest else LARGEST
        yield start, _blank(start, size, time_ms, with_crc=with_crc and size >= smallest)
        start += size


def _blank(physical_offset: int, size: int, time_ms: int, *, with_crc: bool) -> bytes:
    properties = with_crc_place(b"") if with_crc else b""
    body_size = size - SMALLEST - len(properties)
    message = RawMessage(
        body=_TEXT[:body_size].ljust(body_size, b"\0"),
        properties=properties,
        flag=0,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp_ms=time_ms,
        born_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    place = Placement(TOPIC.encode(), MAGIC_V1, 0, 0, physical_offset, time_ms, _HOST)
    record = encode_messages([message], place)[0]
    return closed_record(record) if with_crc else record
