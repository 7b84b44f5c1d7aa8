"""The library reads from a golden store what the real consumer read: records, bounds, times, batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from storage import Isolation, LogStore, StoredRecord, SupportsBatchBytes
from storage.kafka.store import KafkaStore
from tests.golden import stores
from tests.golden.stores import GoldenPartition, as_answer

WITH_TRANSACTIONS = [p for p in stores.partitions() if (p.expect / stores.COMMITTED).exists()]
TIMES_ASKED = 2248


@pytest.fixture(params=stores.partitions(), ids=stores.by_id)
def partition(request: pytest.FixtureRequest) -> GoldenPartition:
    """Each partition of each store."""
    golden: GoldenPartition = request.param
    return golden


@pytest.fixture
def store(partition: GoldenPartition) -> Iterator[LogStore]:
    """The partition's store, opened in place."""
    with stores.open_golden(partition.root, partition.settings, read_only=True) as opened:
        yield opened


def rows(partition: GoldenPartition, records: Iterator[StoredRecord]) -> list[dict[str, Any]]:
    return [stores.as_row(partition.address, record) for record in records]


def test_records_are_those_that_the_real_consumer_read(
    store: LogStore, partition: GoldenPartition
) -> None:
    assert rows(partition, store.scan(partition.address)) == partition.lines("expected.jsonl")


@pytest.mark.parametrize("golden", WITH_TRANSACTIONS, ids=stores.by_id)
def test_committed_records_are_those_that_the_real_consumer_read(golden: GoldenPartition) -> None:
    with stores.open_golden(golden.root, golden.settings, read_only=True) as store:
        read = rows(golden, store.scan(golden.address, isolation=Isolation.READ_COMMITTED))
    assert read == golden.lines(stores.COMMITTED)


@pytest.mark.parametrize("max_bytes", [1, 700, 3000])
@pytest.mark.parametrize("golden", WITH_TRANSACTIONS, ids=stores.by_id)
def test_small_pages_hide_the_same_transactions(golden: GoldenPartition, max_bytes: int) -> None:
    with stores.open_golden(golden.root, golden.settings, read_only=True) as store:
        bounds = store.bounds(golden.address)
        read: list[dict[str, Any]] = []
        at = bounds.start
        while at < bounds.stable:
            page = store.read(
                golden.address, at, max_bytes=max_bytes, isolation=Isolation.READ_COMMITTED
            )
            assert page.next_offset > at
            read += rows(golden, iter(page.records))
            at = page.next_offset
    assert read == golden.lines(stores.COMMITTED)


def test_every_offset_can_be_read_by_itself(store: LogStore, partition: GoldenPartition) -> None:
    expected = partition.lines("expected.jsonl")
    for row in expected[:: max(1, len(expected) // 60)]:
        page = store.read(partition.address, row["offset"], max_records=1)
        assert rows(partition, iter(page.records)) == [row]


def test_bounds_are_those_of_the_real_broker(store: LogStore, partition: GoldenPartition) -> None:
    reported = partition.json("times.json")["summary"]
    stable = reported.get("latestReadCommitted", reported["latest"])
    assert store.bounds(partition.address) == (reported["earliest"], stable, reported["latest"])


def test_every_lookup_by_time_has_the_real_answer(
    store: LogStore, partition: GoldenPartition
) -> None:
    for time_ms, answer in partition.json("times.json")["times"]:
        found = store.offset_for_time(partition.address, time_ms)
        assert (time_ms, as_answer(found)) == (time_ms, answer)


def test_the_latest_time_is_the_real_one(store: LogStore, partition: GoldenPartition) -> None:
    assert isinstance(store, KafkaStore)
    latest = store.partition(partition.address).newest_time()
    assert as_answer(latest) == partition.json("times.json")["summary"]["maxTimestamp"]


def test_batches_come_out_as_they_lie_in_the_files(
    store: LogStore, partition: GoldenPartition
) -> None:
    assert isinstance(store, SupportsBatchBytes)
    start, _, end = store.bounds(partition.address)
    read, at = b"", start
    while at < end:
        page = store.read_batches(partition.address, at, max_bytes=20_000)
        assert page.next_offset > at
        read, at = read + page.data, page.next_offset
    kept = [data for data, header in partition.batches() if header.last_offset >= start]
    assert read == b"".join(kept)


def test_the_expectations_are_all_there() -> None:
    times = [p.json("times.json")["times"] for p in stores.partitions()]
    assert (len(times), sum(map(len, times))) == (45, TIMES_ASKED)
    assert len(WITH_TRANSACTIONS) == len(
        [p for p in stores.partitions() if (p.expect / stores.COMMITTED).exists()]
    )


def test_every_store_is_named() -> None:
    """A golden store that is missing in every list would be read by no test."""
    folders = sorted(path.name for path in stores.KAFKA.iterdir() if path.is_dir())
    assert folders == sorted((*stores.HEALTHY, stores.DAMAGED))
