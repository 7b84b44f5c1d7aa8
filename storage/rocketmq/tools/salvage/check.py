"""Check that readers of a salvaged store get every record named by the source: by its queue entries and repeated
offsets.

Owns that comparison, after the new store was built; must not write. An entry of the source names an offset. If the new
store has no record at that offset, and no known loss includes it, it is a loss. No checksum detects a wrong queue,
queue offset or topic in a record.

    source entries   | 0 | 1 | 2 | 3 |      new store   | . | 1 | . | 3 |      losses   0, 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from storage.errors import Corrupt, IoFailure, UnknownPartition, UnknownTopic
from storage.findings import finding
from storage.model import Finding, Loss, TopicPartition
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.recovery.evidence import lost_head_findings
from storage.rocketmq.recovery.losses import new_loss
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.tools.salvage.survey import MISSING, Survey
from storage.rocketmq.tools.unrecovered import UnrecoveredFiles
from storage.shared.diagnostics import Tallies
from storage.shared.loss_report import by_partition, is_reported, reported_ranges


class _Missing(NamedTuple):
    """An offset without a record in the new store, and the position and size of its record in the source."""

    offset: int
    physical_offset: int
    size: int


class SalvageCheck:
    """The comparison of one new store with its source. Call `run` before any other method."""

    def __init__(self, survey: Survey, store: RocketMQStore) -> None:
        self._survey = survey
        self._source = survey.source
        self._store = store
        self._begin = _first_named(self._source)
        self._tallies = Tallies()
        self.losses: list[Loss] = []

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings for records with another topic, queue or offset than the entry that leads to them."""
        return self._tallies.all()

    def run(self, losses: Sequence[Loss]) -> SalvageCheck:
        """Compare both stores. `losses` are the known losses."""
        by_queue = by_partition(losses)
        known = {queue.partition: queue for queue in self._source.queues}
        repeated = self._survey.repeated
        for address in sorted({*known, *(TopicPartition(*key) for key in repeated)}):
            if is_lmq(address.topic) or address.topic in self._source.queues.batch_topics:
                continue
            reported = reported_ranges(by_queue.get(address, ()))
            found = self._missing(
                address, known.get(address), repeated.get((address.topic, address.partition), {})
            )
            for item in found:
                self._compare(address, item)
            lost = [
                item for item in found if not is_reported(reported, item.offset, item.offset + 1)
            ]
            self._take(address, lost)
        return self

    def _missing(
        self, address: TopicPartition, queue: Queue | None, repeated: Mapping[int, tuple[int, int]]
    ) -> Sequence[_Missing]:
        """Return the named offsets of one queue without a record in the new store, in order."""
        served = self._served(address)
        found = {
            offset: _Missing(offset, *place)
            for offset, place in repeated.items()
            if offset not in served
        }
        for item in () if queue is None else self._named(queue):
            if item.offset not in served:
                found[item.offset] = item
        return [found[offset] for offset in sorted(found)]

    def _named(self, queue: Queue) -> Iterator[_Missing]:
        """Yield the offsets and positions in the entries of a source queue."""
        units, deleted = queue.units, self._source.deleted
        try:
            for offset, unit in units.entries(units.first_offset, units.end):
                at = unit.physical_offset
                if (
                    unit.is_valid
                    and not unit.is_filler
                    and at >= self._begin
                    and not deleted.holds(queue.partition.topic, at)
                ):
                    yield _Missing(offset, at, unit.size)
        except (Corrupt, IoFailure):
            return  # a file of the queue is missing or unreadable, which has its own finding

    def _served(self, address: TopicPartition) -> set[int]:
        """Return the offsets that have a record in the new store."""
        try:
            queue = self._store.queue(address)
        except (UnknownTopic, UnknownPartition):
            return set()
        log, bounds = self._store.log, queue.bounds()
        return {
            offset
            for offset, unit in queue.units.entries(bounds.start, bounds.end)
            if unit.is_valid and not unit.is_filler and log.start <= unit.physical_offset < log.end
        }

    def _take(self, address: TopicPartition, missing: Sequence[_Missing]) -> None:
        """Add the losses of one queue. Consecutive offsets are one loss."""
        first = 0
        for at, item in enumerate(missing):
            if at + 1 == len(missing) or missing[at + 1].offset != item.offset + 1:
                self._lose(address, missing[first], item.offset + 1)
                first = at + 1

    def _lose(self, address: TopicPartition, item: _Missing, next_offset: int) -> None:
        run = self._source.run
        base = item.physical_offset - item.physical_offset % run.file_bytes
        self.losses.append(
            new_loss(
                run.path(base),
                item.physical_offset - base,
                0,
                MISSING,
                queue=address,
                offsets=(item.offset, next_offset),
            )
        )

    def _compare(self, address: TopicPartition, item: _Missing) -> None:
        """Report a record of the same size at an entry's position, if it has another address than the entry."""
        run = self._source.run
        message = record_at(run, item.physical_offset)
        if message is None or message.size != item.size:
            return
        of_record = f"{message.topic}-{message.queue_id} offset {message.queue_offset}"
        wanted = f"{address.topic}-{address.partition} offset {item.offset}"
        if of_record == wanted:
            return
        base = item.physical_offset - item.physical_offset % run.file_bytes
        self._tallies.add(
            finding(
                "suspect-header",
                run.path(base),
                severity="error",
                position=item.physical_offset - base,
                topic=address.topic,
                partition=address.partition,
                offset=item.offset,
                expected=wanted,
                found=of_record,
                message=f"the record says {of_record}; the queue entry of {wanted} leads to it. The new store has it "
                "as the record says",
            )
        )


def _first_named(source: UnrecoveredFiles) -> int:
    """Return the first physical offset at which entries name records. Retention deleted the records before the log
    start, unless log files are proved to be missing there.
    """
    head = lost_head_findings(source.run, source.queues, clean=source.clean)
    return 0 if any(head) else source.start
