"""Offsets that are missing between two good batches of a log.

Owns the rule which offsets count as missing; these do not: offsets that compaction removed, offsets that a salvage or a
start reported, offsets in a damaged range (it has its own finding). Must not report a hole before it is known whether
the log was compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage.kafka.format import names
from storage.kafka.log.log_file import Gap, StoredBatch
from storage.kafka.recovery.segment_gaps import gap_finding, is_compacted, segments_without_log
from storage.kafka.tools.logs import Log
from storage.kafka.tools.view import View
from storage.model import Finding, TopicPartition
from storage.shared.loss_report import is_reported, reported_ranges


class HoleWatch:
    """A reader of a partition's batches in order, as LogReader, that also finds holes between them."""

    def __init__(self, view: View, address: TopicPartition) -> None:
        self._view = view
        self._address = address
        self._left_behind = left_behind(view, address)
        self._is_compacted = address in view.checkpoints[names.CLEANER_OFFSETS]
        self._next_offset: int | None = None
        self._holes: list[Finding] = []

    def items(self, log: Log) -> Iterator[StoredBatch | Gap]:
        """Yield every good batch of the next log, and the damaged ranges between them."""
        for item in self._view.reader.items(log):
            self._meet(log, item)
            yield item

    def batches(self, log: Log) -> Iterator[StoredBatch]:
        """Yield every good batch of the next log."""
        return (item for item in self.items(log) if isinstance(item, StoredBatch))

    def _meet(self, log: Log, item: StoredBatch | Gap) -> None:
        if isinstance(item, Gap):
            self._next_offset = None
            return
        header, expected = item.header, self._next_offset
        found = header.base_offset
        if (
            expected is not None
            and found > expected
            and not is_reported(self._left_behind, expected, found)
        ):
            self._holes.append(hole(log, item.position, expected=expected, found=found))
        if is_compacted(item):
            self._is_compacted = True
        self._next_offset = header.next_offset

    def finish(self) -> None:
        """Note the findings that depend on all logs: holes, or for a compacted log the segments without a log."""
        view, plan = self._view, self._view.plan(self._address)
        if self._is_compacted:
            view.notes.add(*segments_without_log(view.fs, view.files, plan))
        else:
            view.notes.add(*self._holes)


def hole(log: Log, position: int, *, expected: int, found: int) -> Finding:
    """Return the finding for offsets missing before a batch; an error if a whole segment is lost, else a warning."""
    return gap_finding(
        log.path,
        (log.topic, log.partition),
        expected,
        found,
        position=position,
        severity="error" if log.base_offset > expected else "warning",
    )


def left_behind(view: View, address: TopicPartition) -> Sequence[range]:
    """Return the offsets that a salvage or an earlier start reported as lost, in ranges."""
    return reported_ranges(view.known_losses.get(address, ()))
