"""Counting what a new log directory holds, by the headers of its batches.

Owns the count; must not judge. CRCs are checked on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage.kafka.store import KafkaStore
from storage.model import TopicPartition
from storage.recount import Contents


def count_records(
    store: KafkaStore, addresses: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Contents]:
    """Return the contents of each partition, without control records; those before its start, too."""
    return {address: _count(store, address) for address in addresses}


def _count(store: KafkaStore, address: TopicPartition) -> Contents:
    partition = store.partition(address)
    end = partition.bounds().end
    records = sum(
        batch.header.count
        for segment in partition.segments()
        for batch in segment.batches(segment.base_offset, stop_offset=end)
        if not batch.header.is_control
    )
    return Contents(records, end)
