"""Finding in logs of the real Kafka: falling times, plateaus, gaps and emptied segments hide nothing."""

from __future__ import annotations

import pytest

from storage.kafka import finding
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id


@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
def test_every_record_in_a_range_of_time(partition: GoldenPartition) -> None:
    rows = partition.lines("expected.jsonl")
    times = sorted({row["timestamp"] for row in rows}) or [0]
    address = partition.address
    with stores.open_golden(partition.root, {}, read_only=True) as store:
        for low in (times[0], times[len(times) // 2], times[-1], times[-1] + 1):
            page = store.find(address.topic, from_ms=low, limit=100_000)
            found = [
                record.offset for number, record in page.records if number == address.partition
            ]
            assert found == [row["offset"] for row in rows if row["timestamp"] >= low]
            assert page.complete


@pytest.mark.slow
@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
@pytest.mark.parametrize(
    ("offsets", "size_bytes"), [(1, 1 << 20), (3, 0), (1024, 500), (1024, 1 << 22)]
)
def test_the_way_back(
    partition: GoldenPartition, monkeypatch: pytest.MonkeyPatch, offsets: int, size_bytes: int
) -> None:
    """However much the way back takes at once, it is the way forth turned round."""
    monkeypatch.setattr(finding, "BACKWARD_OFFSETS", offsets)
    monkeypatch.setattr(finding, "BACKWARD_BYTES", size_bytes)
    rows = partition.lines("expected.jsonl")
    address = partition.address
    with stores.open_golden(partition.root, {}, read_only=True) as store:
        page = store.find(address.topic, limit=100_000, backward=True, max_bytes=1 << 30)
        found = [record.offset for number, record in page.records if number == address.partition]
        assert found == [row["offset"] for row in reversed(rows)]
        assert page.complete
