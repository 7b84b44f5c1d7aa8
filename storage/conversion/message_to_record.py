"""A RocketMQ message as a Kafka record, and back: all data of a message has a place in the record.

Owns that mapping; must not do IO. In the record:

    key        the property __SHARDINGKEY; a header of that name, without a value, keeps its place among the others
    value      the body, decompressed
    timestamp  the born timestamp
    headers    every other property, in stored order (including TAGS and KEYS), then
                   __store_ts, __born_ts             the two times
                   __rocketmq_flag, _sys_flag, _reconsume_times, _prepared_offset     if not 0
                   __rocketmq_born_host, _store_host
                   __rocketmq_properties             the stored bytes, if the headers do not reproduce them

A record is such a message if it has these headers and converting it there and back gives the same record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from storage.conversion import records
from storage.conversion.records import KafkaRecord, QueuedMessage, host_as_text, host_from_text
from storage.errors import DataError, InvalidArgument, UnrepresentableRecord
from storage.model import Header, RawMessage
from storage.rocketmq.format.body import compress_again, decompress
from storage.rocketmq.format.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    HOSTS_V6,
    takes_queue_offset,
)
from storage.rocketmq.format.properties import (
    MAX_PROPERTIES_BYTES,
    SHARDING_KEY,
    decode_properties,
    encode_properties,
)
from storage.rocketmq.log.reading import MAX_BODY_BYTES

_PACKING: Final = COMPRESSED | COMPRESSION_TYPE_MASK
_LIMITS: Final = {
    records.BORN_TIME: 63,
    records.STORE_TIME: 63,
    records.FLAG: 31,
    records.SYS_FLAG: 31,
    records.RECONSUME_TIMES: 31,
    records.PREPARED_OFFSET: 63,
}
_MARKS: Final = frozenset({*_LIMITS, records.BORN_HOST, records.STORE_HOST})


def wrap(queued: QueuedMessage) -> KafkaRecord:
    """Return the record of a message. Raises Corrupt for a body that cannot be decompressed."""
    message = queued.message
    properties = decode_properties(message.properties)
    key = properties.get(SHARDING_KEY)
    headers: list[Header] = [
        (name, None if name == SHARDING_KEY else value.encode())
        for name, value in properties.items()
        if not records.is_ours(name)
    ]
    if _properties_of(headers, key) != message.properties:
        headers.append((records.PROPERTIES, message.properties))
    headers += _marks(queued)
    return KafkaRecord(
        queued.offset,
        message.born_timestamp_ms,
        None if key is None else key.encode(),
        decompress(message.body, message.sys_flag, MAX_BODY_BYTES),
        headers,
    )


def _marks(queued: QueuedMessage) -> Iterator[Header]:
    message = queued.message
    yield records.STORE_TIME, b"%d" % queued.store_timestamp_ms
    yield records.BORN_TIME, b"%d" % message.born_timestamp_ms
    for name, number in (
        (records.FLAG, message.flag),
        (records.SYS_FLAG, message.sys_flag & ~HOSTS_V6),
        (records.RECONSUME_TIMES, message.reconsume_times),
        (records.PREPARED_OFFSET, message.prepared_transaction_offset),
    ):
        if number:
            yield name, b"%d" % number
    yield records.BORN_HOST, host_as_text(message.born_host).encode()
    yield records.STORE_HOST, host_as_text(queued.store_host).encode()


def _properties_of(headers: list[Header], key: str | None) -> bytes | None:
    """Return the properties that the headers represent; None if they do not represent any."""
    try:
        properties = {
            name: (key or "") if name == SHARDING_KEY else (value or b"").decode()
            for name, value in headers
        }
        return encode_properties(properties) if len(properties) == len(headers) else None
    except (UnrepresentableRecord, UnicodeDecodeError):
        return None


def unwrap(record: KafkaRecord) -> QueuedMessage | None:
    """Return the message from which `wrap` made this record; None for any other record."""
    if record.value is None or not any(name == records.STORE_TIME for name, _ in record.headers):
        return None
    try:
        queued = _unwrapped(record, record.value)
        again = None if queued is None else wrap(queued)
    except (ValueError, KeyError, DataError, InvalidArgument):
        return None
    return queued if again == record._replace(headers=list(record.headers)) else None


def _unwrapped(record: KafkaRecord, value: bytes) -> QueuedMessage | None:
    """Return the message of a record, before the check of the way back. Raises ValueError, KeyError."""
    marks = {name: text or b"" for name, text in record.headers if records.is_ours(name)}
    own = [header for header in record.headers if not records.is_ours(header[0])]
    key = None if record.key is None else record.key.decode()
    properties = marks.pop(records.PROPERTIES, None)
    if properties is None:
        properties = _properties_of(own, key)
    if properties is None or len(properties) > MAX_PROPERTIES_BYTES or not marks.keys() <= _MARKS:
        return None
    numbers = _numbers(marks)
    sys_flag = numbers[records.SYS_FLAG]
    if not takes_queue_offset(sys_flag) or sys_flag & HOSTS_V6:
        return None
    message = RawMessage(
        body=compress_again(value, sys_flag) if sys_flag & _PACKING else value,
        properties=properties,
        flag=numbers[records.FLAG],
        sys_flag=sys_flag,
        born_timestamp_ms=numbers[records.BORN_TIME],
        born_host=host_from_text(marks[records.BORN_HOST].decode()),
        reconsume_times=numbers[records.RECONSUME_TIMES],
        prepared_transaction_offset=numbers[records.PREPARED_OFFSET],
    )
    store_host = host_from_text(marks[records.STORE_HOST].decode())
    return QueuedMessage(message, record.offset, numbers[records.STORE_TIME], store_host)


def _numbers(marks: Mapping[str, bytes]) -> dict[str, int]:
    """Return the numbers among the marks, 0 for a missing mark. Raises ValueError."""
    found = {}
    for name, bits in _LIMITS.items():
        text = marks.get(name, b"0")
        number = int(text) if len(text) <= 20 else 1 << bits
        if not -1 << bits <= number < 1 << bits:
            raise ValueError(name)
        found[name] = number
    return found
