"""A compacted topic next to a plain dictionary of what it must say: the newest value of each key.

Owns the topic's operations and the comparison; must not choose when compaction runs or a crash comes. A reader that
reads everything from the start must end with the dictionary, at every moment, whatever was cleaned.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from storage import Isolation, LogStore, ProducerSequence, Record, StoreOptions, TopicPartition
from storage.files import FileSystem
from storage.kafka.format.batch import encode_batch, encode_control_batch
from storage.kafka.store import KafkaStore, open_kafka
from tests.contract.harness import ManualClock
from tests.robustness.crash.workload import PATH

AT = TopicPartition("c", 0)
FOLDER = PATH / str(AT)
SETTINGS = {
    "internal.segment.bytes": "600",
    "segment.index.bytes": "120",
    "index.interval.bytes": "90",
}
DELETE_RETENTION_MS = 60_000
DELETE_DELAY_MS = 60_000  # file.delete.delay.ms, as it is by default
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
ABORTED = b"aborted"
MOST_CLEANINGS = 20


@dataclass
class CompactedTopic:
    """The topic and the dictionary. All appends are made durable, so that they must survive."""

    at: TopicPartition = AT
    clock: ManualClock = field(default_factory=ManualClock)
    values: dict[bytes, bytes] = field(default_factory=dict)
    end: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    def open(self, fs: FileSystem, path: Path = PATH) -> KafkaStore:
        """Open the store, and create the topic if it is missing."""
        options = StoreOptions(settings=SETTINGS, open_files=16)
        store = open_kafka(path, options, fs=fs, clock=self.clock, read_only=False)
        if self.at.topic not in store.topics():
            store.create_topic(self.at.topic, 1, CONFIGS)
        return store

    def put(self, store: LogStore, items: dict[bytes, bytes | None]) -> None:
        """Append a record for each item; None is a tombstone."""
        records = [Record(key, value) for key, value in items.items()]
        self._appended(store.append(self.at, records).last_offset)
        self._apply(items)
        store.flush()

    def put_in_sequence(self, store: LogStore, producer_id: int, items: dict[bytes, bytes]) -> None:
        """Append as an idempotent producer; a repeat of the request is then recognised."""
        sequence = self.sequences.get(producer_id, 0)
        mark = ProducerSequence(producer_id, 0, sequence)
        self.sequences[producer_id] = sequence + len(items)
        records = [Record(key, value) for key, value in items.items()]
        self._appended(store.append(self.at, records, producer=mark).last_offset)
        self._apply(dict(items))
        store.flush()

    def transact(
        self, store: KafkaStore, producer_id: int, items: dict[bytes, bytes], *, commit: bool
    ) -> None:
        """Append a transaction of two batches and its marker."""
        for key, value in items.items():
            reported = value if commit else ABORTED + value
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + 1
            batch = encode_batch(
                [(key, reported, (), None)],
                base_offset=0,
                leader_epoch=0,
                now_ms=self.clock.now_ms,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            self._appended(store.append_batches(self.at, batch).last_offset)
        marker = encode_control_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=self.clock.now_ms,
        )
        self._appended(store.append_batches(self.at, marker).last_offset)
        if commit:
            self._apply(dict(items))
        store.flush()

    def _appended(self, last_offset: int) -> None:
        self.end = last_offset + 1

    def _apply(self, items: dict[bytes, bytes | None]) -> None:
        for key, value in items.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def fill(self, store: KafkaStore, dice: random.Random, requests: int) -> None:
        """Append requests of all kinds."""
        for number in range(requests):
            key, other = (b"k%d" % dice.randrange(8) for _ in range(2))
            value = b"%d-" % number + b"x" * dice.choice([1, 20, 90])
            kind = dice.randrange(6)
            if kind <= 1:
                self.put(store, {key: value})
            elif kind == 2:
                self.put(store, {key: None})
            elif kind == 3:
                self.put_in_sequence(store, dice.choice([5, 6]), {key: value})
            else:
                items = {key: value, other: value + b"o"}
                self.transact(store, dice.choice([8, 9]), items, commit=kind == 4)
            self.clock.now_ms += dice.choice([0, 1, 500])

    def clean(self, store: KafkaStore) -> int:
        """Compact until nothing is due; return the number of cleanings."""
        for count in range(MOST_CLEANINGS):
            report = store.compact(self.clock.now_ms)
            assert report.uncleanable is None, report.uncleanable
            if report.partition is None:
                return count
        raise AssertionError("compaction does not come to an end")

    def problem(self, store: LogStore) -> str | None:
        """Return how the store differs from the dictionary; None if it does not."""
        bounds = store.bounds(self.at)
        if bounds.end != self.end:
            return f"the log ends at {bounds.end}, not {self.end}"
        found: dict[bytes, bytes] = {}
        previous = -1
        for record in store.scan(self.at, isolation=Isolation.READ_COMMITTED):
            if record.offset <= previous or record.key is None:
                return f"offset {record.offset} after {previous}, key {record.key!r}"
            previous = record.offset
            if record.value is None:
                found.pop(record.key, None)
            elif record.value.startswith(ABORTED):
                return f"an aborted record is visible at {record.offset}"
            else:
                found[record.key] = record.value
        if found != self.values:
            return f"the topic says {found}, it must be {self.values}"
        return self._unread(store)

    def _unread(self, store: LogStore) -> str | None:
        """Check that a read from each offset begins at the next record that a scan has."""
        offsets = [record.offset for record in store.scan(self.at)]
        for offset in range(store.bounds(self.at).start, self.end):
            page = store.read(self.at, offset, max_records=1)
            following = next((o for o in offsets if o >= offset), None)
            reported = page.records[0].offset if page.records else None
            if reported != following:
                return f"a read from {offset} begins at {reported}, a scan at {following}"
        return None

    def check_repeats(self, store: LogStore) -> None:
        """Check that the next sequence of each producer is known: a gap is refused, and the next one is not."""
        for producer_id, sequence in self.sequences.items():
            if producer_id < 8:
                mark = ProducerSequence(producer_id, 0, sequence)
                self._appended(
                    store.append(self.at, [Record(b"k0", b"next")], producer=mark).last_offset
                )
                self.sequences[producer_id] = sequence + 1
                self._apply({b"k0": b"next"})
