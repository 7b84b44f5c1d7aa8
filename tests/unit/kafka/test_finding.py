"""Finding by time in logs of the real Kafka: falling times, plateaus and emptied segments hide nothing."""

from __future__ import annotations

import pytest

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
