"""A store with everything that we can write, and its records in the form that the peers print.

Owns the content; must not know the peers. Three runs with two restarts between them: every codec, every shape of
record, idempotent producers, transactions, several segments and partitions, both kinds of time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage import Isolation, LogStore, ProducerSequence, Record, TopicPartition, open_store
from storage.kafka.format.batch import encode_batch, encode_control_batch
from storage.kafka.store import KafkaStore
from tests.golden.stores import as_row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BEGIN_MS = 1_700_000_000_000
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "codecs": (len(CODECS), {"index.interval.bytes": "500"}),
    "idempotent": (1, {"internal.segment.bytes": "1500", "index.interval.bytes": "200"}),
    "never-written": (2, {}),
    "segments": (3, {"internal.segment.bytes": "6000", "index.interval.bytes": "300"}),
    "shapes": (2, {}),
    "transactions": (1, {"internal.segment.bytes": "1000", "index.interval.bytes": "200"}),
}
SHAPES: Sequence[Record] = (
    Record(None, None),
    Record(b"", b""),
    Record(b"", None),
    Record(None, b""),
    Record(b"tombstone", None),
    Record(
        b"k",
        b"v",
        [("h", b"1"), ("h", b"2"), ("", b""), ("no value", None), ("größe", b"\xff\x00")],
    ),
    Record(b"\x00" * 3, bytes(range(256)), [("many", b"x")] * 130),
    Record("schlüssel".encode(), "naïve 🙂".encode(), (), 0),
    Record(b"large", random.Random(1).randbytes(100_000)),
    Record(b"large and even", b"ab" * 50_000, [("long", b"y" * 5000)]),
    Record(b"tagged", b"x", tag="red", lookup_keys=["o-1", "o-2"]),
    Record(b"future", b"x", (), 4_102_444_800_000),
)


def write(root: Path) -> None:
    """Create the store at `root`, in three runs."""
    for run in range(3):
        with open_store("kafka", root, clock=lambda run=run: BEGIN_MS + 1000 * run) as store:  # type: ignore[misc]
            assert isinstance(store, KafkaStore)
            for topic, (partitions, configs) in TOPICS.items():
                store.create_topic(topic, partitions, configs)
            _write_codecs(store, run)
            _write_shapes(store, run)
            _write_segments(store, run)
            _write_sequences(store, run)
            _write_transactions(store, run)
            for n in range(5):
                store.append(TopicPartition("append-time", 0), [Record(b"k", b"%d" % n, (), 5)])


def _write_codecs(store: LogStore, run: int) -> None:
    source = random.Random(run)
    for number, codec in enumerate(CODECS):
        address = TopicPartition("codecs", number)
        for size in (1, 30, 7):
            records = [
                Record(
                    b"key %d" % n, (b"value %d " % n) * source.randint(0, 40), [("n", b"%d" % n)]
                )
                for n in range(size)
            ]
            store.append(address, records, compression=codec)
        store.append(address, [SHAPES[6], SHAPES[8], SHAPES[9]], compression=codec)


def _write_shapes(store: LogStore, run: int) -> None:
    for shape in SHAPES:
        store.append(TopicPartition("shapes", 0), [shape])
    store.append(TopicPartition("shapes", 1), [*SHAPES[run:], *SHAPES[:run]], compression="lz4")


def _write_segments(store: LogStore, run: int) -> None:
    source = random.Random(100 + run)
    for n in range(90):
        address = TopicPartition("segments", source.randrange(3))
        time_ms = BEGIN_MS + 1000 * n + source.randint(-5000, 5000)
        value = source.randbytes(source.randint(0, 400))
        records = [Record(b"%d" % n, value, (), time_ms)] * source.randint(1, 3)
        store.append(address, records, compression=source.choice(CODECS))


def _write_sequences(store: LogStore, run: int) -> None:
    for sequence in range(12 * run, 12 * run + 12, 3):
        for producer_id, epoch in ((4000, 0), (4001, 3)):
            values = [f"{producer_id}/{sequence + n}".encode() for n in range(3)]
            store.append(
                TopicPartition("idempotent", 0),
                [Record(None, value) for value in values],
                producer=ProducerSequence(producer_id, epoch, sequence),
            )


def _write_transactions(store: KafkaStore, run: int) -> None:
    """Write the transactions of two producers in turn.

    The second producer's transactions are aborted; the last run leaves its transaction open.
    """
    address = TopicPartition("transactions", 0)
    for turn in range(4 * run, 4 * run + 4):
        for producer_id in (500, 501):
            store.append_batches(address, _part(producer_id, turn))
        store.append(address, [Record(None, b"plain %d" % turn)])
        store.append_batches(address, _end(500, commit=True))
        if (run, turn) != (2, 11):
            store.append_batches(address, _end(501, commit=False))


def _part(producer_id: int, turn: int) -> bytes:
    return encode_batch(
        [(b"k", f"{producer_id}/{turn}/{n}".encode(), (), BEGIN_MS + turn) for n in range(2)],
        base_offset=0,
        leader_epoch=0,
        now_ms=BEGIN_MS,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=2 * turn,
        transactional=True,
    )


def _end(producer_id: int, *, commit: bool) -> bytes:
    return encode_control_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=BEGIN_MS + 7,
    )


def rows(
    store: LogStore, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return every record of every partition in the form that the peers print."""
    addresses = [TopicPartition(t.name, n) for t in store.topics().values() for n in t.partitions]
    return {
        (address.topic, address.partition): [
            as_row(address, record) for record in store.scan(address, isolation=isolation)
        ]
        for address in addresses
    }
