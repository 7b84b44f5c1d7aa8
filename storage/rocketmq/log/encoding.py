"""Converting a Record to a message: its properties, fields that cannot be kept, and its place in a batch.

Owns the mapping from records to messages and the checks of an append; must not write. The reverse
mapping is in reading.py. A record's key is the property __SHARDINGKEY, its lookup keys are KEYS, its tag
TAGS, its headers the user's properties.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from storage.coding.native import is_native
from storage.coding.varint import INT64_MAX, INT64_MIN
from storage.contract import Clock
from storage.errors import InvalidArgument, RecordTooLarge, UnrepresentableRecord
from storage.files import process_id
from storage.model import ProducerSequence, RawMessage, Record, TopicPartition
from storage.rocketmq.format.body import compress
from storage.rocketmq.format.half_message import IMMUNITY_S
from storage.rocketmq.format.message_id import UniqueIds
from storage.rocketmq.format.names import HALF_TOPIC, SCHEDULE_TOPIC
from storage.rocketmq.format.properties import (
    DELAY,
    KEYS,
    MAX_PROPERTIES_BYTES,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TRANSACTION_ID,
    TRANSACTION_MARK,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
    encode_properties,
    has_key_beside,
    lone_nul,
    with_crc_place,
)
from storage.rocketmq.log.record_run import (
    NOT_THE_USERS,
    SEQUENCE_PROPERTY,
    RecordRun,
    RunWriter,
    form_of,
)
from storage.rocketmq.state.settings import StoreSettings

SETTABLE: Final = frozenset({UNIQ_KEY, WAIT})
_PREPARED: Final = {TRANSACTION_PREPARED, PRODUCER_GROUP, IMMUNITY_S, TRANSACTION_MARK}
SETTABLE_IN: Final = {
    SCHEDULE_TOPIC: SETTABLE | {DELAY, REAL_TOPIC, REAL_QUEUE_ID},
    HALF_TOPIC: SETTABLE | _PREPARED | {REAL_TOPIC, REAL_QUEUE_ID},
}
"""The properties that a record may set itself in a topic of the broker's own."""
HOST_SIZES: Final = (8, 20)
_FIELDS: Final = {
    SHARDING_KEY: "key",
    KEYS: "keys",
    TAGS: "tag",
    **dict.fromkeys(SETTABLE, "properties"),
}


_new_message: Final = tuple.__new__
"""Create a RawMessage as `RawMessage(...)` does, without one Python call."""


class Encoder:
    """A converter of records to messages. Thread-safe. `with_crc`: their properties reserve room for the CRC over the
    record, which `RecordRun.placed` fills in.
    """

    def __init__(self, settings: StoreSettings, clock: Clock, *, with_crc: bool = False) -> None:
        self.with_crc = with_crc
        self._max_message_bytes = settings.max_message_bytes
        self._default_host = settings.store_host
        self._clock = clock
        self._unique_ids = UniqueIds(
            settings.store_host, pid=process_id(), loader_hash=secrets.randbits(32), clock=clock
        )

    def encode(
        self, records: Sequence[Record], *, compression: str | None = None
    ) -> Sequence[RawMessage]:
        """Convert records to messages. Raises UnrepresentableRecord, RecordTooLarge (both with `index`)."""
        now_ms = self._clock()
        unique_ids = self._unique_ids.take(len(records))
        return [
            self._message(
                record,
                index,
                now_ms,
                unique_ids[index],
                host=self._default_host,
                compression=compression,
                mark=b"",
            )
            for index, record in enumerate(records)
        ]

    def encode_run(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
        born_hosts: Sequence[bytes] = (),
    ) -> RecordRun:
        """Convert the records of an append to the bytes of the log, still without their place; the first record of a
        sequenced append is marked.

        Raises UnrepresentableRecord, RecordTooLarge (both with `index`), InvalidArgument, InvalidTopic.
        """
        now_ms = self._clock()
        host = self._default_host
        writer = self.writer_to(partition, host)
        if producer is not None:
            writer.mark = mark_text(producer, len(records)).encode()
        is_usual = _NATIVE and compression is None and not self.with_crc
        others: list[RawMessage] = []  # all, if none is usual
        index = 0
        for head, first, count in self._unique_ids.runs(len(records), now_ms):
            writer.unique_head = head.encode()
            for number in range(first, first + count):
                record = records[index]
                if born_hosts:
                    host = born_hosts[index]
                if not (is_usual and writer.put_usual(record, now_ms, host, number)):
                    message = self._message(
                        record,
                        index,
                        now_ms,
                        f"{head}{number:02X}",
                        host=host,
                        compression=compression,
                        mark=writer.mark,
                        settable=SETTABLE_IN.get(partition.topic, SETTABLE),
                    )
                    if is_usual:
                        writer.put([message])
                    else:
                        others.append(message)
                writer.mark = b""
                index += 1
        if others:
            writer.put(others)
        return writer.run(with_crc=self.with_crc)

    def _message(
        self,
        record: Record,
        index: int,
        now_ms: int,
        unique_id: str,
        *,
        host: bytes,
        compression: str | None,
        mark: bytes,
        settable: frozenset[str] = SETTABLE,
    ) -> RawMessage:
        born_ms = record.timestamp_ms
        if born_ms is None:
            born_ms = now_ms
        elif not INT64_MIN <= born_ms <= INT64_MAX:
            raise _unrepresentable("timestamp", index, "does not fit 64 bits")
        properties = properties_of(record, index, settable)
        if UNIQ_KEY not in properties:
            properties[UNIQ_KEY] = unique_id
        if TRANSACTION_PREPARED in properties:
            properties[TRANSACTION_ID] = properties[UNIQ_KEY]
        if mark:
            properties[SEQUENCE_PROPERTY] = mark.decode()
        value = record.value or b""
        if len(value) > self._max_message_bytes:
            raise self._too_large(len(value), index)
        body, sys_flag = (value, 0) if compression is None else compress(value, compression)
        text = _encode_properties(properties, index)
        if self.with_crc:
            text = _with_crc_place(text, index)
        # fmt: off
        message: RawMessage = _new_message(RawMessage, (
            body, text, 0, sys_flag, born_ms, host, 0, 0
        ))
        # fmt: on
        return message

    def _too_large(self, size_bytes: int, index: int) -> RecordTooLarge:
        """Return the error for a body over the limit."""
        return RecordTooLarge(
            f"record {index}: the value has {size_bytes} bytes, the limit maxMessageSize is "
            f"{self._max_message_bytes}",
            size_bytes=size_bytes,
            limit_bytes=self._max_message_bytes,
            index=index,
        )

    def encode_raw(
        self,
        partition: TopicPartition,
        messages: Sequence[RawMessage],
        store_host: bytes,
        *,
        limit_bytes: int | None = None,
    ) -> RecordRun:
        """Check messages, and return them as bytes of the log, unchanged except for the room for a CRC over the
        record. `limit_bytes`: see `writer_to`. Raises RecordTooLarge, UnrepresentableRecord, InvalidArgument or
        InvalidTopic if no record can hold the message.
        """
        writer = self.writer_to(partition, store_host, limit_bytes=limit_bytes)
        self.put_raw(writer, messages, store_host)
        return writer.run(with_crc=self.with_crc)

    def writer_to(
        self, partition: TopicPartition, store_host: bytes, *, limit_bytes: int | None = None
    ) -> RunWriter:
        """Return a writer of records to a queue. `limit_bytes`: of a body; by default that of a producer's messages.
        Raises InvalidTopic.
        """
        limit = self._max_message_bytes if limit_bytes is None else limit_bytes
        topic, queue_id = partition
        return RunWriter(form_of(topic), queue_id, store_host, limit_bytes=limit)

    def put_raw(self, writer: RunWriter, messages: Sequence[RawMessage], store_host: bytes) -> None:
        """Add messages to a writer, all or none, as `encode_raw` does."""
        for index, message in enumerate(messages):
            if len(message.body) > writer.limit_bytes:
                raise self._too_large(len(message.body), index)
            check_properties_size(message.properties, index)
            for host in (message.born_host, store_host):
                if len(host) not in HOST_SIZES:
                    raise InvalidArgument(
                        f"message {index}: a host of {len(host)} bytes: it takes 8 or 20",
                        field="born_host",
                    )
        if self.with_crc:
            messages = [
                message._replace(properties=_with_crc_place(message.properties, index))
                for index, message in enumerate(messages)
            ]
        writer.put(messages, store_host)
        if not writer.has_keys_beside:
            writer.has_keys_beside = any(has_key_beside(one.properties) for one in messages)


def properties_of(
    record: Record, index: int, settable: frozenset[str] = SETTABLE
) -> dict[str, str]:
    """Return all properties of a record except the ones that the store adds. Raises UnrepresentableRecord."""
    if record.value is None:
        raise _unrepresentable("value", index, "is null, which RocketMQ does not keep")
    properties = _user_properties(record, index) if record.headers else {}
    if record.properties:
        _set_properties(properties, record.properties, index, settable)
    if record.key is not None:
        properties[SHARDING_KEY] = _text(record.key, "key", index)
    if record.lookup_keys or record.key is not None:
        _set_keys(properties, record.lookup_keys, index)
    if record.tag is not None:
        if not record.tag:
            raise _unrepresentable("tag", index, "is empty, which RocketMQ does not keep")
        properties[TAGS] = record.tag
    return properties


def _user_properties(record: Record, index: int) -> dict[str, str]:
    properties: dict[str, str] = {}
    for name, value in record.headers:
        if name in NOT_THE_USERS:
            raise _unrepresentable("headers", index, f"{name!r} is a reserved name")
        if name in properties:
            raise _unrepresentable("headers", index, f"{name!r} comes twice")
        properties[name] = _text(value, "headers", index, name)
    return properties


def _set_properties(
    properties: dict[str, str], wanted: Mapping[str, str], index: int, settable: frozenset[str]
) -> None:
    """Add the properties that a record may set itself. Raises UnrepresentableRecord."""
    for name, text in wanted.items():
        if name not in settable:
            raise _unrepresentable("properties", index, f"{name!r} cannot be set")
        properties[name] = text


def _set_keys(properties: dict[str, str], lookup_keys: Sequence[str], index: int) -> None:
    """Add KEYS: first the record's key, unless it has a space or is a lookup key; then its lookup keys."""
    if "" in lookup_keys or " " in "".join(lookup_keys):
        raise _unrepresentable("keys", index, "hold an empty key or one with a space")
    key = properties.get(SHARDING_KEY)
    if key is not None and " " not in key and key not in lookup_keys:
        lookup_keys = [key, *lookup_keys]
    if lookup_keys:
        properties[KEYS] = " ".join(lookup_keys)


def _text(value: bytes | None, field: str, index: int, name: str | None = None) -> str:
    """Return a key, or the value of the header `name`, as text. Raises UnrepresentableRecord."""
    if not value:
        problem = "is empty or null, which RocketMQ does not keep"
    else:
        try:
            return value.decode()
        except UnicodeDecodeError:
            problem = "is no UTF-8 text"
    subject = "" if name is None else f"the value of {name!r} "
    raise _unrepresentable(field, index, f"{subject}{problem}")


def _encode_properties(properties: dict[str, str], index: int) -> bytes:
    try:
        data = encode_properties(properties)
    except UnrepresentableRecord as error:
        field = _culprit(properties)
        raise UnrepresentableRecord(
            f"record {index}: {field}: {error.message}", field=field, index=index
        ) from None
    if b"\0" in data and (name := lone_nul(properties)) is not None:
        field = _FIELDS.get(name, "headers")
        raise _unrepresentable(field, index, "holds a NUL, which is the mark of a lost sector")
    check_properties_size(data, index)
    return data


def _culprit(properties: dict[str, str]) -> str:
    """Return the field with a property that cannot be encoded; `properties` if each can be encoded alone."""
    for name, value in properties.items():
        try:
            encode_properties({name: value})
        except UnrepresentableRecord:
            return _FIELDS.get(name, "headers")
    return "properties"


def _with_crc_place(properties: bytes, index: int) -> bytes:
    properties = with_crc_place(properties)
    check_properties_size(properties, index)
    return properties


def check_properties_size(data: bytes, index: int) -> None:
    """Raise UnrepresentableRecord if the properties are too large for a record."""
    if len(data) > MAX_PROPERTIES_BYTES:
        raise UnrepresentableRecord(
            f"record {index}: properties take {len(data)} bytes, the limit is "
            f"{MAX_PROPERTIES_BYTES}",
            field="properties",
            index=index,
        )


def _unrepresentable(field: str, index: int, problem: str) -> UnrepresentableRecord:
    return UnrepresentableRecord(f"record {index}: {field}: {problem}", field=field, index=index)


def mark_text(producer: ProducerSequence, count: int) -> str:
    """Return the mark in the first message of a sequenced append: id, epoch, sequence and record count."""
    return f"{producer.producer_id}:{producer.epoch}:{producer.sequence}:{count}"


def parse_mark(text: str) -> tuple[ProducerSequence, int] | None:
    """Parse a result of `mark_text`; None for any other text."""
    parts = text.split(":")
    if len(parts) != 4 or not all(p.removeprefix("-").isdecimal() and len(p) < 20 for p in parts):
        return None
    producer_id, epoch, sequence, count = map(int, parts)
    return ProducerSequence(producer_id, epoch, sequence), count


_NATIVE: Final = is_native(mark_text)
