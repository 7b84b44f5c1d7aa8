"""The output of `inspect`: what a directory or file is, its contents, and its state.

Owns the shape of the summary (camel case, times in ms, sizes in bytes). Reads only what it needs: ends,
times and sizes, not the records. Must not change anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from storage.errors import DataError
from storage.kafka.format import names, properties
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.log.partition_plan import PartitionPlan
from storage.kafka.state.root import BACKEND
from storage.kafka.tools.logs import Log
from storage.kafka.tools.rows import Row
from storage.kafka.tools.verify.files import foreign_folders
from storage.kafka.tools.view import View
from storage.model import Finding, TopicPartition
from storage.shared.own_files import own_file_findings

MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
GRACE_MS: Final = 5 * 60 * 1000
"""A transaction hangs (the rule of `kafka-transactions find-hanging`) when its producer's last record is older than the
longest timeout of a transaction, `transaction.max.timeout.ms`, plus the grace. The age is this machine's clock minus
the record's timestamp, because a log without new records does not age by itself."""
BATCH_FORMAT = "record batches, version 2 (written by Kafka 0.11 to 4.x)"


def of_view(view: View, *, kind: str, adopted: bool | None) -> Row:
    """Return the summary of a store, or of one partition (`kind`)."""
    view.weigh_names()
    topics: dict[str, list[Row]] = {}
    for address in view.folders:
        topics.setdefault(address.topic, []).append(_partition(view, address))
    view.directory.known_cluster_id()
    if kind == "store":
        view.directory.store_file()
        view.notes.add(*foreign_folders(view), *own_file_findings(view.fs, *view.directory.roots))
    rows = [_topic(view, name, partitions) for name, partitions in topics.items()]
    return {
        "path": str(view.root if kind == "store" else next(iter(view.folders.values()))),
        "logDirs": [str(root) for root in view.directory.roots],
        "backend": BACKEND,
        "kind": kind,
        "format": BATCH_FORMAT,
        "cleanShutdown": view.clean,
        "adopted": adopted,
        "identity": _identity(view),
        "topicCount": len(rows),
        "partitionCount": len(view.folders),
        "segments": _sum(rows, "segments"),
        "sizeBytes": _sum(rows, "sizeBytes"),
        "topics": rows,
        "metadataLogs": [folder.name for folder in view.directory.metadata_dirs()],
        "recovery": _recovery(view),
        "findings": findings(view.findings()),
    }


def findings(found: Iterable[Finding]) -> list[Row]:
    """Convert findings to rows."""
    return [msgspec.to_builtins(finding) for finding in found]


def _identity(view: View) -> Mapping[str, str]:
    path = view.directory.root_file(names.META_PROPERTIES)
    if not view.fs.exists(path):
        return {}
    try:
        return properties.decode_properties(view.fs.read_bytes(path))
    except DataError:
        return {}


def _topic(view: View, name: str, partitions: Sequence[Row]) -> Row:
    folder = view.folders[TopicPartition(name, partitions[0]["partition"])]
    return {
        "topic": name,
        "topicId": view.directory.topic_id(folder),
        "internal": name.startswith("__"),
        "configs": dict(view.configs_of(name)),
        "segments": _sum(partitions, "segments"),
        "sizeBytes": _sum(partitions, "sizeBytes"),
        "partitions": partitions,
    }


def _partition(view: View, address: TopicPartition) -> Row:
    partition = view.partition(address)
    start, stable, end = partition.bounds()
    parts = view.logs(address)
    plan = view.plan(address)
    view.notes.add(*transaction_findings(plan, view.clock()))
    view.note_missing_segments(address)
    return {
        "partition": address.partition,
        "earliest": start,
        "latest": end,
        "latestReadCommitted": stable,
        "firstTimestamp": _first_timestamp(view, parts, start),
        "maxTimestamp": _latest_time(view, address),
        "leaderEpoch": plan.epochs.latest,
        "producers": len(plan.producers),
        "openTransactions": [_transaction(entry) for entry in open_transactions(plan)],
        "state": view.state_of(address),
        "segments": len(parts),
        "sizeBytes": sum(log.size_bytes for log in parts),
    }


def _transaction(entry: ProducerEntry) -> Row:
    return {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "firstOffset": entry.current_txn_first_offset,
        "lastTimestamp": entry.timestamp_ms,
    }


def _first_timestamp(view: View, parts: Sequence[Log], start: int) -> int | None:
    """Return the time of the first record that can be read."""
    for log in parts:
        for batch in view.reader.batches(log):
            if batch.header.is_control or batch.header.next_offset <= start:
                continue
            for record in view.reader.records(batch, log):
                if record[0] >= start:
                    return record[1]
    return None


def _latest_time(view: View, address: TopicPartition) -> Row | None:
    """Return the first record with the largest time; if its segment is damaged, the time alone."""
    partition = view.partition(address)
    try:
        latest = partition.newest_time()
    except DataError:
        largest_ms = max(s.builder.max_timestamp_ms for s in partition.segments())
        return {"offset": None, "timestamp": largest_ms, "leaderEpoch": None}
    if latest is None:
        return None
    return {
        "offset": latest.offset,
        "timestamp": latest.timestamp_ms,
        "leaderEpoch": latest.leader_epoch,
    }


def _recovery(view: View) -> Row:
    """Return the actions that the next start would take."""
    plans = view.plans.values()
    return {
        "segmentsScanned": sum(plan.segments_scanned for plan in plans),
        "indexesRebuilt": sum(s.indexes is not None for plan in plans for s in plan.segments),
        "refused": any(plan.refusal is not None for plan in plans),
        "cut": [msgspec.to_builtins(loss) for plan in plans for loss in plan.losses],
    }


def _sum(rows: Iterable[Row], field: str) -> Any:
    return sum(row[field] for row in rows)


# ---- transactions --------------------------------------------------------------------------------


def open_transactions(plan: PartitionPlan) -> Sequence[ProducerEntry]:
    """Return the producers with an open transaction, by the transaction's first offset."""
    entries = (e for e in plan.producers.entries() if e.current_txn_first_offset >= 0)
    return sorted(entries, key=lambda entry: entry.current_txn_first_offset)


def transaction_findings(plan: PartitionPlan, now_ms: int) -> Iterator[Finding]:
    """Yield a finding for each open transaction of a partition: producer, epoch, first offset and age."""
    for entry in open_transactions(plan):
        age_ms = now_ms - entry.timestamp_ms
        hangs = age_ms > MAX_TIMEOUT_MS + GRACE_MS
        yield plan.finding(
            "hanging-transaction",
            severity="warning" if hangs else "info",
            offset=entry.current_txn_first_offset,
            found=f"producer {entry.producer_id}, epoch {entry.epoch}",
            message=(
                f"producer {entry.producer_id}, epoch {entry.epoch}: a transaction is open from offset "
                f"{entry.current_txn_first_offset} on, its last record is {_age_text(age_ms)} old; "
                "read_committed readers stop there"
            ),
        )


def _age_text(age_ms: int) -> str:
    """Return an age in the largest unit that fits, so that two checks soon after each other print the same text."""
    for unit_ms, unit in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")):
        count = age_ms // unit_ms
        if count > 0:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a minute"
