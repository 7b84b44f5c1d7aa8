"""Plan of a start: what it will do to a store. Recovery decides it, and repair carries it out.

Owns the shape of that plan; must not decide or write anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.model import Finding, Loss, ProducerSequence
from storage.rocketmq.format.message import Message
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery.evidence import NOTHING_LOST, LostOffsets, LostPositions


class SequencedAppend(NamedTuple):
    """An append with a producer sequence, met by the walk: its queue and the fields of its first record."""

    topic: str
    queue_id: int
    producer: ProducerSequence
    records: int
    base_offset: int
    store_timestamp_ms: int


class Damage(NamedTuple):
    """A bad place of the log. `next_good`: where good records continue after it; None if there are none."""

    position: int
    next_good: int | None
    reason: str


class OpenAppend(NamedTuple):
    """A sequenced append that the walk has not finished.

    It holds where the append begins, how many of its records are still to come, and where the record before it begins
    (-1: not in the walk).
    """

    append: SequencedAppend
    position: int
    left: int
    before: int

    def following(self, message: Message) -> OpenAppend | None:
        """Return the append after the next record of the log; None if that record is not part of it."""
        append = self.append
        same = (message.topic, message.queue_id) == (append.topic, append.queue_id)
        if not same or message.store_timestamp_ms != append.store_timestamp_ms:
            return None
        return self._replace(left=self.left - 1)


@dataclass(slots=True, kw_only=True)
class StorePlan:
    """The plan of one start. Positions are physical offsets. `queues`: the queues before the plan is carried out."""

    run: FileSequence
    queues: QueueTable
    log_end: int
    data_end: int  # after the last byte that is not zero; the bytes from log_end on are cut
    accepted_from: int  # the log was read from here
    last_record: tuple[int, Message] | None  # last walked: (physical offset, record)
    distrusted_from: int | None  # entries of records from here on may not be on disk; None: all are
    queue_ends: Mapping[tuple[str, int], int]  # offsets at which queues are cut
    broken_queues: Sequence[tuple[str, int]]  # to be rebuilt: files are missing or wrong
    build_queues_from: int | None  # None: every record has its entry
    build_index_from: int | None
    index_border_again: bool  # index the record at the border again, as the reference does
    doomed_index_files: Sequence[str]
    doubtful_index_files: Sequence[str]  # kept, though they may be incomplete
    index_is_lost: bool  # remove the rest of unreadable index files
    keys_beside: list[tuple[int, int]] = field(
        default_factory=list
    )  # see properties.has_key_beside
    sequenced: Sequence[SequencedAppend] = ()
    damages: Sequence[Damage] = ()
    lost: LostPositions = NOTHING_LOST  # what names records beyond the end of the log
    lost_offsets: Sequence[LostOffsets] = ()  # queues that end before an offset that was used
    go_on_at: int | None = None  # loss is accepted: the log continues in a new file at this base
    passed_gaps: Sequence[
        tuple[int, int]
    ] = ()  # [start, end) of the log without files, accepted as lost
    findings: list[Finding] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    refusal: Finding | None = None
    bytes_scanned: int = 0
