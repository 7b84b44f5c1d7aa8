"""The division of one poll's bytes among partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

import storage
from logserver.groups.reading import Reading, Reset, read_batch
from storage import Record, TopicPartition


@pytest.mark.parametrize("backend", ["memory", "kafka", "rocketmq"])
@pytest.mark.parametrize(
    ("sizes", "max_bytes", "expected"),
    [
        ((10, 10), 20, [0, 1]),
        ((10, 11), 20, [0]),
        ((10, 11, 10), 20, [0, 2]),
        ((1, 2, 3), 6, [0, 1, 2]),
        ((30, 1), 20, [0]),
        ((30, 10), 40, [0, 1]),
    ],
)
def test_a_record_that_fills_exactly_what_is_left_comes(
    tmp_path: Path, backend: str, sizes: tuple[int, ...], max_bytes: int, expected: list[int]
) -> None:
    """After the first record none exceeds `max_bytes`, and no record that fits is skipped."""
    store = storage.open_store(backend, tmp_path / "s")
    try:
        store.create_topic("t", len(sizes))
        for number, size in enumerate(sizes):
            store.append(TopicPartition("t", number), [Record(None, b"x" * size)])
        reading = Reading(
            positions=[(TopicPartition("t", number), 0) for number in range(len(sizes))],
            max_records=100,
            max_bytes=max_bytes,
            reset=Reset.NONE,
        )
        batch = read_batch(store, reading)
    finally:
        store.close()
    assert [part.partition.partition for part in batch.slices] == expected
