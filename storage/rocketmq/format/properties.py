"""A record's properties: names and values in one string, RocketMQ's reserved names, and the CRC property.

Owns both directions and the parser's rules; must not know the fields around the properties. A stored record's
properties are kept as they are and never encoded again: their order is the order of the sender's hash map.
Sources: MessageDecoder and MessageConst of RocketMQ.

    position  bytes  field      note
    0         n      name       UTF-8, not empty
    .         1      separator  01
    .         n      value      UTF-8, not empty; may hold 01
    .         1      separator  02; older senders leave out the last one

When read, a piece without a 01, without a name or without a value is skipped (its bytes stay stored). If a name
occurs twice, the later value counts. With the option enabledAppendPropCRC the last property is:

    position  bytes  field      note
    0         8      name       "__CRC32#"
    8         1      separator  01
    9         10     digits     CRC-32 of the record up to here without its top bit, LOWEST digit first, filled with 0
    19        1      separator  02
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from zlib import crc32

from storage.coding.native import i64, is_native
from storage.errors import UnrepresentableRecord

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
SEPARATORS: Final = NAME_VALUE_SEPARATOR + PROPERTY_SEPARATOR
NUL: Final = "\0"
"""In stored properties probably the mark of a lost sector, except in a key that is stored twice."""
MAX_PROPERTIES_BYTES: Final = 32767

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
SHARDING_KEY: Final = "__SHARDINGKEY"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_MARK: Final = "__LOGSERVER_TXN"
"""Ours alone: the transaction of a half message, or the outcomes in an op record (`half_message`)."""
CRC32: Final = "__CRC32#"
KEY_SEPARATOR: Final = " "
"""Separator of the keys in the value of KEYS."""

RESERVED: Final = frozenset(
    (
        "1ST_POP_TIME",
        "ARRIVE_TIME",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRECTION_FLAG",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INNER_MULTI_QUEUE_OFFSET",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MQ2_FLAG",
        "MSG_REGION",
        "MSG_TYPE",
        "ORIGIN_GROUP",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "PUSH_REPLY_TIME",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REPLY_TO_CLIENT",
        "RETRY_TOPIC",
        "TAGS",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRACE_ON",
        "TRANSFER_FLAG",
        "TRAN_MSG",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        "UNIQ_KEY",
        "WAIT",
        "_SYS_MSG_PRIORITY_",
        "__BORNHOST",
        "__CRC32#",
        "__LITE_TOPIC",
    )
)
"""The names that a client rejects for a user's property (MessageConst.STRING_HASH_SET of 5.5.0)."""

CRC_PROPERTY_SIZE: Final = 20
CRC_DIGITS: Final = 10
_NAME_BYTE: Final = 1
_PROPERTY_BYTE: Final = 2
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_KEY_SEPARATOR: Final = KEY_SEPARATOR.encode()
_SHARDING_KEY: Final = f"{SHARDING_KEY}{NAME_VALUE_SEPARATOR}".encode()
_KEYS: Final = f"{KEYS}{NAME_VALUE_SEPARATOR}".encode()
_CRC_HEAD: Final = f"{CRC32}{NAME_VALUE_SEPARATOR}".encode()
_CRC_PLACE: Final = _CRC_HEAD + b"0" * CRC_DIGITS + _SEPARATOR
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the properties by name, in stored order. Never fails; bad UTF-8 is replaced as in Java."""
    if _NATIVE and data.isascii():
        return _decode_ascii(data)
    text = properties_text(data)
    found: dict[str, str] = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def _decode_ascii(data: bytes) -> dict[str, str]:
    """Do what `decode_properties` does, without a string for each piece: a character is one byte."""
    text = data.decode()
    found: dict[str, str] = {}
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        name_end: i64 = at
        while name_end < end and data[name_end] != _NAME_BYTE and data[name_end] != _PROPERTY_BYTE:
            name_end += 1
        stop: i64 = name_end
        while stop < end and data[stop] != _PROPERTY_BYTE:
            stop += 1
        if name_end > at and stop > name_end + 1:
            found[text[at:name_end]] = text[name_end + 1 : stop]
        at = stop + 1
    return found


def properties_text(data: bytes) -> str:
    """Return stored properties as text; bad UTF-8 is replaced as in Java."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java replaces an encoded surrogate as a whole, Python each of its bytes.
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def property_value(stored: bytes, name: bytes) -> bytes:
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


def has_key_beside(stored: bytes) -> bool:
    """Return whether the record with these properties has a key for which the index has no string: only lookup keys are
    indexed.

    logserver puts each key among the lookup keys. Other producers do not: RocketMQ 5 stores the message group of a
    FIFO topic as the key.
    """
    key = property_value(stored, _SHARDING_KEY)
    if not key or _KEY_SEPARATOR in key:
        return False
    return key not in property_value(stored, _KEYS).split(_KEY_SEPARATOR)


def lone_nul(properties: Mapping[str, str]) -> str | None:
    """Return the first property with a NUL that no second copy confirms; a key is confirmed by its copy in KEYS."""
    key, keys = properties.get(SHARDING_KEY, ""), properties.get(KEYS, "").split(KEY_SEPARATOR)
    others = [other for other in keys if other != key]
    for name, value in properties.items():
        if NUL not in name + value:
            continue
        if name not in (SHARDING_KEY, KEYS) or key not in keys or NUL in "".join(others):
            return name
    return None


def encode_properties(properties: dict[str, str]) -> bytes:
    """Encode the properties in the order of the mapping, each followed by a separator.

    Raises UnrepresentableRecord (field) for an empty name or value, a name or value with a separator or invalid
    Unicode, and more than 32,767 bytes.
    """
    pieces: list[str] = []
    for name, value in properties.items():
        if not name or not value or _holds_separator(name) or _holds_separator(value):
            raise _unrepresentable(name, value)
        pieces.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    try:
        encoded = "".join(pieces).encode()
    except UnicodeEncodeError as cause:
        raise UnrepresentableRecord(
            f"the properties are not valid Unicode: {cause.reason}", field="properties"
        ) from cause
    if len(encoded) > MAX_PROPERTIES_BYTES:
        raise UnrepresentableRecord(
            f"the properties have {len(encoded)} bytes: the limit is {MAX_PROPERTIES_BYTES}",
            field="properties",
        )
    return encoded


def _holds_separator(text: str) -> bool:
    return NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text


def _unrepresentable(name: str, value: str) -> UnrepresentableRecord:
    if not name:
        what = "a property's name is empty"
    elif not value:
        what = f"the value of property {name!r} is empty: RocketMQ's readers drop it"
    else:
        what = f"name or value of property {name!r} holds a separator, 01 or 02"
    return UnrepresentableRecord(what, field="properties")


def with_crc_place(properties: bytes) -> bytes:
    """Return properties with a placeholder CRC property at the end, in place of any existing CRC property.

    `closed_record` fills it in.
    """
    if has_crc_property(properties):
        properties = properties[:-CRC_PROPERTY_SIZE]
    if properties and not properties.endswith(_SEPARATOR):
        properties += _SEPARATOR
    return properties + _CRC_PLACE


def closed_record(record: bytes) -> bytes:
    """Return a whole record with its final CRC property recomputed."""
    rest = record[:-CRC_PROPERTY_SIZE]
    return rest + encode_crc_property(rest)


def encode_crc_property(record: bytes) -> bytes:
    """Return the property that ends a record. `record` is the record before it, with its final lengths."""
    digits = f"{crc32(record) & 0x7FFFFFFF:0{CRC_DIGITS}d}"[::-1]
    return _CRC_HEAD + digits.encode() + _SEPARATOR


def has_crc_property(record: bytes) -> bool:
    """Return whether a whole record, or its properties, end in the CRC property."""
    return record[-CRC_PROPERTY_SIZE:].startswith(_CRC_HEAD)


def check_crc_property(record: bytes) -> bool:
    """Return whether the CRC property at the end of a whole record is right."""
    return record == closed_record(record)


_NATIVE: Final = is_native(check_crc_property)
