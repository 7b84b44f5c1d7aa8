"""Count of the records in a new log directory, by the headers of its batches, and of the entries in a new index file.

Owns the count; must not judge. The CRCs of the batches are checked during the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from storage.files import FileSystem
from storage.kafka.format import names, offset_index, time_index, txn_index
from storage.kafka.store import KafkaStore
from storage.model import TopicPartition
from storage.shared.recount import Contents

ENTRY_BYTES: Final[Mapping[str, int]] = {
    names.INDEX: offset_index.ENTRY_SIZE,
    names.TIME_INDEX: time_index.ENTRY_SIZE,
    names.TXN_INDEX: txn_index.ENTRY_SIZE,
}


def count_records(
    store: KafkaStore, addresses: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Contents]:
    """Return the contents of each partition: control records are not counted, records before the log start are."""
    return {address: _count(store, address) for address in addresses}


def _count(store: KafkaStore, address: TopicPartition) -> Contents:
    partition = store.partition(address)
    end = partition.bounds().end
    records = sum(
        max(batch.header.count, 0)
        for segment in partition.segments()
        for batch in segment.batches(segment.base_offset, stop_offset=end)
        if not batch.header.is_control
    )
    return Contents(records, end)


def count_entries(fs: FileSystem, path: Path, suffix: str) -> int | None:
    """Return the number of entries of an index file, None if the file does not exist."""
    return len(fs.read_bytes(path)) // ENTRY_BYTES[suffix] if fs.exists(path) else None
