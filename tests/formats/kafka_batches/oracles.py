"""Codecs of other clients as oracles: aiokafka (its C extension and its Python code) and kafka-python.

Each client decodes and encodes one batch; records are (offset, timestamp_ms, key, value, headers). They are test-only
packages. kafka-python warns when imported, and the suite would treat the warning as an error of this project.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka.record._crecords import (
    DefaultRecordBatchBuilder as CBuilder,
)
from aiokafka.record._crecords import (
    MemoryRecords as CRecords,
)
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as PyBuilder
from aiokafka.record.default_records import _DefaultRecordBatchPy as PyBatch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.codec import has_snappy
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2
    from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

__all__ = ["CLIENTS", "Client", "kafka_python_murmur2"]

Header: TypeAlias = tuple[str, bytes | None]
OracleRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, list[Header]]

NO_LIMIT_BYTES = 1 << 30
ALL_CODECS = (0, 1, 2, 3, 4)
SNAPPY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The codec of a client. `codecs`: the compression codecs that it supports with the installed packages."""

    name: str
    read: Callable[[bytes], Any]
    builder: Callable[..., Any]
    codecs: Sequence[int] = ALL_CODECS

    def decode(self, data: bytes) -> list[OracleRecord]:
        """Return the records of one batch; check its CRC."""
        batch = self.read(data)
        assert batch.validate_crc()
        return [
            (record.offset, record.timestamp, record.key, record.value, list(record.headers))
            for record in batch
        ]

    def encode(self, records: Sequence[Any], *, codec: int = 0) -> bytes:
        """Encode (key, value, headers, timestamp_ms, ...) records as one batch at offset 0, without a producer."""
        builder = self.builder(2, codec, False, -1, -1, -1, NO_LIMIT_BYTES)
        for offset, record in enumerate(records):
            key, value, headers, timestamp_ms = record[:4]
            assert builder.append(offset, timestamp_ms, key, value, list(headers)) is not None
        return bytes(builder.build())


CLIENTS = [
    Client(name="aiokafka C", read=lambda data: CRecords(data).next_batch(), builder=CBuilder),
    Client(name="aiokafka Python", read=PyBatch, builder=PyBuilder),
    Client(
        name="kafka-python",
        read=KafkaBatch,
        builder=KafkaBuilder,
        codecs=[codec for codec in ALL_CODECS if codec != SNAPPY or has_snappy()],
    ),
]
