"""Plausibility checks of a record's topic, properties and header.

Owns these checks of one record; must not know queues or index. RocketMQ's CRC covers the body alone, so a damaged
sector outside the body passes every check of `message`. Each part with an impossible value is named:

    topic                no name of a folder (empty, `.`, `..`, with `/`), control characters, no UTF-8
    properties           a NUL outside a key, no UTF-8, a piece without a name or without 01
    queue_id             below 0
    queue_offset         below 0
    physical_offset      not the position of the record
    sys_flag             bits that no version knows (MessageSysFlag)
    born_timestamp       below 0 (but -1: none), or in the year 2100 or later
    store_timestamp      below 0, or in the year 2100 or later
    born_host            a port outside 0 to 65535
    store_host           likewise
    reconsume_times      below 0, or more than a million
    prepared_offset      below 0, a pebibyte and more, or set outside a transaction; a converted record keeps
                         the offset of its old log, which may be above its own position

A wrong but plausible value, such as another digit in a time, is not found here: see tools.verify.record_check.
"""

from __future__ import annotations

import re
from typing import Final

from storage.rocketmq.format.message import (
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
    TRANSACTION_MASK,
    Message,
)
from storage.rocketmq.format.properties import decode_properties, lone_nul

KNOWN_FLAGS: Final = 0x7FF
"""The bits of the sys flag that have a meaning in 5.5.0."""
LATER_FLAGS: Final = 0xFFFF
"""Bits up to these may be flags of a later version. RocketMQ assigned the bits in order from the lowest, so higher bits
are damage.
"""
MAX_COMPRESSION_TYPE: Final = 3
END_OF_TIME_MS: Final = 4_102_444_800_000
"""The first millisecond of 2100."""
MAX_TIMES: Final = 1_000_000
MAX_PORT: Final = 65_535
MAX_PREPARED_OFFSET: Final = 1 << 50

MAX_FOLDER_BYTES: Final = 255
"""Most bytes in a name on the file systems of Linux."""

_REPLACEMENT: Final = "\ufffd"
_NOT_IN_TOPICS: Final = re.compile(r"[\x00-\x1f\x7f\ufffd]")


def is_folder_name(topic: str) -> bool:
    """Return whether a folder can have a topic's name: a topic with another name has no queue.

    Half of a surrogate pair, which JSON may contain, is in no name. A byte of a name that is not UTF-8 is a surrogate
    too (PEP 383), and may be in one.
    """
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    if topic.isascii():
        return len(topic) <= MAX_FOLDER_BYTES
    try:
        return len(topic.encode(errors="surrogateescape")) <= MAX_FOLDER_BYTES
    except UnicodeEncodeError:
        return False


def suspect_parts(message: Message, physical_offset: int) -> tuple[str, ...]:
    """Return the parts with impossible values of a record at this physical offset."""
    properties = message.properties
    if (
        message.topic.isprintable()
        and is_folder_name(message.topic)
        and _REPLACEMENT not in message.topic
        and message.queue_id >= 0
        and message.queue_offset >= 0
        and message.physical_offset == physical_offset
        and 0 <= message.sys_flag <= KNOWN_FLAGS
        and message.sys_flag >> 8 <= MAX_COMPRESSION_TYPE
        and -1 <= message.born_timestamp_ms < END_OF_TIME_MS
        and 0 <= message.store_timestamp_ms < END_OF_TIME_MS
        and message.born_host[-4:-2] == message.store_host[-4:-2] == b"\0\0"
        and 0 <= message.reconsume_times <= MAX_TIMES
        and (
            not message.prepared_transaction_offset
            or (
                message.sys_flag & TRANSACTION_MASK
                and 0 < message.prepared_transaction_offset < MAX_PREPARED_OFFSET
            )
        )
        and (not properties or _can_be_properties(properties))
    ):
        return ()
    return tuple(part for part, is_bad in _judged(message, physical_offset) if is_bad)


def is_of_later_version(sys_flag: int) -> bool:
    """Return whether a sys flag that 5.5.0 does not know is probably a flag of a later version."""
    return KNOWN_FLAGS < sys_flag <= LATER_FLAGS or (
        0 <= sys_flag <= LATER_FLAGS and not is_known_compression(sys_flag)
    )


def is_known_compression(sys_flag: int) -> bool:
    """Return whether 5.5.0 knows the compression type in a sys flag."""
    return (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT <= MAX_COMPRESSION_TYPE


def _judged(message: Message, physical_offset: int) -> list[tuple[str, bool]]:
    """Return each part, and whether it is bad."""
    topic, properties, flag = message.topic, message.properties, message.sys_flag
    prepared, in_transaction = message.prepared_transaction_offset, flag & TRANSACTION_MASK
    is_known = 0 <= flag <= KNOWN_FLAGS and flag >> 8 <= MAX_COMPRESSION_TYPE
    return [
        ("topic", not is_folder_name(topic) or _NOT_IN_TOPICS.search(topic) is not None),
        ("properties", bool(properties) and not _can_be_properties(properties)),
        ("queue_id", message.queue_id < 0),
        ("queue_offset", message.queue_offset < 0),
        ("physical_offset", message.physical_offset != physical_offset),
        ("sys_flag", not is_known),
        ("born_timestamp", not -1 <= message.born_timestamp_ms < END_OF_TIME_MS),
        ("store_timestamp", not 0 <= message.store_timestamp_ms < END_OF_TIME_MS),
        ("born_host", message.born_host[-4:-2] != b"\0\0"),
        ("store_host", message.store_host[-4:-2] != b"\0\0"),
        ("reconsume_times", not 0 <= message.reconsume_times <= MAX_TIMES),
        (
            "prepared_offset",
            prepared != 0 and not (0 < prepared < MAX_PREPARED_OFFSET and in_transaction),
        ),
    ]


def _can_be_properties(data: bytes) -> bool:
    """Return whether each piece has a name and a 01; a value may be empty."""
    if not (data.isascii() or _is_text(data)):
        return False
    if b"\0" in data and lone_nul(decode_properties(data)) is not None:
        return False
    pieces = data.removesuffix(b"\x02").split(b"\x02")
    return min([piece.find(b"\x01") for piece in pieces]) > 0


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
