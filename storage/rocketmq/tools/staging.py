"""Staged appends of RocketMQ messages: a run is some messages of one queue, complete except for their positions.

Owns the implementation of `storage.shared.staged_append.StagedForm` for this backend. Queue offset, physical offset,
store time and store host are assigned at the append. Unique ids identify the messages.

    payload, MessagePack: [[body, properties, flag, sys flag, born timestamp, born host, ...], ...]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from storage.contract import Clock, LogStore
from storage.model import RawMessage, Record, TopicPartition
from storage.rocketmq.format.properties import UNIQ_KEY, decode_properties, with_crc_place
from storage.rocketmq.log.encoding import Encoder, check_properties_size
from storage.rocketmq.state.settings import parse_store_settings
from storage.rocketmq.store import RocketMQStore
from storage.shared.staged_append import TopicShape

RUN_BYTES: Final = 1 << 20
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(list[RawMessage]).decode
AROUND_BODY_BYTES: Final = 512  # fields of a message other than body and properties, in log or run


class RocketMQStaging:
    """See StagedForm."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def shape(self, store: LogStore | None, topic: str) -> TopicShape:
        """See StagedForm. The limit is that of one message, which must fit into a log file; runs are cut at it."""
        numbers: Sequence[int] = range(parse_store_settings({}).default_topic_queues)
        if store is None:
            return TopicShape(numbers, RUN_BYTES + parse_store_settings({}).max_message_bytes)
        assert isinstance(store, RocketMQStore)
        info = store.topics().get(topic)
        limit_bytes = store.log.largest_record - AROUND_BODY_BYTES
        return TopicShape(numbers if info is None else tuple(info.partitions), limit_bytes)

    def encoder(self) -> MessageEncoder:
        return MessageEncoder(self._clock)

    def put(self, store: LogStore, partition: TopicPartition, data: bytes) -> None:
        assert isinstance(store, RocketMQStore)
        store.append_messages(partition, _DECODE(data))

    def missing(
        self, store: LogStore, partition: TopicPartition, offset: int, data: bytes
    ) -> tuple[int, bytes]:
        messages = _DECODE(data)
        stored = store.scan(partition, offset, offset + len(messages))
        there = 0
        for message, record in zip(messages, stored, strict=False):
            unique_id = decode_properties(message.properties)[UNIQ_KEY]
            if (record.properties or {}).get(UNIQ_KEY) != unique_id:
                break
            there += 1
        rest = messages[there:]
        return there, _ENCODE(rest) if rest else b""


class MessageEncoder:
    """An encoder that creates messages as a client does, with unique ids."""

    def __init__(self, clock: Clock) -> None:
        self._encoder = Encoder(parse_store_settings({}), clock)

    def encode(
        self, records: Sequence[Record], shape: TopicShape, *, compression: str | None
    ) -> Sequence[tuple[int, bytes]]:
        """Return (number of messages, run) for each run.

        Every message leaves room for the CRC over the record, which a store may add.
        """
        messages = self._encoder.encode(records, compression=compression)
        for index, message in enumerate(messages):
            check_properties_size(with_crc_place(message.properties), index)
        limit_bytes = min(RUN_BYTES, shape.limit_bytes)
        return [(len(run), _ENCODE(run)) for run in _runs(messages, limit_bytes)]


def _runs(messages: Sequence[RawMessage], limit_bytes: int) -> Sequence[Sequence[RawMessage]]:
    found: list[list[RawMessage]] = [[]]
    size_bytes = 0
    for message in messages:
        weight_bytes = len(message.body) + len(message.properties) + AROUND_BODY_BYTES
        size_bytes += weight_bytes
        if found[-1] and size_bytes > limit_bytes:
            found.append([])
            size_bytes = weight_bytes
        found[-1].append(message)
    return found
