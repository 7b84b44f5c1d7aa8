"""Verification of one log range: every record, and the queue and index entries that refer to it.

Owns the one walk that compares records, queue entries and index entries; must not know other ranges. At the
start of a range, queues and index are in a certain state. A part without that state guesses it from the queue
and index entries, and returns the guess:

    log      |  range 1    |  range 2    |  range 3    |
    queue    |u u u u|u u u u u|u u u|             the first queue entry that leads into the range
    index    |e e e e e e e|e e e e e|e e e|       the first index entry that leads into the range

In an undamaged store every guess is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.model import Finding
from storage.rocketmq.index.dispatch_request import Dispatch, dispatch_of
from storage.rocketmq.index.light_queues import of_message
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.filler_records import is_blank
from storage.rocketmq.recovery.losses import refused_record
from storage.rocketmq.recovery.store_files import StoreFiles
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.tools.log_tasks import RangeTask, Reached, reached_by, resume
from storage.rocketmq.tools.log_walk import LogWalk, Placed
from storage.rocketmq.tools.snapshot import StoreSnapshot
from storage.rocketmq.tools.verify.index import IndexCheck, IndexPlace, guessed_place
from storage.rocketmq.tools.verify.queues import (
    Key,
    QueueChecks,
    QueueState,
    Range,
    at_first,
    guessed,
)
from storage.rocketmq.tools.verify.record_check import RecordCheck, is_left_out, note_tail
from storage.shared.diagnostics import Meter, Notes, Tallies


@dataclass(slots=True, kw_only=True)
class RangeResult:
    """The result of a range; see log_tasks.Result. `end` is the position after its last record. `began` and `reached`
    hold the states of the queues that were met, and of the index.
    """

    goes_on_at: int | None
    end: int
    looked_back: bool
    began: Mapping[Key, QueueState]
    index_began: IndexPlace
    reached: Reached
    notes: Sequence[Finding]
    tallies: Tallies
    early: Tallies
    keys_met: bool
    tags_met: bool
    unmatched: Mapping[Key, Sequence[Range]]
    first_missing: int | None
    latest_ms: int
    counts: Mapping[int, list[int]]  # log files by base: [records, bytes]


def check_range(
    snapshot: StoreSnapshot, part: RangeTask, meter: Meter | None = None
) -> RangeResult:
    """Check one range. Memory: some windows of the log, queue entries and index entries, whatever its length."""
    with snapshot.opened() as opened:
        return _LogRange(snapshot, part, opened, meter or Meter()).run()


class _LogRange:
    """One walk over a range, together with the queues and index derived from the log."""

    def __init__(
        self, snapshot: StoreSnapshot, part: RangeTask, opened: StoreFiles, meter: Meter
    ) -> None:
        self._snapshot = snapshot
        self._part = part
        self._opened = opened
        self._notes = Notes()
        self._tallies = Tallies()
        self._counts: dict[int, list[int]] = {}
        self._walk = self._new_walk(meter)
        surroundings = snapshot.surroundings(opened.run, self._walk.damaged_between)
        self._queues = QueueChecks(opened.queues, self._tallies, surroundings, self._queue_state)
        self._lives = TopicIncarnations(opened.run, opened.queues, snapshot.deleted)
        self._records = RecordCheck(self._walk, self._tallies)
        self._place = self._index_place()
        self._index = IndexCheck(
            opened.index_files,
            surroundings,
            self._place,
            directory=snapshot.index_directory,
        )

    def _new_walk(self, meter: Meter) -> LogWalk:
        part, run = self._part, self._opened.run
        walk = LogWalk(
            run,
            self._opened.queues,
            self._notes,
            start=part.start,
            end=run.limit,
            until=part.until,
            meter=meter,
            origin=run.start,
            clean=self._snapshot.clean,
        )
        self._known_gaps = resume(walk, part)
        return walk

    def _queue_state(self, queue: Queue) -> QueueState:
        known, run = self._part.reached, self._opened.run
        if known is None:
            return guessed(queue, self._part.start, log_start=run.start)
        return known.queues.get(queue.partition, at_first(queue))

    def _index_place(self) -> IndexPlace:
        known = self._part.reached
        if known is not None:
            return known.index
        return guessed_place(self._opened.index_files, self._part.start)

    def run(self) -> RangeResult:
        """Check the range."""
        walk = self._walk
        for placed in walk.records():
            self._records.meet(placed)
            self._derived(placed)
            self._count(placed)
        note_tail(walk, self._notes)
        index = self._index
        index.tallies.merge(self._tallies)
        reached = reached_by(walk, self._known_gaps)
        reached.queues, reached.index = self._queues.ended(), index.place
        return RangeResult(
            goes_on_at=walk.goes_on_at,
            end=walk.position,
            looked_back=walk.looked_back,
            began=self._queues.began,
            index_began=self._place,
            reached=reached,
            notes=self._notes.all(),
            tallies=index.tallies,
            early=index.early,
            keys_met=index.keys_met,
            tags_met=index.tags_met,
            unmatched=self._queues.unmatched(),
            first_missing=self._queues.first_missing,
            latest_ms=self._records.latest_ms,
            counts=self._counts,
        )

    def _derived(self, placed: Placed) -> None:
        """Compare the entries expected for a record with the entries in queues and index."""
        snapshot, at, message = self._snapshot, placed.physical_offset, placed.message
        if is_blank(message.topic, message.sys_flag):  # a bad place that a salvage filled
            self._walk.gaps.append((at, at + message.size))
        deleted = snapshot.deleted.holds(message.topic, at)
        dispatch = dispatch_of(
            message, at, with_tags=snapshot.index_tags, delays_ms=snapshot.delays_ms
        )
        if is_left_out(message):
            self._notes.add(refused_record(self._opened.run, dispatch))
        if dispatch.is_queued and not deleted:
            deleted = self._is_earlier(dispatch)
            elsewhere = snapshot.queues_in_database or dispatch.topic in snapshot.batch_topics
            if not deleted and not elsewhere:
                self._queues.meet(dispatch)
        for in_lmq in snapshot.live(of_message(message, at, self._opened.queues)):
            self._queues.meet(in_lmq)
        if snapshot.index_paths is not None:
            self._index.meet(dispatch, deleted=deleted)

    def _is_earlier(self, dispatch: Dispatch) -> bool:
        """Return whether a record belongs to an earlier topic of the same name; report it if so."""
        topic, queue_id, offset, at, *_ = dispatch
        if not self._lives.is_earlier((topic, queue_id), offset, at):
            return False
        self._tallies.add(
            self._walk.finding(
                "earlier-topic",
                "info",
                at,
                "the record belongs to a deleted topic that was created again: the new queue begins after it",
                topic=topic,
                partition=queue_id,
                offset=offset,
            )
        )
        return True

    def _count(self, placed: Placed) -> None:
        file_bytes = self._snapshot.sizes.commit_log_bytes
        count = self._counts.setdefault(placed.physical_offset // file_bytes * file_bytes, [0, 0])
        count[0] += 1
        count[1] += placed.message.size
