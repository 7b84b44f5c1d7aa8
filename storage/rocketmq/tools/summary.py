"""The summary that `inspect` shows of a RocketMQ store: kind, contents and condition.

Owns the shape of the summary (camel case, times in ms, sizes in bytes). Reads only ends, times and
sizes, not all records. Must not change anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from storage.model import Finding, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.lookup.by_time import NO_TIME, store_time
from storage.rocketmq.state.root import BACKEND, StoreDirectory
from storage.rocketmq.tools.rows import Row, checkpoint_row
from storage.rocketmq.tools.view import View
from storage.shared.own_files import own_file_findings

LOG_FORMAT: Final = "commit log of messages, versions 1 and 2 (written by RocketMQ 4.x and 5.x)"


def of_view(view: View, *, adopted: bool | None) -> Row:
    """Return the summary of a store, or of the selected queues."""
    store = view.store
    directory = StoreDirectory(store.fs, view.root)
    checkpoint = directory.checkpoint()
    topics = [
        _topic(view, name, list(group))
        for name, group in groupby(view.addresses, key=lambda address: address.topic)
    ]
    own = own_file_findings(view.base, view.root) if view.kind == "store" else ()
    return {
        "path": str(view.path),
        "backend": BACKEND,
        "kind": view.kind,
        "format": LOG_FORMAT,
        "version": _version(view, checkpoint),
        "cleanShutdown": store.recovery.clean_shutdown,
        "adopted": adopted,
        "fileSizes": _file_sizes(view),
        "topicCount": len(topics),
        "partitionCount": len(view.addresses),
        "segments": len(store.log.run.bases),
        "sizeBytes": max(store.log.end - store.log.start, 0),
        "log": {"minPhyOffset": store.log.start, "maxPhyOffset": store.log.end},
        "index": _index(view),
        "checkpoint": checkpoint_row(checkpoint),
        "topics": topics,
        "recovery": _recovery(view),
        "findings": findings([*view.findings(), *own]),
    }


def findings(found: Iterable[Finding]) -> list[Row]:
    """Return findings as rows."""
    return [msgspec.to_builtins(finding) for finding in found]


def _version(view: View, checkpoint: Checkpoint) -> str | None:
    """Return the RocketMQ version that last wrote the store, as far as its files show it; None if they do not."""
    if checkpoint.logics_physical_offset:
        return "5.5 or later"
    if checkpoint.confirm_physical_offset:
        return "5.3 or later"
    marks = (names.ABORT_BACKUP, "rocksdbstore", "compaction")
    return "5.x" if any(view.store.fs.exists(view.root / name) for name in marks) else None


def _file_sizes(view: View) -> Row:
    """Return the four sizes shared by all files, under RocketMQ's names."""
    store = view.store
    found = {
        "mappedFileSizeCommitLog": store.log.run.file_bytes,
        "mappedFileSizeConsumeQueue": store.queues.units_of("", 0).run.file_bytes,
    }
    if store.index is not None:
        found |= {"maxHashSlotNum": store.index.slots, "maxIndexNum": store.index.entries}
    return found


def _index(view: View) -> Row | None:
    """Return the totals of all index files; None if the index is disabled."""
    index = view.store.index
    if index is None:
        return None
    headers = [header for _, header in index.headers()]
    return {
        "files": len(headers),
        "entries": sum(header.index_count - 1 for header in headers),
        "beginTimestamp": headers[0].begin_timestamp_ms if headers else None,
        "endTimestamp": headers[-1].end_timestamp_ms if headers else None,
        "beginPhyOffset": headers[0].begin_physical_offset if headers else None,
        "endPhyOffset": headers[-1].end_physical_offset if headers else None,
    }


def _topic(view: View, name: str, addresses: Sequence[TopicPartition]) -> Row:
    info = view.store.topics()[name]
    partitions = [_queue(view, view.store.queue(address)) for address in addresses]
    return {
        "topic": name,
        "internal": info.internal,
        "configs": dict(info.configs),
        "segments": _sum(partitions, "segments"),
        "sizeBytes": _sum(partitions, "sizeBytes"),
        "partitions": partitions,
    }


def _queue(view: View, queue: Queue) -> Row:
    """Return the row of one queue. Times are the store times of its first and last record."""
    bounds = queue.bounds()
    units = queue.units
    last_ms = _time(view, queue, bounds.end - 1)
    return {
        "partition": queue.partition.partition,
        "earliest": bounds.start,
        "latest": bounds.end,
        "firstTimestamp": _time(view, queue, bounds.start),
        "maxTimestamp": None
        if last_ms is None
        else {"offset": bounds.end - 1, "timestamp": last_ms},
        "segments": len(units.run.bases),
        "sizeBytes": (units.end - min(units.first_offset, units.end)) * UNIT_SIZE,
    }


def _time(view: View, queue: Queue, offset: int) -> int | None:
    bounds = queue.bounds()
    if not bounds.start <= offset < bounds.end:
        return None
    time_ms = store_time(view.store.log, queue.units.unit(offset))
    return None if time_ms == NO_TIME else time_ms


def _recovery(view: View) -> Row:
    """Return the actions of the next start."""
    report = view.store.recovery
    return {
        "segmentsScanned": report.segments_scanned,
        "indexesRebuilt": report.indexes_rebuilt,
        "refused": any(finding.code == "damaged-record" for finding in report.findings),
        "cut": [msgspec.to_builtins(loss) for loss in report.losses],
    }


def _sum(rows: Iterable[Row], field: str) -> Any:
    return sum(row[field] for row in rows)
