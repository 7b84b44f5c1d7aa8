"""Fetches of many partitions: pages that the loop reads and pages that a thread reads give one answer."""

from __future__ import annotations

import itertools
import random
from typing import Any, cast

import pytest

from logserver.service.fetch_many import (
    PROMPT_BYTES,
    PROMPT_PARTITIONS,
    PROMPT_S,
    FetchMany,
    PartitionFetch,
    read_many,
    read_promptly,
)
from storage import BatchPage, Isolation, OffsetBounds, TopicPartition
from storage.errors import OffsetOutOfRange


class Batches:
    """Partitions whose batches all have one size. `waits`: the partitions that only a thread can read."""

    def __init__(self, sizes: list[int], waits: frozenset[int] = frozenset()) -> None:
        self.sizes = sizes
        self.waits = waits
        self.read: list[int] = []

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return OffsetBounds(0, 9, 9)

    def read_batches(
        self, partition: TopicPartition, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> BatchPage:
        self.read.append(partition.partition)
        if offset > 9:
            raise OffsetOutOfRange(*partition, offset=offset, earliest=0, latest=9)
        size_bytes = self.sizes[partition.partition]
        count = max(1, min(max_bytes // size_bytes, 9 - offset)) if offset < 9 else 0
        return BatchPage(b"x" * size_bytes * count, offset + count, self.bounds(partition))

    def read_batches_promptly(
        self, partition: TopicPartition, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> BatchPage | None:
        if partition.partition in self.waits:
            return None
        return self.read_batches(partition, offset, max_bytes=max_bytes, isolation=isolation)


def fetched(batches: Any, request: FetchMany) -> Any:
    begun, is_whole = read_promptly(batches, batches, request)
    return begun if is_whole else read_many(batches, request, begun.pages)


def codes(result: Any) -> list[Any]:
    return [page.page or type(page.error) for page in result.pages]


@pytest.mark.parametrize("seed", range(200))
def test_the_answer_is_that_of_a_thread(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice([0, 1, 3, PROMPT_PARTITIONS, PROMPT_PARTITIONS + 1])
    sizes = [chance.choice([1, 50, 400_000]) for _ in range(count)]
    waits = frozenset(n for n in range(count) if chance.random() < chance.choice([0, 0.3]))
    parts = [
        PartitionFetch(
            TopicPartition("t", number),
            chance.choice([0, 5, 9, 10]),
            chance.choice([0, 60, 1 << 20]),
        )
        for number in range(count)
    ]
    request = FetchMany(partitions=parts, max_bytes=chance.choice([0, 100, 1 << 20, 1 << 24]))
    wanted = read_many(cast("Any", Batches(sizes)), request)
    batches = Batches(sizes, waits)
    found = fetched(batches, request)
    assert codes(found) == codes(wanted)
    assert found[1:] == wanted[1:]
    assert batches.read == sorted(set(batches.read))  # each once, in order


def test_the_loop_reads_for_a_short_time() -> None:
    """At least one partition, so that the loop makes progress."""
    parts = [PartitionFetch(TopicPartition("t", number), 0, 1 << 20) for number in range(10)]
    batches: Any = Batches([10] * 10)
    request = FetchMany(partitions=parts, max_bytes=1 << 30)
    for step_s, count in ((0, 10), (PROMPT_S / 3, 4), (1, 1)):
        clock = itertools.count(0, step_s).__next__
        begun, is_whole = read_promptly(batches, batches, request, clock)
        assert (len(begun.pages), is_whole) == (count, count == 10)


def test_the_loop_reads_little() -> None:
    """A thread goes on after the first megabyte; a fetch of many partitions is all its."""
    parts = [PartitionFetch(TopicPartition("t", number), 0, 1 << 20) for number in range(40)]
    batches: Any = Batches([400_000] * 40)
    request = FetchMany(partitions=parts[:10], max_bytes=1 << 30)
    begun, is_whole = read_promptly(batches, batches, request, lambda: 0)
    assert not is_whole
    assert PROMPT_BYTES <= begun.size_bytes < 2 * PROMPT_BYTES
    request = FetchMany(partitions=parts, max_bytes=1 << 30)
    assert read_promptly(batches, batches, request) == (([], 0, False), False)
