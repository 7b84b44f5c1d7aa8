"""Rows of `dump` and `find` for a RocketMQ store, as plain values.

Owns names and order of the fields: the fields that a program on the real store prints (camel case,
None for a missing value); must not touch a file. Bytes stay bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from storage.errors import DataError
from storage.rocketmq.format import names
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.checkpoint import Checkpoint, decode_checkpoint
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.config_reader import Verbatim
from storage.rocketmq.format.config_shapes import shape_of
from storage.rocketmq.format.index_file import IndexEntry, IndexHeader
from storage.rocketmq.format.message import COMPRESSED, Message
from storage.rocketmq.format.message_id import host_text, offset_id
from storage.rocketmq.format.properties import KEYS, TAGS, decode_properties
from storage.rocketmq.format.queue_entry import QueueEntry, code_of
from storage.rocketmq.format.suspect_fields import suspect_parts
from storage.rocketmq.log.reading import MAX_BODY_BYTES

Row: TypeAlias = dict[str, Any]

UINT32: Final = 0xFFFFFFFF
INT32_MIN: Final = -1 << 31


def message_row(
    message: Message,
    unit: QueueEntry | None = None,
    *,
    delays_ms: Sequence[int] | None = None,
    physical_offset: int | None = None,
) -> Row:
    """Return the row of a record. `unit` is its queue entry, None if it is in no queue; `delays_ms` as for `code_of`.

    `physical_offset` is the record's position; None: taken from the entry, or else from the record.
    """
    if physical_offset is None and unit is not None:
        physical_offset = unit.physical_offset
    properties = decode_properties(message.properties)
    return {
        "kind": "message",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.size,
        "magic": f"{message.magic & UINT32:08x}",
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "tagsCode": None if unit is None else _tags_code(unit, message, properties, delays_ms),
        "properties": properties,
        "bodyLength": len(message.body),
        "body": message.body,
        **_plain(message),
        "bodyCRC": message.body_crc,
        "msgId": offset_id(message.store_host, max(message.physical_offset, 0)),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        **_suspect(message, physical_offset),
    }


def _suspect(message: Message, physical_offset: int | None) -> Row:
    """Return the header parts with impossible values, if any."""
    at = message.physical_offset if physical_offset is None else physical_offset
    parts = suspect_parts(message, at)
    return {"suspect": list(parts)} if parts else {}


def _tags_code(
    unit: QueueEntry, message: Message, properties: dict[str, str], delays_ms: Sequence[int] | None
) -> int:
    """Return the entry's tags code. With consumequeue_ext it is an address below the 32-bit range; then the code is
    computed from the record, as the file at that address would have it.
    """
    if unit.tags_code >= INT32_MIN:
        return unit.tags_code
    return code_of(message.topic, properties, message.store_timestamp_ms, delays_ms)


def _plain(message: Message) -> Row:
    """Return length and hash of the decompressed body, or the error of decompression."""
    if not message.sys_flag & COMPRESSED:
        return {}
    try:
        plain = decompress(message.body, message.sys_flag, MAX_BODY_BYTES)
    except DataError as error:
        return {"plainError": error.message}
    return {"plainLength": len(plain), "plainSha256": hashlib.sha256(plain).hexdigest()}


def queued_row(
    message: Message, unit: QueueEntry, offset: int, *, delays_ms: Sequence[int] | None
) -> Row:
    """Return the row of the record of an entry. If their offsets differ, the entry's offsets are added."""
    row = message_row(message, unit, delays_ms=delays_ms)
    if (message.queue_offset, message.physical_offset) != (offset, unit.physical_offset):
        row |= {"cqOffset": offset, "cqPhysicalOffset": unit.physical_offset}
    return row


def gone_row(physical_offset: int) -> Row:
    """Return the row of an index position that has no record (any more)."""
    return {"kind": "gone", "physicalOffset": physical_offset}


def log_row(message: Message, physical_offset: int) -> Row:
    """Return the row of a record in the log."""
    return {
        "kind": "log",
        "physicalOffset": physical_offset,
        "size": message.size,
        "magic": f"{message.magic & UINT32:08x}",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "storeTimestamp": message.store_timestamp_ms,
        "bodyLength": len(message.body),
        "bodyCRC": message.body_crc,
        **_suspect(message, physical_offset),
    }


def blank_row(physical_offset: int, size: int) -> Row:
    """Return the row of a padding."""
    return {"kind": "blank", "physicalOffset": physical_offset, "size": size}


def unit_row(topic: str | None, queue_id: int | None, offset: int, unit: QueueEntry) -> Row:
    """Return the row of a queue entry. A filler stands for a lost record."""
    return {
        "kind": "filler" if unit.is_filler else "unit",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "physicalOffset": unit.physical_offset,
        "size": unit.size,
        "tagsCode": unit.tags_code,
    }


def index_row(
    name: str,
    size_bytes: int,
    header: IndexHeader,
    slots: Iterable[tuple[int, int]],
    entries: Iterable[IndexEntry],
) -> Row:
    """Return the row of an index file: its header, (slot, value) of the used slots, its entries including number 0."""
    used = [list(slot) for slot in slots]
    return {
        "file": name,
        "size": size_bytes,
        "beginTimestamp": header.begin_timestamp_ms,
        "endTimestamp": header.end_timestamp_ms,
        "beginPhyOffset": header.begin_physical_offset,
        "endPhyOffset": header.end_physical_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
        "slotsUsed": len(used),
        "slots": used,
        "entries": [list(entry) for entry in entries],
    }


def checkpoint_row(checkpoint: Checkpoint) -> Row:
    """Return the fields of a checkpoint."""
    return {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp_ms,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp_ms,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp_ms,
        "masterFlushedOffset": checkpoint.master_flushed_offset,
        "confirmPhyOffset": checkpoint.confirm_physical_offset,
        "logicsPhysicalOffset": checkpoint.logics_physical_offset,
    }


def small_file_entry(data: bytes, name: str) -> Any:
    """Return the contents of the checkpoint, or of the config file with this name. Raises DataError."""
    return checkpoint_entry(data) if name == names.CHECKPOINT else config_entry(data, name)


def checkpoint_entry(data: bytes) -> Row:
    """Return the contents of the checkpoint file. Raises Truncated."""
    return {"size": len(data), **checkpoint_row(decode_checkpoint(data))}


def config_entry(data: bytes, name: str) -> Any:
    """Return the value of the config file with this name, with number keys as text. Raises Corrupt."""
    return _text_keys(decode_config(data, shape_of(name)))


def _text_keys(value: Any) -> Any:
    if isinstance(value, Verbatim):
        return _text_keys(decode_config(value.text.encode()))
    if isinstance(value, Mapping):
        return {str(key): _text_keys(item) for key, item in value.items()}
    return [_text_keys(item) for item in value] if isinstance(value, list) else value


def file_row(name: str, entries: list[Any]) -> Row:
    """Return the row of a small file with its contents."""
    return {"topic": None, "partition": None, "file": name, "entries": entries}
