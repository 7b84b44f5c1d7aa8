"""Transactions that are open at the end of a partition, and which of them hang.

Owns the rule of `kafka-transactions find-hanging`. A transaction hangs when its producer's last record is older than
the longest timeout of a transaction (`transaction.max.timeout.ms`, 15 minutes) plus 5 minutes of grace. The age is this
machine's clock minus the record's timestamp, because a log without new records does not age by itself. Must not read
logs: recovery knows the producers at the log's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from storage.findings import finding
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.log.plan import PartitionPlan
from storage.model import Finding

MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
GRACE_MS: Final = 5 * 60 * 1000


def open_transactions(plan: PartitionPlan) -> Sequence[ProducerEntry]:
    """Return the producers with an open transaction, by the transaction's first offset."""
    entries = (e for e in plan.producers.entries() if e.current_txn_first_offset >= 0)
    return sorted(entries, key=lambda entry: entry.current_txn_first_offset)


def transaction_findings(plan: PartitionPlan, now_ms: int) -> Iterator[Finding]:
    """Yield a finding for each open transaction of a partition: producer, epoch, first offset and age."""
    for entry in open_transactions(plan):
        age_ms = now_ms - entry.timestamp_ms
        hangs = age_ms > MAX_TIMEOUT_MS + GRACE_MS
        yield finding(
            "hanging-transaction",
            plan.directory,
            severity="warning" if hangs else "info",
            topic=plan.partition.topic,
            partition=plan.partition.partition,
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
