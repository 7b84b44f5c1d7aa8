"""Records that stand where a salvage left something behind, so that the log stays one run of records.

Owns their bytes; must not decide where they go. A blank is a rolled back record, which neither the real
store nor this one puts into a queue or the index. It lies in the log only, as long as what was there:

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

TOPIC: Final = "-"
SMALLEST: Final = FIXED_SIZE_V4 + len(TOPIC)
"""No record that was lost is smaller: a topic has a character at least."""
LARGEST: Final = 1 << 20
_TEXT: Final = b"left behind by logserver salvage"
_HOST: Final = bytes(8)


def is_blank(topic: str, sys_flag: int) -> bool:
    """Whether a record of this topic and flag is a blank."""
    return topic == TOPIC and sys_flag == TRANSACTION_ROLLBACK


def fill(start: int, end: int, *, file_end: int, time_ms: int) -> Iterator[tuple[int, bytes]]:
    """(physical offset, bytes) that make [start, end) of one file readable: as long as a record at
    least, or up to the file's end and as long as a padding.
    """
    if end == file_end:
        if end - start >= SMALLEST + PADDING_SIZE:
            yield start, _blank(start, SMALLEST, time_ms)
            start += SMALLEST
        if end - start >= PADDING_SIZE:
            yield start, encode_padding(end - start)
        return
    while start < end:
        left = end - start
        size = left if left < LARGEST + SMALLEST else LARGEST
        yield start, _blank(start, size, time_ms)
        start += size


def _blank(physical_offset: int, size: int, time_ms: int) -> bytes:
    body = _TEXT[: size - SMALLEST].ljust(size - SMALLEST, b"\0")
    message = RawMessage(
        body=body,
        properties=b"",
        flag=0,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp_ms=time_ms,
        born_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    place = Placement(TOPIC.encode(), MAGIC_V1, 0, 0, physical_offset, time_ms, _HOST)
    return encode_messages([message], place)[0]
