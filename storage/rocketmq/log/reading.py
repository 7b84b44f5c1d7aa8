"""Converting a message to a StoredRecord, as readers get it.

Owns the mapping from messages to records; must not read files. The opposite mapping is encoding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.model import Header, StoredRecord
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.properties import KEYS, SHARDING_KEY, TAGS, decode_properties
from storage.rocketmq.format.suspect_fields import suspect_parts
from storage.rocketmq.log.record_run import NOT_THE_USERS

MAX_BODY_BYTES: Final = 64 << 20  # limit for a body after decompression
V6_MARK: Final = 1 << 224  # distinguishes an id of 28 bytes from one of 16 in a locator
HIDDEN_PROPERTIES: Final = NOT_THE_USERS


def locator_of(store_host: bytes, physical_offset: int) -> int:
    """Return the offset id (CommitLog's msgId) as one number."""
    number = int.from_bytes(store_host, "big") << 64 | physical_offset
    return number | V6_MARK if len(store_host) > 8 else number


def locator_text(locator: int) -> str:
    """Return the offset id as RocketMQ writes it: 32 hex digits, 56 for an IPv6 host."""
    return f"{locator - V6_MARK:056X}" if locator >= V6_MARK else f"{locator:032X}"


def to_stored(message: Message, offset: int, physical_offset: int) -> StoredRecord:
    """Convert a message to a record. Raises Corrupt for a body that cannot be decompressed."""
    properties = decode_properties(message.properties)
    key = properties.get(SHARDING_KEY)
    lookup_keys = [k for k in properties.get(KEYS, "").split(" ") if k]
    if key in lookup_keys:
        lookup_keys.remove(key)
    headers: Sequence[Header] = [
        (name, value.encode())
        for name, value in properties.items()
        if name not in HIDDEN_PROPERTIES
    ]
    return StoredRecord(
        offset,
        message.born_timestamp_ms,
        None if key is None else key.encode("utf-8", "surrogateescape"),
        decompress(message.body, message.sys_flag, MAX_BODY_BYTES),
        headers,
        "CreateTime",
        properties.get(TAGS),
        lookup_keys,
        locator_of(message.store_host, physical_offset),
        message.store_timestamp_ms,
        properties,
        suspect_parts(message, physical_offset),
        message.reconsume_times,
    )
