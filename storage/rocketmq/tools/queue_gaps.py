"""Records of a queue with offsets that are not consecutive, or that differ from their entries.

Owns the rule for missing records. Not missing are: records that retention deleted before the first record, losses that
a salvage or a start reported, and a damaged record that has a finding with its offset. Also owns the decision which of
two offsets is in doubt; must not read the log:

    offset in the record minus number of the entry      finding
    0 0 0 2 2 2                                         offset-gap: two records are missing
    0 0 0 2 0 0, 0 0 0 -1 0 0, 5 0 0 0                  unit-offset-differs: the one record has a wrong offset
    0 0 0 -1 -1 -1                                      unit-offset-differs, one for all of them
    0 0 0 2 (the end)                                   both: it cannot be decided
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from storage.findings import RecordFacts, finding
from storage.model import Finding, Loss, TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue
from storage.shared.loss_report import is_reported, reported_ranges


class GapWatch:
    """A check of offsets that receives the records of a queue in order. `findings` returns the wrong offsets."""

    def __init__(self, queue: Queue, known_losses: Mapping[TopicPartition, Sequence[Loss]]) -> None:
        self._found: list[Finding] = []
        self._queue = queue
        self._reported = reported_ranges(known_losses.get(queue.partition, ()))
        self._in_entries = is_lmq(queue.partition.topic)  # its records store another offset
        self._next_offset: int | None = None
        self._shift: int | None = None  # offset minus entry of the previous records
        self._explained = 0  # the shift caused by missing records
        self._doubted: tuple[int, int] | None = (
            None  # entry and offset of a record with another shift
        )
        self._damaged = 0  # damaged records after the doubted record
        self._run: tuple[int, int, int] | None = (
            None  # differing records: first entry, shift, count
        )

    def meet(self, entry: int, message: Message) -> None:
        """Check a record, given the number of the entry that leads to it.

        The record's own offset counts: a real store that rebuilds a queue leaves no entry free for a lost record.
        """
        offset = entry if self._in_entries else message.queue_offset
        shift = offset - entry
        if self._doubted is not None and self._shift is not None:
            doubted = self._doubted[1] - self._doubted[0]
            is_single = shift == self._shift or self._shift < doubted > shift
            self._settle(is_single=is_single)
        if self._shift is None or shift == self._shift:
            self._shift = shift
            self._take(entry, offset)
        else:
            self._doubted = entry, offset

    def meet_damaged(self, *, is_named: bool) -> None:
        """Note an entry whose record cannot be read. `is_named`: the record's finding has the offset."""
        if is_named and self._doubted is not None:
            self._damaged += 1
        elif is_named and self._next_offset is not None:
            self._next_offset += 1

    def findings(self) -> Sequence[Finding]:
        """Return the findings. Call it after the last record."""
        if self._doubted is not None:
            entry, offset = self._doubted
            self._note_differing(entry, offset - entry)
            self._settle(is_single=False)
        self._end_run()
        return self._found

    def _settle(self, *, is_single: bool) -> None:
        """Judge the record with another shift. `is_single`: the next record does not continue its shift."""
        assert self._doubted is not None
        assert self._shift is not None
        entry, offset = self._doubted
        self._doubted = None
        if is_single:
            self._note_differing(entry, offset - entry)
            offset = entry + self._shift
        else:
            self._shift = offset - entry
        self._take(entry, offset, is_single=is_single)
        if self._next_offset is not None:
            self._next_offset += self._damaged
        self._damaged = 0

    def _take(self, entry: int, offset: int, *, is_single: bool = False) -> None:
        """Record an offset. A gap before it explains its shift, and the shift of the following records."""
        expected = self._next_offset
        if expected is not None and offset > expected:
            self._explained = offset - entry
            if not is_reported(self._reported, expected, offset):
                self._found.append(self._gap(entry, expected, offset))
        if not is_single and offset - entry not in (0, self._explained):
            self._note_differing(entry, offset - entry)
        if offset - entry < self._explained:
            offset = entry + self._explained  # same shift: no record is missing
        self._next_offset = offset + 1 if expected is None else max(expected, offset + 1)

    def _note_differing(self, entry: int, shift: int) -> None:
        """Count a record whose offset matches no entry near it. Consecutive records with the same shift get one
        finding.
        """
        if self._run is not None and self._run[1] == shift:
            first, _, count = self._run
            self._run = first, shift, count + 1
        else:
            self._end_run()
            self._run = entry, shift, 1

    def _end_run(self) -> None:
        if self._run is None:
            return
        entry, shift, count = self._run
        self._run = None
        more = f"; {count - 1} more records after it differ by as much" if count > 1 else ""
        what = f"the record of entry {entry} says that its offset is {entry + shift}{more}"
        self._found.append(
            self._finding(
                "unit-offset-differs",
                entry,
                what,
                offset=entry,
                expected=f"offset {entry}",
                found=f"offset {entry + shift}",
            )
        )

    def _gap(self, entry: int, expected: int, found: int) -> Finding:
        return self._finding(
            "offset-gap",
            entry,
            f"{found - expected} offsets are missing: {expected} to {found - 1}",
            offset=expected,
            expected=f"offset {expected}",
            found=f"offset {found}",
        )

    def _finding(
        self, code: str, entry: int, message: str, **facts: Unpack[RecordFacts]
    ) -> Finding:
        path, position = self._queue.units.run.place_of(entry * UNIT_SIZE)
        facts["topic"], facts["partition"] = self._queue.partition
        return finding(
            code,
            path,
            severity="warning",
            position=position,
            message=message,
            **facts,
        )
