"""Rows of `dump` for compacted topics, of single queues and of a whole store.

Owns the fields of a sparse entry's row, and the order of the rows of a store: queue by queue. Must not read a file by
itself. A record's row is that of a message, with its position in the compacted log as physical offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from storage.files import HandleCache
from storage.model import Finding, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import QueueEntry, SparseEntry
from storage.rocketmq.tools.compacted.queue import CompactedQueue, queues_of
from storage.rocketmq.tools.rows import Row, message_row
from storage.rocketmq.tools.view import View
from storage.shared.diagnostics import Notes


def sparse_row(partition: TopicPartition, entry: SparseEntry) -> Row:
    """Return the row of an entry."""
    return {
        "kind": "unit",
        "topic": partition.topic,
        "queueId": partition.partition,
        "queueOffset": entry.queue_offset,
        "physicalOffset": entry.physical_offset,
        "size": entry.size,
        "tagsCode": entry.tags_code,
        "storeTimestamp": entry.store_timestamp_ms,
        "batchSize": entry.batch_size,
    }


def compacted_row(entry: SparseEntry, message: Message) -> Row:
    """Return the row of a record."""
    unit = QueueEntry(entry.physical_offset, entry.size, entry.tags_code)
    return message_row(message, unit)


def store_rows(view: View, topic: str | None, partition: int | None) -> Iterator[tuple[Row, int]]:
    """Yield (row, size) of the records in the compacted logs of a store. Damage becomes a finding of the view.

    Raises UnknownTopic and UnknownPartition for a queue that neither `compaction` nor the store has.
    """
    found = [
        queue
        for queue in queues_of(view.base, view.root)
        if topic in (None, queue.topic) and partition in (None, queue.partition)
        if view.topic in (None, queue.topic) and view.queue_id in (None, queue.partition)
    ]
    if not found:
        view.select(topic, partition)
    return _rows(view, found)


def _rows(view: View, queues: Sequence[TopicPartition]) -> Iterator[tuple[Row, int]]:
    files = HandleCache(view.base, view.options.open_files)
    try:
        for queue in queues:
            compacted = CompactedQueue(files, view.root / names.COMPACTION, queue)
            view.notes.add(*compacted.mismatches())
            for entry, message in compacted.records(view.notes):
                yield compacted_row(entry, message), entry.size
    finally:
        files.close(sync=False)


def check_compacted(files: HandleCache, root: Path) -> Sequence[Finding]:
    """Read every record of the compacted logs of the store at `root`, and return the findings."""
    notes = Notes()
    for queue in queues_of(files.fs, root):
        compacted = CompactedQueue(files, root / names.COMPACTION, queue)
        for _ in compacted.records(notes):
            pass
        notes.add(*compacted.mismatches())
    return notes.all()
