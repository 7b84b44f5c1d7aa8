"""Staged appends of Kafka's record batches: a run is one batch, encoded where the records are.

Owns the methods that `storage.shared.staged_append.StagedForm` requires of a backend; must not encode a batch again
when it is appended. Offsets and leader epoch, which the CRC does not cover, are set then.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.contract import Clock, LogStore
from storage.kafka.format.batch import HEADER_SIZE, decode_header
from storage.kafka.log.encoding import Stamp, encode_records
from storage.kafka.state.settings import TopicSettings, parse_store_settings
from storage.kafka.store import KafkaStore
from storage.model import Record, TopicPartition
from storage.shared.staged_append import TopicShape


class KafkaStaging:
    """See StagedForm."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def shape(self, store: LogStore | None, topic: str) -> TopicShape:
        settings = parse_store_settings({})
        if store is None:
            return _shape(range(settings.num_partitions), settings.of_topic(topic, {}))
        assert isinstance(store, KafkaStore)
        known = store.topics().get(topic)
        numbers = range(settings.num_partitions) if known is None else known.partitions
        return _shape(numbers, store.settings_of(topic))

    def encoder(self) -> BatchEncoder:
        return BatchEncoder(self._clock)

    def put(self, store: LogStore, partition: TopicPartition, data: bytes) -> None:
        assert isinstance(store, KafkaStore)
        store.append_batches(partition, data)

    def missing(
        self, store: LogStore, partition: TopicPartition, offset: int, data: bytes
    ) -> tuple[int, bytes]:
        """See StagedForm. Compares the bytes after the batch header, which the topic's settings may change."""
        assert isinstance(store, KafkaStore)
        if offset < store.bounds(partition).end:
            stored = store.read_batches(partition, offset, max_bytes=1).data
            if stored[HEADER_SIZE:] == data[HEADER_SIZE:]:
                return decode_header(data, 0).count, b""
        return 0, data


class BatchEncoder:
    """An encoder that makes batches as a producer does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def encode(
        self, records: Sequence[Record], shape: TopicShape, *, compression: str | None
    ) -> Sequence[tuple[int, bytes]]:
        """Return (record count, bytes) of each batch. There are as few batches as the topic's limit allows."""
        mark = Stamp(0, 0, self._clock(), log_append_time=False)
        encoded = encode_records(
            records,
            mark,
            compression=compression or shape.compression or "none",
            producer=None,
            limit_bytes=shape.limit_bytes,
        )
        return [
            (header.count, encoded.data[at : at + header.size_bytes])
            for at, header in encoded.batches
        ]


def _shape(numbers: Sequence[int], settings: TopicSettings) -> TopicShape:
    limit_bytes = min(settings.max_message_bytes, settings.segment_bytes)
    return TopicShape(tuple(numbers), limit_bytes, settings.compression)
