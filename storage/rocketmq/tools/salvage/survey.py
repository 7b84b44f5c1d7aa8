"""Survey of a commit log in one walk: the good records, and the losses for readers of its queues.

Owns that walk and the losses; must not write. Offsets of a queue are missing in two places: where its records skip
offsets after a bad place, and after its last record, if its entries continue.

    log    | record | record | bad place | record |      queue  offset 4 | (5 is lost) | offset 6
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import Corrupt, IoFailure, Truncated
from storage.model import Finding, Loss
from storage.rocketmq.format.message import PADDING_SIZE, Message, decode_message
from storage.rocketmq.format.suspect_fields import is_folder_name
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.filler_records import SMALLEST, is_blank
from storage.rocketmq.log.scan import LogRange
from storage.rocketmq.recovery.evidence import (
    FileBehind,
    LogEnd,
    deleted_topic_findings,
    files_behind,
    files_behind_findings,
    lost_log_finding,
    lost_offsets,
    lost_offsets_finding,
    lost_positions,
    newest_record,
)
from storage.rocketmq.recovery.losses import new_loss
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.tools.log_walk import LogWalk, Padding, Placed, why_bad
from storage.rocketmq.tools.unrecovered import UnrecoveredFiles
from storage.shared.diagnostics import Meter, Notes, Tallies

MISSING: Final = "missing"

QueueKey = tuple[str, int]


class Bad(NamedTuple):
    """A bad place [start, end) of the log, and the store time of the previous record."""

    start: int
    end: int
    time_ms: int


@dataclass(slots=True)
class QueueSurvey:
    """The survey of one queue. `met`: the number of bad places before its last record. `repeated`: records with the
    offset of another record, which get no entry.
    """

    first_offset: int
    next_offset: int
    records: int = 0
    size_bytes: int = 0
    met: int = 0
    repeated: int = 0
    has_holes: bool = False


class _Hole(NamedTuple):
    """Lost offsets of a queue, and the index of the bad place that held them; None if no such place is known."""

    queue: QueueKey
    first_offset: int
    next_offset: int
    place: int | None
    position: int


class Survey:
    """One walk over a log. Call `run` before any other method."""

    def __init__(self, source: UnrecoveredFiles, meter: Meter) -> None:
        self.source = source
        self.queues: dict[QueueKey, QueueSurvey] = {}
        self.mended: dict[int, int] = {}  # physical offset -> corrected queue offset
        self.repeated: dict[QueueKey, dict[int, tuple[int, int]]] = {}  # offset: position, size
        self.kept: list[tuple[int, int]] = []  # [start, end) of adjacent records
        self.paddings: list[tuple[int, int]] = []  # (physical offset, size)
        self.bad: list[Bad] = []
        self.records = self.kept_bytes = self.blank_bytes = 0
        self.end = source.start  # end of the good records
        self._holes: list[_Hole] = []
        self._tallies = Tallies()
        self.lives = TopicIncarnations(source.run, source.queues, source.deleted)
        self._seen = 0  # number of bad places of the walk that are in `bad`
        self._walk = LogWalk(
            source.run,
            source.queues,
            Notes(),
            start=source.start,
            end=source.end,
            meter=meter,
            clean=source.clean,
        )

    def run(self) -> Survey:
        """Walk over the log."""
        time_ms = 0
        for item in self._walk.log_ranges():
            if isinstance(item, Padding):
                self._take_gaps(time_ms)
                self.paddings.append((item.physical_offset, item.size))
                self.end = self.source.run.file_end(item.physical_offset)
                self.blank_bytes += self.end - item.physical_offset
                continue
            self._take_gaps(time_ms or self._first_time(item))
            self._take(list(self._walk.placed(item)))
            time_ms = self._walk.last_store_timestamp_ms
        self._take_tails()
        return self

    def _first_time(self, log_range: LogRange) -> int:
        return decode_message(log_range.data, 0, check_crc=False).store_timestamp_ms

    def _take_gaps(self, time_ms: int) -> None:
        for start, end in self._walk.gaps[self._seen :]:
            self.bad.append(Bad(start, end, time_ms))
        self._seen = len(self._walk.gaps)

    def _take(self, records: Sequence[Placed]) -> None:
        for record in records:
            at, end = record.physical_offset, record.physical_offset + record.message.size
            if self._is_too_near(at):
                self.bad[-1] = self.bad[-1]._replace(end=end)
                continue
            self.end = end
            if not is_folder_name(record.message.topic):  # the CRC covers the body only
                self.bad.append(Bad(at, end, record.message.store_timestamp_ms))
                continue
            if self.kept and self.kept[-1][1] == at:
                self.kept[-1] = (self.kept[-1][0], end)
            else:
                self.kept.append((at, end))
            self._count(at, record.message)

    def _is_too_near(self, at: int) -> bool:
        """Return whether the bad place before a record is too short for a blank record. Every lost record is at least
        as long as the smallest blank, so the record found there was never written as a record.
        """
        if not self.bad or self.bad[-1].end != at:
            return False
        file_bytes = self.source.run.file_bytes
        begin = max(self.bad[-1].start, at - at % file_bytes)
        return begin < at and at - begin < SMALLEST

    def _count(self, at: int, message: Message) -> None:
        topic, queue_offset, size = message.topic, message.queue_offset, message.size
        if is_blank(topic, message.sys_flag):
            self.blank_bytes += size
            return
        self.records += 1
        self.kept_bytes += size
        if topic in self.source.queues.batch_topics:
            return
        key = topic, message.queue_id
        if not message.in_queue or self.lives.are_over(key, queue_offset, at):
            return
        queue = self.queues.get(key)
        if queue is None or queue_offset != queue.next_offset:
            queue_offset = self._offset_by_entries(key, queue_offset, at, size)
        if queue is None:
            first = self._first_of(key, queue_offset)
            queue = self.queues[key] = QueueSurvey(queue_offset, first)
        if queue_offset < queue.next_offset:
            self._tallies.add(self._repeated(key, queue_offset, at))
            self.repeated.setdefault(key, {}).setdefault(queue_offset, (at, size))
            queue.repeated += 1
        elif queue_offset > queue.next_offset:
            self._miss(key, queue, queue_offset, at)
        queue.next_offset = max(queue.next_offset, queue_offset + 1)
        queue.records += 1
        queue.size_bytes += size
        queue.met = len(self.bad)

    def _offset_by_entries(self, key: QueueKey, own_offset: int, at: int, size: int) -> int:
        """Return the queue offset of a record that is out of sequence.

        It is the offset of the entry that leads to the record, if the next entry's record has the next offset.
        Otherwise it is the record's own offset: in a rebuilt queue, entries may have moved.
        """
        queue = self.source.queues.get(*key)
        if queue is None:
            return own_offset
        units, run = queue.units, self.source.run
        try:
            offset = units.first_at(at)
            if offset == own_offset or offset + 1 >= units.end:
                return own_offset
            here, following = units.read(offset, 2)
        except (
            Corrupt,
            IoFailure,
            ValueError,
        ):  # a file of the queue is missing, or ends between the two
            return own_offset
        if (here.physical_offset, here.size) != (at, size):
            return own_offset
        message = record_at(run, following.physical_offset)
        wanted = (*key, offset + 1)
        if message is None or (message.topic, message.queue_id, message.queue_offset) != wanted:
            return own_offset
        self.mended[at] = offset
        self._tallies.add(self._mended(key, own_offset, offset, at))
        return offset

    def _mended(self, key: QueueKey, own_offset: int, offset: int, at: int) -> Finding:
        topic, queue_id = key
        return self._walk.finding(
            "suspect-header",
            "error",
            at,
            f"the record says queue offset {own_offset}, its queue entry {offset}, and the next record {offset + 1}. "
            f"In the new store it has queue offset {offset}",
            topic=topic,
            partition=queue_id,
            offset=offset,
            expected=f"queue offset {offset}",
            found=f"queue offset {own_offset}",
        )

    def _repeated(self, key: QueueKey, queue_offset: int, at: int) -> Finding:
        topic, queue_id = key
        return self._walk.finding(
            "offset-repeated",
            "warning",
            at,
            "the record has the offset of another one: only the log contains it",
            topic=topic,
            partition=queue_id,
            offset=queue_offset,
        )

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings about records that are good by their CRC."""
        return self._tallies.all()

    def _first_of(self, key: QueueKey, queue_offset: int) -> int:
        """Return the first offset of a queue whose first good record has this offset."""
        if not self.bad:
            return queue_offset
        queue = self.source.queues.get(*key)
        if queue is not None and (found := self._units_from(queue)) is not None:
            return min(found[0], queue_offset)
        return queue_offset if self.source.start else 0

    def _miss(self, key: QueueKey, queue: QueueSurvey, stop: int, position: int) -> None:
        place = queue.met if queue.met < len(self.bad) else None
        self._holes.append(_Hole(key, queue.next_offset, stop, place, position))
        queue.has_holes = True

    # ---- after the last records ----------------------------------------------------------------

    def _units_from(self, queue: Queue) -> tuple[int, int] | None:
        """Return the range [first, stop) of entries that lead into the log or after its end; None if there are none."""
        units = queue.units
        try:
            first, stop = units.first_at(self.source.start), units.end
            if first >= stop or not units.unit(stop - 1).is_valid:
                return None
        except Corrupt:  # a file of the queue is missing
            return None
        return first, stop

    def _take_tails(self) -> None:
        """Add holes for entries of records lost with the end of the log, or with the whole log. LMQ queues are left
        out, because their records are lost in other queues too.
        """
        for queue in self.source.queues:
            if is_lmq(queue.partition.topic):
                continue
            key = queue.partition
            found = self._units_from(queue)
            met = self.queues.get(key)
            if found is None or queue.units.last_end <= self.source.start:
                continue
            first, stop = found
            begin = first if met is None else met.next_offset
            if stop > begin:
                passed = 0 if met is None else met.met
                place = passed if passed < len(self.bad) else None
                self._holes.append(_Hole(key, begin, stop, place, self._walk.position))

    # ---- the result ----------------------------------------------------------------------------

    @property
    def has_holes(self) -> bool:
        """Whether a queue lacks offsets before its last record."""
        return any(queue.has_holes for queue in self.queues.values())

    def losses(self) -> Sequence[Loss]:
        """Return the losses in log order. A bad place that affects no known queue is reported too."""
        by_place: dict[int | None, list[_Hole]] = {}
        for hole in self._holes:
            by_place.setdefault(hole.place, []).append(hole)
        losses = [
            self._loss(bad.start, bad.end - bad.start, hole, self._reason(bad.start))
            for number, bad in enumerate(self.bad)
            for hole in by_place.get(number, [None])
        ]
        tail = self._tail()
        for hole in self._holes:
            if hole.place is None:
                at_end = tail is not None and hole.position == self._walk.position
                start, size = tail if tail is not None and at_end else (hole.position, 0)
                losses.append(
                    self._loss(start, size, hole, self._reason(start) if size else MISSING)
                )
        if tail is not None and not any(hole.position == tail[0] for hole in self._holes):
            losses.append(self._loss(*tail, None, self._reason(tail[0])))
        losses += self._files_behind()
        return [*losses, *self._named_losses(losses)]

    def _files_behind(self) -> Iterator[Loss]:
        """Yield a loss for each file after the end of the log. After a torn record such files are part of that record's
        loss.
        """
        if self._walk.torn is None:
            for base, size_bytes in self._behind():
                yield self._loss(base, size_bytes, None, "misplaced")

    def _behind(self) -> Sequence[FileBehind]:
        """Return the files after the end of the log, but only those below the end of the source."""
        found = files_behind(self.source.run, self.end)
        return [file for file in found if file.base < self.source.end]

    def _log_end(self) -> LogEnd | None:
        """Return the end of the log, for comparison with the evidence in other files; None without evidence."""
        source, evidence = self.source, self.source.evidence
        if evidence is None:
            return None
        last = newest_record(source.run, evidence.checkpoint, self.end)
        return LogEnd(
            run=source.run,
            queues=source.queues,
            end=self.end,
            torn=self._walk.torn is not None,
            clean=source.clean,
            last=last or (self.end - 1, self._walk.last_store_timestamp_ms),
            next_offset=self._next_offset,
        )

    def _next_offset(self, topic: str, queue_id: int) -> int:
        met = self.queues.get((topic, queue_id))
        return 0 if met is None else met.next_offset

    def _named_losses(self, losses: Sequence[Loss]) -> Iterator[Loss]:
        """Yield losses known only from other files: records after the end of the log, and offsets after the end of a
        queue.
        """
        log, evidence = self._log_end(), self.source.evidence
        if log is None or evidence is None:
            return
        lost = lost_positions(evidence, log)
        if lost and not any(loss.reason == MISSING for loss in losses):
            yield self._loss(self.end, max(lost.highest + 1 - self.end, 0), None, MISSING)
        for queue in lost_offsets(evidence, log):
            if queue.certain:
                key = queue.queue.topic, queue.queue.partition
                hole = _Hole(key, queue.end, queue.used.next_offset, None, self.end)
                yield self._loss(self.end, 0, hole, MISSING)

    def evidence_findings(self) -> Iterator[Finding]:
        """Yield findings for losses that other files prove."""
        log, evidence, source = self._log_end(), self.source.evidence, self.source
        if log is None or evidence is None:
            return
        if lost := lost_positions(evidence, log):
            yield lost_log_finding(lost, log)
        for queue in lost_offsets(evidence, log):
            yield lost_offsets_finding(queue, source.queues.root)
        yield from deleted_topic_findings(evidence, source.queues)
        yield from evidence.unread
        yield from files_behind_findings(source.run, self.end, clean=source.clean)

    def _tail(self) -> tuple[int, int] | None:
        """Return (physical offset, size) of the bytes after the end of the log that are not a record; None without
        them.
        """
        torn = self._walk.torn
        if torn is None:
            return None
        return torn.position, max(self.source.run.data_end(torn.position) - torn.position, 0)

    @property
    def lost_tail_bytes(self) -> int:
        """The number of bytes after the end of the log that are not a record."""
        tail = self._tail()
        if tail is None:
            return sum(found.size_bytes for found in self._behind())
        return tail[1]

    def _loss(self, start: int, size: int, hole: _Hole | None, reason: str) -> Loss:
        run = self.source.run
        base = start - start % run.file_bytes
        path, position = run.path(base), start - base
        if hole is None:
            return new_loss(path, position, size, reason)
        offsets = hole.first_offset, hole.next_offset
        return new_loss(path, position, size, reason, queue=hole.queue, offsets=offsets)

    def _reason(self, position: int) -> str:
        """Return the error of the record at a bad place, as one word."""
        run = self.source.run
        if run.base_of(position) is None:
            return MISSING
        head = run.read(position, PADDING_SIZE)
        if not any(head):
            return "zeros"
        error = why_bad(run, position)
        if error is None:
            return "misplaced"
        if isinstance(error, Truncated):
            return "torn"
        return "crc" if error.facts().get("field") == "crc" else "header"

    def quiet_queues(self) -> Iterator[Queue]:
        """Yield queues with no record left in the log; only their files know the next offset."""
        for queue in self.source.queues:
            key = queue.partition
            if key not in self.queues and 0 <= queue.units.last_end <= self.source.start:
                yield queue


def odd_files(findings: Sequence[Finding], run: FileSequence) -> Sequence[Loss]:
    """Return losses for log files with names that are no valid position in the log. No record of them is salvaged."""
    odd = [Path(f.path) for f in findings if f.code == "wrong-file-name"]
    return [
        new_loss(path, 0, run.files.fs.size(path), "misnamed")
        for path in odd
        if path.parent in run.folders
    ]
