"""What a start will do to a store: decided by recovery, carried out by repair.

Owns the shape of that plan only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.model import Finding, Loss, ProducerSequence
from storage.rocketmq.evidence import NOTHING_LOST, LostOffsets, LostPositions
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.message import Message
from storage.rocketmq.queues import QueueTable


class SequencedAppend(NamedTuple):
    """An append of a producer that the walk met: which queue, and what its first record says."""

    topic: str
    queue_id: int
    producer: ProducerSequence
    records: int
    base_offset: int
    store_timestamp_ms: int


class Damage(NamedTuple):
    """A bad place of the log. `next_good`: where good records go on behind it, None where none do."""

    position: int
    next_good: int | None
    reason: str


class OpenAppend(NamedTuple):
    """A sequenced append in the walk: where it begins, how many of its records are to come, and where
    the record before it begins (-1: not in the walk).
    """

    append: SequencedAppend
    position: int
    left: int
    before: int

    def following(self, message: Message) -> OpenAppend | None:
        """With the next record of the log; None when that is not the append's."""
        append = self.append
        same = (message.topic, message.queue_id) == (append.topic, append.queue_id)
        if not same or message.store_timestamp_ms != append.store_timestamp_ms:
            return None
        return self._replace(left=self.left - 1)


@dataclass(slots=True, kw_only=True)
class StorePlan:
    """One start. Physical offsets; `queues` has the queues as they are before the plan is carried out."""

    run: FileRun
    queues: QueueTable
    log_end: int
    data_end: int  # behind the last byte that is not zero; what is from log_end on will be cut
    accepted_from: int  # the log was read from here on
    last_record: tuple[int, Message] | None  # (physical offset, record) of the last that was walked
    distrusted_from: int | None  # units of records from here on may not be on disk; None: all are
    queue_ends: Mapping[tuple[str, int], int]  # offsets, where a queue is to be cut
    broken_queues: Sequence[tuple[str, int]]  # to be made anew: files are missing, or are none
    build_queues_from: int | None  # None: every record has its unit
    build_index_from: int | None
    index_border_again: bool  # index the record at the border once more, as the reference does
    doomed_index_files: Sequence[str]
    doubtful_index_files: Sequence[str]  # kept, though they may not be whole
    index_is_lost: bool  # what is left of index files that cannot be read is removed
    keys_beside: list[tuple[int, int]] = field(
        default_factory=list
    )  # see index_coverage.key_beside
    sequenced: Sequence[SequencedAppend] = ()
    damages: Sequence[Damage] = ()
    lost: LostPositions = NOTHING_LOST  # what names records behind the end of the log
    lost_offsets: Sequence[LostOffsets] = ()  # queues that end before an offset that was used
    go_on_at: int | None = None  # loss is accepted: the log goes on in a new file that begins here
    passed_gaps: Sequence[
        tuple[int, int]
    ] = ()  # [start, end) of the log without files, accepted as lost
    findings: list[Finding] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    refusal: Finding | None = None
    bytes_scanned: int = 0
