"""Stores that tests can watch, delay and make fail: the model with hooks.

Owns misbehaviour that real disks show rarely: a flush that blocks or fails, a disk that is full, damage at an offset.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from storage import (
    AppendResult,
    Isolation,
    LogStore,
    Page,
    ProducerSequence,
    Record,
    StoreOptions,
    TopicPartition,
    wall_clock_ms,
)
from storage.errors import StorageError
from storage.memory.store import MemoryStore


class WatchedStore(MemoryStore):
    """A memory store that counts appends and flushes.

    While `gate` is cleared, flushes block. Each `fail_*` that is set is raised.
    """

    def __init__(self) -> None:
        super().__init__(StoreOptions(), clock=wall_clock_ms)
        self.gate = threading.Event()
        self.gate.set()
        self.flushing = threading.Event()
        self.appends: list[tuple[TopicPartition, int, bool]] = []
        self.flushes: list[set[TopicPartition]] = []
        self.closed = 0
        self.fail_flush: StorageError | None = None
        self.fail_append: Callable[[TopicPartition, Sequence[Record]], StorageError | None] = (
            lambda partition, records: None
        )
        self.fail_read: StorageError | None = None

    def opener(self) -> Callable[..., LogStore]:
        """Return an opener that returns this store."""
        return lambda progress: self

    def append(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
        born_hosts: Sequence[bytes] = (),
        publish: bool = True,
    ) -> AppendResult:
        error = self.fail_append(partition, records)
        if error is not None:
            raise error
        options: dict[str, Any] = {"compression": compression, "producer": producer}
        result = super().append(
            partition, records, born_hosts=born_hosts, publish=publish, **options
        )
        self.appends.append((partition, len(records), publish))
        return result

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        asked = set(partitions or ())
        self.flushing.set()
        assert self.gate.wait(30)
        if self.fail_flush is not None:
            raise self.fail_flush
        self.flushes.append(asked)
        super().flush(asked)

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_records: int = 500,
        max_bytes: int = 1 << 20,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Page:
        if self.fail_read is not None:
            raise self.fail_read
        options: dict[str, Any] = {"max_records": max_records, "max_bytes": max_bytes}
        return super().read(partition, offset, isolation=isolation, **options)

    def close(self) -> None:
        self.closed += 1
        super().close()
