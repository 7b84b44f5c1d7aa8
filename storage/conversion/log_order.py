"""The order of a new RocketMQ log: by time, then by partition; the order within a partition stays.

Owns the conversion of a partition's records to a queue, and the merge of the queues into the log; must not read
a store.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from storage.conversion.counters import MOVED, Fates
from storage.conversion.mapping import to_rocketmq
from storage.conversion.records import KafkaRecord, QueuedMessage
from storage.conversion.request import Order, Selection
from storage.conversion.rocketmq_writer import LogWriter, check_size
from storage.errors import UnrepresentableRecord
from storage.model import Finding, TopicPartition


class OrderKey(NamedTuple):
    """A record's position in the order of the new log."""

    time_ms: int
    number: int  # number of the partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQueue:
    """The queue of a partition: its `number` in the order of the log, and the topic's `name` in the target."""

    number: int
    source: TopicPartition
    name: str
    encode: bool
    file_bytes: int

    def messages(
        self, records: Iterable[KafkaRecord], fates: Fates, *, latest_ms: int = 0, next_offset: int
    ) -> Iterator[tuple[OrderKey, QueuedMessage]]:
        """Convert the records from `next_offset` of the queue on. Records that a message cannot keep are left out.

        A message's time in the order is the maximum of its own time, `latest_ms`, and all earlier times.
        """
        for record in records:
            try:
                queued, problems = to_rocketmq(record, least_store_ms=latest_ms, encode=self.encode)
                check_size(self.name, queued, self.file_bytes)
            except UnrepresentableRecord as error:
                field = str(error.facts().get("field", ""))
                fates.left_out.add(self.source, record.offset, field, error.message)
                continue
            for problem in problems:
                fates.encoded.add(self.source, record.offset, problem.field, problem.problem)
            latest_ms = max(latest_ms, queued.store_timestamp_ms)
            place = OrderKey(latest_ms, self.number, record.offset)
            yield place, queued._replace(offset=next_offset)
            next_offset += 1


def target_queues(order: Order, selection: Selection, file_bytes: int) -> Sequence[TargetQueue]:
    """Return the queues of the selected partitions."""
    return [
        TargetQueue(
            number=number,
            source=address,
            name=selection.names[address.topic],
            encode=order.encode,
            file_bytes=file_bytes,
        )
        for number, address in enumerate(selection.addresses())
    ]


QueuedRecord: TypeAlias = tuple[OrderKey, TargetQueue, QueuedMessage]


@dataclass(slots=True)
class Written:
    """The written records, by partition of the source; `ends` are next offsets in the target."""

    counts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    fates: Fates = field(default_factory=Fates)
    findings: list[Finding] = field(default_factory=list)

    def take(self, later: Written) -> None:
        """Add what was written after this."""
        for address, count in later.counts.items():
            self.counts[address] = self.counts.get(address, 0) + count
        self.ends |= later.ends
        self.fates.take(later.fates)
        self.findings += later.findings


def write_merged(
    writer: LogWriter, queues: Sequence[Iterator[QueuedRecord]], written: Written
) -> None:
    """Write the messages of all queues in the order of the log, and count them."""
    for place, queue, queued in heapq.merge(*queues):  # no two places are equal
        source = queue.source
        writer.add(source._replace(topic=queue.name), queued)
        written.counts[source] = written.counts.get(source, 0) + 1
        written.ends[source] = queued.offset + 1
        if place.offset != queued.offset:
            written.fates.moved.add(source, place.offset, "offset", MOVED)
