"""Counting what a new store holds: the entries of its queues that lead to records.

Owns the count; must not judge. Every entry was written from a record of the log by the same start, so that no record is
read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from storage.model import TopicPartition
from storage.recount import Contents
from storage.rocketmq.store import RocketMQStore

ENTRIES_AT_ONCE: Final = 50_000


def count_records(
    store: RocketMQStore, addresses: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Contents]:
    """Return the contents of each queue as its readers see them."""
    return {address: _count(store, address) for address in addresses}


def _count(store: RocketMQStore, address: TopicPartition) -> Contents:
    queue = store.queue(address)
    bounds = queue.bounds()
    records, offset = 0, bounds.start
    while offset < bounds.end:
        units = queue.units.read(offset, min(ENTRIES_AT_ONCE, bounds.end - offset))
        records += sum(
            unit.is_valid
            and not unit.is_filler
            and store.log.start <= unit.physical_offset < store.log.end
            for unit in units
        )
        offset += len(units)
    return Contents(records, bounds.end)
