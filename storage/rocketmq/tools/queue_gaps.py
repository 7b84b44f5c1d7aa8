"""Offsets that are missing between two records of a queue.

Owns what counts as missing: neither what retention deleted before the first record, nor what a salvage or a start
reported, nor a damaged record that has a finding with its offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.findings import finding
from storage.kept import is_reported, reported_ranges
from storage.model import Finding, Loss, TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_unit import UNIT_SIZE
from storage.rocketmq.lmq import is_lmq
from storage.rocketmq.queues import Queue


class GapWatch:
    """Is shown the records of a queue in order, and collects the gaps between their offsets."""

    def __init__(self, queue: Queue, known_losses: Mapping[TopicPartition, Sequence[Loss]]) -> None:
        self.gaps: list[Finding] = []
        self._queue = queue
        self._reported = reported_ranges(known_losses.get(queue.partition, ()))
        self._in_entries = is_lmq(queue.partition.topic)  # a record has the offset of its own queue
        self._next_offset: int | None = None

    def meet(self, entry: int, message: Message) -> None:
        """A record, and the number of the entry that leads to it.

        The record's own offset counts: a real store that rebuilds a queue leaves no entry free for a lost record.
        """
        found = entry if self._in_entries else message.queue_offset
        expected = self._next_offset
        if (
            expected is not None
            and found > expected
            and not is_reported(self._reported, expected, found)
        ):
            self.gaps.append(self._gap(entry, expected, found))
        self._next_offset = found + 1 if expected is None else max(expected, found + 1)

    def meet_damaged(self, *, is_named: bool) -> None:
        """An entry of a record that cannot be read; `is_named`: its finding tells the offset."""
        if is_named and self._next_offset is not None:
            self._next_offset += 1

    def _gap(self, entry: int, expected: int, found: int) -> Finding:
        run, position = self._queue.units.run, entry * UNIT_SIZE
        base = run.base_of(position)
        topic, partition = self._queue.partition
        return finding(
            "offset-gap",
            run.directory if base is None else run.path(base),
            severity="warning",
            position=position - (base or 0),
            topic=topic,
            partition=partition,
            offset=expected,
            expected=f"offset {expected}",
            found=f"offset {found}",
            message=f"{found - expected} offsets are missing: {expected} to {found - 1}",
        )
