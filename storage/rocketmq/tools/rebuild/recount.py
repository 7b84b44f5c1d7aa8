"""Counts of the contents of a new store: queue entries that lead to records, and index entries.

Owns the count; must not judge. The same start wrote every entry from a record of the log, so records are not read
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from storage.contract import Clock
from storage.files import FileSystem, HandleCache
from storage.model import TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.index_file import FIRST_ENTRY
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.state.settings import Sizes
from storage.rocketmq.store import RocketMQStore
from storage.shared.recount import Contents

OPEN_FILES: Final = 32


class Built(NamedTuple):
    """The contents of derived files: entries by queue or of the whole index (by folder), and the number of files."""

    entries: Mapping[Path, int]
    files: int


def count_records(
    store: RocketMQStore, addresses: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Contents]:
    """Return the contents of each queue as its readers see them."""
    return {address: _count(store, address) for address in addresses}


def _count(store: RocketMQStore, address: TopicPartition) -> Contents:
    queue = store.queue(address)
    bounds = queue.bounds()
    start, end = store.log.start, store.log.end
    records = sum(
        unit.is_valid and not unit.is_filler and start <= unit.physical_offset < end
        for _, unit in queue.units.entries(bounds.start, bounds.end)
    )
    return Contents(records, bounds.end)


def count_entries(units: ConsumeQueue) -> int:
    """Return the number of valid entries of a queue, including fillers."""
    return sum(unit.is_valid for _, unit in units.entries(units.first_offset, units.end))


def count_queues(fs: FileSystem, folder: Path, sizes: Sizes) -> Built:
    """Open the queues of a folder, and count their entries and files."""
    files = HandleCache(fs, OPEN_FILES)
    table = QueueTable(files, folder, sizes.consume_queue_bytes)
    entries: dict[Path, int] = {}
    count = 0
    try:
        for topic in fs.list_dir(folder) if fs.exists(folder) else ():
            for name in fs.list_dir(folder / topic):
                units = table.units_of(topic, names.parse_queue_id(name) or 0)
                units.run.load()
                units.use(units.first_offset, -(-units.run.data_end(units.run.start) // UNIT_SIZE))
                entries[units.directory] = count_entries(units)
                count += len(units.run.bases)
    finally:
        files.close(sync=False)
    return Built(entries, count)


def count_index(fs: FileSystem, folder: Path, sizes: Sizes, clock: Clock) -> Built:
    """Open the index files of a folder, and count their entries and files."""
    files = HandleCache(fs, OPEN_FILES)
    index = KeyIndex(
        files, folder, slots=sizes.index_slots, entries=sizes.index_entries, clock=clock
    )
    try:
        index.load()
        counts = [file.header.index_count - FIRST_ENTRY for file in index.index_files]
    finally:
        files.close(sync=False)
    return Built({folder: sum(counts)}, len(counts))
