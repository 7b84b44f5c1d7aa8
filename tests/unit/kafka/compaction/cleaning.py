"""A compacted topic whose segments the test ends: appends, a roll, a cleaning, and the records that stay."""

from __future__ import annotations

from collections.abc import Mapping

from storage import CompactionReport, Isolation, Record
from storage.kafka.format.batch import BatchHeader
from storage.kafka.store import KafkaStore
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import T0, Workshop

DAY_MS = 86_400_000
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Cleaning:
    """A store with the topic t. A segment ends when `roll` says so."""

    def __init__(self, shop: Workshop, settings: Mapping[str, str] | None = None) -> None:
        self.shop = shop
        self.store: KafkaStore = shop.open(settings)

    def create(self, **configs: str) -> KafkaStore:
        """Create the topic with these configs (`_` for `.`)."""
        given = {name.replace("_", "."): value for name, value in configs.items()}
        self.store.create_topic("t", 1, {**COMPACT, **given})
        return self.store

    def put(self, *items: tuple[bytes | None, bytes | None]) -> int:
        """Append the records as one batch; return the last offset."""
        records = [Record(key, value, (), self.shop.clock.now_ms) for key, value in items]
        return self.store.append(T0, records).last_offset

    def put_old(self, *items: tuple[bytes | None, bytes | None]) -> None:
        """Append without the check of keys, as before the topic was compacted."""
        for key, value in items:
            self.store.append_batches(T0, data_batch(key=key, value=value))

    def roll(self) -> None:
        """End the active segment: the next append, of the key `end`, begins another."""
        self.store.flush()
        own = dict(self.store.topics()["t"].configs)
        self.store.alter_topic("t", {"internal.segment.bytes": "100"})
        self.put((b"end", b"x"))
        self.store.alter_topic("t", {"internal.segment.bytes": own.get("internal.segment.bytes")})
        self.store.flush()

    def clean(self, **facts: int) -> CompactionReport:
        """Clean once."""
        return self.store.compact(self.shop.clock.now_ms, **facts)

    def left(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Return (offset, key, value) of every record, but for the key `end`."""
        return self._records(Isolation.READ_UNCOMMITTED)

    def committed(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Return what a reader of committed records sees."""
        return self._records(Isolation.READ_COMMITTED)

    def _records(self, isolation: Isolation) -> list[tuple[int, bytes | None, bytes | None]]:
        found = self.store.scan(T0, isolation=isolation)
        return [(r.offset, r.key, r.value) for r in found if r.key != b"end"]

    def headers(self) -> list[BatchHeader]:
        """Return the header of every batch of the log."""
        return [
            batch.header
            for segment in self.store.partition(T0).segments()
            for batch in segment.batches(segment.base_offset, stop_offset=1 << 60)
        ]

    def configs(self, configs: Mapping[str, str | None]) -> None:
        """Change configs of the topic."""
        self.store.alter_topic("t", configs)
