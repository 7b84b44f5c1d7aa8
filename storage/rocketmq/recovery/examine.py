"""Decisions of a start: read the log's tail, compare it with queues and index, and make a plan.

Owns every decision of a start; must not write (storage.rocketmq.recovery.repair does), so a refused start has changed
nothing. Source: CommitLog.recoverNormally and recoverAbnormally of RocketMQ. Recovery finds the same end of the log,
but differs where those methods lose data:

- The real store starts at the last file that begins before its checkpoint or the end of its queues. Here the walk
  starts further back whenever a record shows that its queue lacks entries before it.
- The real store dispatches again only the records that it walks. Here queues and index continue where they end.

    start of the walk ... good records ... end | nothing, a torn tail, or damage followed by good records
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from storage.contract import Progress
from storage.errors import DataError
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.format.index_file import IndexHeader
from storage.rocketmq.format.message import Message, decode_message, takes_queue_offset
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.format.queue_entry import in_order
from storage.rocketmq.format.scan import BAD, unmatched
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.light_queues import is_lmq, lmq_dispatches
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.index.record_pass import NOTHING, RecordPass
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.encoding import parse_mark
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.record_run import SEQUENCE_PROPERTY
from storage.rocketmq.log.scan import END, LogRange, Stop, walk_log
from storage.rocketmq.recovery.evidence import (
    Evidence,
    LogEnd,
    deleted_topic_findings,
    lost_log_finding,
    lost_offsets,
    lost_offsets_finding,
    lost_positions,
)
from storage.rocketmq.recovery.index_proof import LostFile
from storage.rocketmq.recovery.losses import Owners, add_findings, damage_finding
from storage.rocketmq.recovery.plan import Damage, OpenAppend, SequencedAppend, StorePlan
from storage.rocketmq.recovery.queue_proof import foreign_queues, misnamed_files, strayed
from storage.rocketmq.recovery.resync import Behind, LogSoFar, has_zeroed_sector, sound_part
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.state.topics import DeletedRecords

MAX_FILLERS: Final = 1 << 20
"""Limit on the filler entries that raise a queue with records. A start that needs more is refused."""
INDEXED_AGAIN_BYTES: Final = 16 << 20  # of the log; indexing this takes about 0.25 s
_MARK: Final = SEQUENCE_PROPERTY.encode()


class IndexFileState(NamedTuple):
    """An index file as found on disk. `is_ahead`: the file holds more than its header records."""

    name: str
    header: IndexHeader
    is_full: bool
    is_ahead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryContext:
    """A store as found on disk: the input of `examine`.

    - `ours`: this program took the store over, and no other server has crashed here since.
    - `queued`: the sum of the queue ends at the last checkpoint.
    - `index_end`: the physical offset up to which the index covered the log at a stop of this program.
    - `index_lost`: the first index file that is missing or unreadable.
    - `producers_position`: the physical offset that the producers' file covers; None without that file.
    - `passed_gaps`: ranges [start, end) of the log without a file, which an earlier start accepted as lost.
    """

    run: FileSequence
    queues: QueueTable
    index_files: Sequence[IndexFileState]
    checkpoint: Checkpoint
    clean: bool
    ours: bool
    read_only: bool
    accept_loss: bool
    index_enabled: bool
    index_end: int
    index_lost: LostFile | None
    deleted: DeletedRecords
    queued: int
    producers_position: int | None
    evidence: Evidence
    passed_gaps: Sequence[tuple[int, int]]
    progress: Progress


def examine(context: RecoveryContext) -> StorePlan:
    """Decide what a start does, and return the plan. Reads the log's tail and the queues; writes nothing.

    In memory it sets the ends of the queues, and adds to `context.deleted` the topics that turn out to be deleted.
    """
    broken = _measure_queues(context)
    foreign = foreign_queues(context.queues, context.run)
    misnamed = list(misnamed_files(context.queues, context.run))
    named = [found.queue.partition for found in misnamed]
    for topic, queue_id in {*foreign.queues, *named}:
        context.queues.add(topic, queue_id).units.forget()
    broken = list(dict.fromkeys([*broken, *foreign.queues, *named]))
    suspicions = [found.finding() for found in misnamed]
    suspicions += [
        strayed(context.run, message, queue, f"the queue entry that leads to it is of {queue}")
        for message, queue in foreign.single
    ]
    start = first = context.run.start if broken or foreign.doubted else _start(context)
    while True:
        walk = _Walk(context, start, foreign.doubted)
        walk.run()
        if walk.lives.begun:
            start = first  # records of a deleted topic were counted before the deletion was known
        elif walk.gap_from is None or walk.gap_from >= start:
            plan = _plan(context, walk, broken)
            if start in (first, context.run.start) or not (plan.lost or plan.lost_offsets):
                plan.findings += suspicions
                return plan
            start = context.run.start  # an entry may be wrong: read the whole log to decide
        else:
            start = walk.gap_from


def _measure_queues(context: RecoveryContext) -> Sequence[tuple[str, int]]:
    """Find the end of each queue, and return the broken queues by topic and queue id, to be rebuilt.

    After an unclean stop the newest entries are checked too. A queue whose files are not contiguous, not of full length
    or not readable counts as empty.
    """
    broken = []
    for queue in context.queues:
        try:
            whole = queue.units.run.is_whole and queue.units.run.is_full
            if whole:
                _measure(context, queue)
        except DataError:
            whole = False
        if not whole:
            broken.append(queue.partition)
            queue.units.forget()
    return broken


def _measure(context: RecoveryContext, queue: Queue) -> None:
    units = queue.units
    written = units.written_end()
    units.use(units.first_offset, written)
    if not context.clean:
        end = _checked_end(queue, context.checkpoint.logics_physical_offset)
        units.use(units.first_offset, end)
        units.is_torn = end < written
    units.start = units.first_at(context.run.start)


def _checked_end(queue: Queue, trusted: int) -> int:
    """Return the end of the sound entries.

    Entries that point before `trusted` were on disk at the last checkpoint and are not checked.
    """
    units = queue.units
    return units.sound_end(units.first_at(trusted) if trusted > 0 else units.first_offset)


def _start(context: RecoveryContext) -> int:
    """Return the position of the record where the walk begins:

    - the start of the log, if queues have lost files since the last checkpoint;
    - if the store is `ours`, the record that queues, checkpoint or producers' file name;
    - otherwise the beginning of its file, as in the real store, or of the nearest earlier file with a good first
      record.
    """
    run = context.run
    if sum(queue.units.end for queue in context.queues) < context.queued:
        return run.start  # files of queues are missing
    position = _last_unit(context)
    if not context.clean:
        position = min(position, _checkpointed(context))
    if context.producers_position is not None:
        position = min(position, context.producers_position)
    position = max(position, run.start)
    if context.ours and record_at(run, position) is not None:
        return position
    for base in reversed(run.bases):
        if base <= position and record_at(run, base) is not None:
            return base
    return run.start


def _last_unit(context: RecoveryContext) -> int:
    """Return the largest physical offset among the last entries of the queues; -1 if there are no entries."""
    last = -1
    for queue in context.queues:
        units = queue.units
        if units.end > units.first_offset:
            last = max(last, units.unit(units.end - 1).physical_offset)
    return last


def _checkpointed(context: RecoveryContext) -> int:
    """Return the physical offset up to which queues were on disk. A 4.x store records only a store time.

    So does this program if the log's first record was the only one. Files begun later do not count then, even if a
    clock that was set back gives them earlier times.
    """
    run, checkpoint = context.run, context.checkpoint
    if checkpoint.logics_physical_offset > 0:
        return checkpoint.logics_physical_offset
    time_ms = checkpoint.logics_msg_timestamp_ms
    if _begins_before(run, run.start, time_ms):
        for base in reversed(run.bases):
            if _begins_before(run, base, time_ms):
                return base
    return run.start


def _begins_before(run: FileSequence, base: int, time_ms: int) -> bool:
    """Return whether a file's first record is earlier than `time_ms`.

    If its time is equal, other records of that time may follow it.
    """
    first = record_at(run, base)
    return first is not None and first.store_timestamp_ms < time_ms


class _Walk:
    """One walk of the log from `start`, which compares records with queue entries."""

    def __init__(self, context: RecoveryContext, start: int, doubted: Collection[int]) -> None:
        """Prepare the walk. `doubted`: records whose entries do not count; see queue_proof.py."""
        self._context = context
        self.lives = TopicIncarnations(context.run, context.queues, context.deleted)
        self._behind = Behind(context.run, context.queues)
        self._known = _known_positions(context.queues, start, doubted)
        self._known_at = 0  # the walk is after the records before it
        self._pass = RecordPass(
            _OfQueues(self.lives, context.queues.batch_topics),
            with_tags=False,
            batch_topics=context.queues.batch_topics,
            strings_from=NOTHING,
        )
        self._expected: dict[tuple[str, int], int] = {}
        self._open: OpenAppend | None = None
        self._before = -1  # where the record before the current one begins
        self.start = start
        self.end = start
        self.damages: list[Damage] = []
        self.missing_from: int | None = None
        self.gap_from: int | None = None
        self.last_record: tuple[int, Message] | None = None
        self.sequenced: list[SequencedAppend] = []
        self.passed_gaps: list[tuple[int, int]] = []
        self.torn = False
        self.bytes_scanned = 0

    @property
    def is_cut(self) -> bool:
        """Whether the end is followed by a torn record or by damage, not by zeros alone."""
        return self.torn or bool(self.damages)

    def run(self) -> None:
        """Walk to the end of the log, across accepted gaps. A read-only walk also continues after damage."""
        position: int | None = self.start
        while position is not None:
            stop = self._log_ranges(position)
            self.end = stop.position
            if self._open is not None and self._context.ours and not self._context.clean:
                self._cut_before(self._open)
            self._open = None
            position = self._beyond(stop)

    def _cut_before(self, unfinished: OpenAppend) -> None:
        """End the log at the first record of an append whose last records are missing."""
        self.end, self.torn = unfinished.position, True
        last = record_at(self._context.run, unfinished.before)
        self.last_record = None if last is None else (unfinished.before, last)

    def _log_ranges(self, position: int) -> Stop:
        context, run = self._context, self._context.run
        last: LogRange | None = None
        for step in walk_log(run, position, run.limit):
            if isinstance(step, Stop):
                self._note_last(last)
                return step
            sound = sound_part(step) if context.ours and not context.clean else step
            if sound is not None:
                self._compare(sound)
                self._compare_lmqs(sound)
                self._note_sequenced(sound)
                self.bytes_scanned += sound.size_bytes
                last = sound
            if sound is not step:
                self._note_last(last)
                return Stop(step.start if sound is None else sound.end, BAD)
            context.progress("reading the commit log", step.start, run.limit)
        return Stop(position, END)

    def _note_last(self, log_range: LogRange | None) -> None:
        if log_range is not None:
            self.last_record = log_range.last, _message(log_range, log_range.last)

    def _compare(self, log_range: LogRange) -> None:
        """Note records without an entry, and queues that lack entries before such a record."""
        data, start = log_range.data, log_range.start
        missing, self._known_at = unmatched(
            data, 0, log_range.size_bytes, start, known=self._known, at=self._known_at
        )
        for begin, stop in missing:
            self._pass.take(data, begin, stop, start + begin)
        if not self._pass.records:
            return
        passed = self._pass.taken()
        for topic, queue_id, runs in passed.queues:
            for run in runs:
                self._note_missing((topic, queue_id), run.queue_offset, run.last_offset, run.first)
        for record in passed.refused:
            key, offset = (record.topic, record.queue_id), record.queue_offset
            self._note_missing(key, offset, offset, record.physical_offset)

    def _note_missing(self, key: tuple[str, int], first: int, last: int, position: int) -> None:
        """Note that a queue lacks the entries of these offsets; the first record is at this physical offset."""
        expected = self._expected
        if key not in expected:
            expected[key] = self._first_missing(key, first, position)
        if last >= expected[key]:
            expected[key] = last + 1

    def _compare_lmqs(self, log_range: LogRange) -> None:
        """Compare records with the LMQ queues that exist, as `_compare` does."""
        queues, deleted = self._context.queues, self._context.deleted
        for found in lmq_dispatches(log_range, queues):
            key = found.topic, found.queue_id
            queue = queues.get(*key)
            end = self._expected.get(key, 0 if queue is None else self._end_in_log(queue))
            if found.queue_offset >= end and not deleted.holds(found.topic, found.physical_offset):
                if key not in self._expected:
                    self._first_missing(key, found.queue_offset, found.physical_offset)
                self._expected[key] = found.queue_offset + 1

    def _first_missing(self, key: tuple[str, int], queue_offset: int, position: int) -> int:
        """Note a queue's first record without an entry, and return the end of that queue."""
        if self.missing_from is None or position < self.missing_from:
            self.missing_from = position
        queue = self._context.queues.get(*key)
        end = 0 if queue is None else self._end_in_log(queue)
        if queue_offset > end:
            begin = self._context.run.start
            if queue is not None and begin < queue.units.last_end <= position:
                begin = queue.units.last_end
            self.gap_from = min(begin, self.start if self.gap_from is None else self.gap_from)
        return end

    def _end_in_log(self, queue: Queue) -> int:
        """Return the end of a queue; if its last entry points beyond the log, its offset at the start of the walk."""
        units = queue.units
        inside = units.last_end <= self._context.run.limit
        return units.end if inside else units.first_at(self.start)

    def _note_sequenced(self, log_range: LogRange) -> None:
        """Collect the marks of sequenced appends. The records of one append are adjacent in the log."""
        marked = self._open is not None or _MARK in log_range.data
        for position, size in log_range.records if marked else ():
            begin = position - log_range.start
            if self._open is not None:
                self._open = self._open.following(_message(log_range, position))
            elif log_range.data.find(_MARK, begin, begin + size) >= 0:
                self._open = self._opened(_message(log_range, position), position)
            if self._open is not None and self._open.left == 0:
                self.sequenced.append(self._open.append)
                self._open = None
            self._before = position
        self._before = log_range.last

    def _opened(self, message: Message, position: int) -> OpenAppend | None:
        mark = parse_mark(decode_properties(message.properties).get(SEQUENCE_PROPERTY, ""))
        if mark is None or self._context.deleted.holds(message.topic, position):
            return None
        producer, count = mark
        append = SequencedAppend(
            message.topic,
            message.queue_id,
            producer,
            count,
            message.queue_offset,
            message.store_timestamp_ms,
        )
        return OpenAppend(append, position, count - 1, self._before)

    def _beyond(self, stop: Stop) -> int | None:
        """Note what follows the stop of a walk; return where to continue, or None at the end of the log."""
        context = self._context
        if self.torn or not context.run.bases:
            return None
        if stop.reason == END and (following := self._over_gap(stop.position)) is not None:
            return following
        last_ms = self.last_record[1].store_timestamp_ms if self.last_record else 0
        so_far = LogSoFar(last_ms, self._next_offset)
        looking = not context.clean or stop.reason == BAD
        good = self._behind.next_good(stop.position, so_far, looking=looking)
        if good is None:
            self.torn = stop.reason == BAD
            return None
        if not context.clean and has_zeroed_sector(context.run, stop.position, good):
            self.torn = True
            return None
        self.damages.append(Damage(stop.position, good, stop.reason))
        return good if context.read_only else None

    def _over_gap(self, position: int) -> int | None:
        """Return where the log continues after missing files, if that loss was accepted now or at an earlier start."""
        context = self._context
        following = next((base for base in context.run.bases if base > position), None)
        if following is None:
            return None
        gap = position, following
        if gap not in context.passed_gaps and (context.read_only or not context.accept_loss):
            return None
        self.passed_gaps.append(gap)
        return following

    def next_in_log(self, topic: str, queue_id: int) -> int:
        """Return the offset after a queue's last record that was met without an entry; 0 if there is none."""
        return self._expected.get((topic, queue_id), 0)

    def _next_offset(self, topic: str, queue_id: int) -> int:
        queue = self._context.queues.get(topic, queue_id)
        walked = self._expected.get((topic, queue_id), 0)
        return walked if queue is None else max(walked, queue.units.first_at(self.end))


def _message(log_range: LogRange, position: int) -> Message:
    return decode_message(log_range.data, position - log_range.start, check_crc=False)


def _known_positions(queues: QueueTable, start: int, doubted: Collection[int]) -> bytes:
    """Return, as `in_order` does, the physical offsets from `start` on that queue entries point to. LMQ queues are left
    out: their records need an entry in their own queue too. So are the offsets in `doubted`.
    """
    parts: list[bytes] = []
    for queue in queues:
        if not is_lmq(queue.partition.topic):
            parts += queue.units.positions(queue.units.first_at(start))
    return in_order(parts, frozenset(doubted))


class _OfQueues:
    """The rules of the walk's pass: which records of the topics with queues count."""

    def __init__(self, lives: TopicIncarnations, batch_topics: frozenset[str]) -> None:
        self._lives = lives
        self._batch_topics = batch_topics

    def alive_from(self, topic: str, queue_id: int) -> int:
        """See Rules."""
        return self._lives.alive_from(topic, queue_id)

    def is_over(self, dispatch: Dispatch) -> bool:
        """See Rules. Only records that have a queue offset, and whose topic may have a queue, matter to the walk."""
        if dispatch.topic in self._batch_topics or not takes_queue_offset(dispatch.sys_flag):
            return False
        key = dispatch.topic, dispatch.queue_id
        return self._lives.are_over(key, dispatch.queue_offset, dispatch.physical_offset)

    def code_of(self, dispatch: Dispatch) -> int:
        """See Rules."""
        return dispatch.tags_code


def _plan(context: RecoveryContext, walk: _Walk, broken: Sequence[tuple[str, int]]) -> StorePlan:
    run, end = context.run, walk.end
    index = _plan_index(context, walk)
    plan = StorePlan(
        run=run,
        queues=context.queues,
        log_end=end,
        data_end=run.data_end(end) if walk.is_cut or not context.clean else end,
        accepted_from=walk.start,
        last_record=walk.last_record,
        distrusted_from=None if context.clean else _checkpointed(context),
        queue_ends=_queue_cuts(context.queues, end),
        broken_queues=broken,
        build_queues_from=_build_from(walk),
        build_index_from=index.build_from,
        index_border_again=index.border_again,
        doomed_index_files=index.doomed,
        doubtful_index_files=index.doubtful,
        index_is_lost=context.index_lost is not None and not context.read_only,
        sequenced=walk.sequenced,
        damages=walk.damages,
        bytes_scanned=walk.bytes_scanned,
    )
    log = LogEnd(
        run=run,
        queues=context.queues,
        end=end,
        torn=walk.torn,
        clean=context.clean and not walk.damages,
        trusted=context.ours and not context.clean,
        last=None if walk.last_record is None else _place_and_time(walk.last_record),
        next_offset=walk.next_in_log,
    )
    plan.lost = lost_positions(context.evidence, log)
    plan.lost_offsets = lost_offsets(context.evidence, log)
    plan.passed_gaps = walk.passed_gaps
    _refuse_or_go_on(context, plan, log)
    cutting = not (context.read_only and walk.damages)
    add_findings(plan, clean=context.clean, torn=walk.torn, cutting=cutting)
    plan.findings += deleted_topic_findings(context.evidence, context.queues)
    plan.findings += context.evidence.unread
    if plan.go_on_at is not None:
        plan.queue_ends = {}  # keep entries of lost records: their offsets must not be reused
    return plan


def _place_and_time(last: tuple[int, Message]) -> tuple[int, int]:
    position, message = last
    return position, message.store_timestamp_ms


def _refuse_or_go_on(context: RecoveryContext, plan: StorePlan, log: LogEnd) -> None:
    """Refuse a start after damage, or one that would assign used offsets or physical offsets again.

    With `accept_loss` the log continues in a new file above all used ones.
    """
    certain = [lost for lost in plan.lost_offsets if lost.certain]
    too_far = [lost for lost in certain if 0 < lost.end < lost.used.next_offset - MAX_FILLERS]
    if plan.damages and not context.accept_loss:
        plan.refusal = damage_finding(plan.run, plan.damages[0], Owners(plan.run, plan.queues))
    elif plan.lost and not context.accept_loss:
        plan.refusal = lost_log_finding(plan.lost, log)
    elif certain and not context.accept_loss:
        plan.refusal = lost_offsets_finding(certain[0], context.queues.root)
    elif too_far:
        plan.refusal = lost_offsets_finding(too_far[0], context.queues.root)
    elif (plan.lost or certain) and not context.read_only:
        plan.go_on_at = _above(plan)


def _above(plan: StorePlan) -> int:
    """Return the base of a log file above every byte that is named as used.

    It is never the first possible file of the log. Queues may get fillers, and at a filler the real store skips the
    records of that file.
    """
    file_bytes = plan.run.file_bytes
    following = -(-plan.log_end // file_bytes) * file_bytes
    if plan.lost.named:
        following = max(following, (plan.lost.highest // file_bytes + 1) * file_bytes)
    elif plan.lost.times:
        following += file_bytes  # a file is missing, and it is unknown which
    return max(following, file_bytes)


def _build_from(walk: _Walk) -> int | None:
    """Return the first record without an entry, or an earlier damaged place; None if no record lacks its entry."""
    if walk.missing_from is None:
        return None
    return min([walk.missing_from, *(damage.position for damage in walk.damages)])


def _queue_cuts(queues: QueueTable, log_end: int) -> Mapping[tuple[str, int], int]:
    """Return the queues with entries that point beyond the end of the log, and the offset where those begin."""
    cuts: dict[tuple[str, int], int] = {}
    for queue in queues:
        units = queue.units
        if units.last_end > log_end:
            cut = units.first_at(log_end)
            if cut > units.first_offset:
                before = units.unit(cut - 1)
                if not before.is_filler and before.physical_offset + before.size > log_end:
                    cut -= 1
            cuts[queue.partition] = cut
    return cuts


class _IndexPlan(NamedTuple):
    """The part of a plan that concerns the index; see StorePlan."""

    doomed: Sequence[str] = ()
    doubtful: Sequence[str] = ()
    build_from: int | None = None
    border_again: bool = True


def _plan_index(context: RecoveryContext, walk: _Walk) -> _IndexPlan:
    """Plan which index files to remove, to check or to extend.

    After an unclean stop the real store removes every file that is newer than the checkpoint, and indexes again what it
    walks. The plan does the same where that loses nothing and takes little time. Otherwise it keeps the files and has
    the doubtful ones checked and repaired, which takes a tenth of the time.
    """
    files = context.index_files
    if not context.index_enabled:
        return _IndexPlan()
    lost = context.index_lost
    if lost is not None and not context.read_only:
        later = [file.name for file in files if file.name >= lost.name]
        return _IndexPlan(doomed=later, build_from=max(lost.begin, context.run.start))
    if not files:
        return _IndexPlan(build_from=_first_build(context, walk))
    # After a cut the real store keeps index entries beyond the end, and then skips new records up to the last of them.
    odd = [f.name for f in files if f.is_ahead or f.header.end_physical_offset >= max(walk.end, 1)]
    if odd:
        return _IndexPlan(doubtful=[file.name for file in files if file.name >= min(odd)])
    if context.clean:
        end = _index_end(files)
        border = max(end, context.index_end)
        build_from = _index_start(walk, border)
        if context.read_only and walk.end - border > INDEXED_AGAIN_BYTES:
            build_from = (
                None  # too long for a read-only start: lookups scan the records without an entry
            )
        return _IndexPlan(build_from=build_from, border_again=border != end)
    doomed = [file for file in files if _is_doubtful(file, context.checkpoint)]
    kept = files[: len(files) - len(doomed)]
    border = _index_end(kept) if kept else context.run.start
    if not doomed:
        return _IndexPlan(build_from=_index_start(walk, border))
    walked_file = context.run.base_of(walk.start) or context.run.start
    if walked_file <= border and walk.end - border < INDEXED_AGAIN_BYTES and not context.ours:
        return _IndexPlan(doomed=[file.name for file in doomed], build_from=border)
    return _IndexPlan(doubtful=[file.name for file in doomed])


def _first_build(context: RecoveryContext, walk: _Walk) -> int | None:
    """Return where to begin an index without files; None for a walk without records.

    The real store begins at the start of the walk. A store that is `ours` indexes the whole log after `index_end`.
    """
    if walk.last_record is None:
        return None
    if context.ours and not context.read_only:
        return max(context.index_end, context.run.start)
    return walk.start


def _index_end(files: Sequence[IndexFileState]) -> int:
    """Return the position of the last indexed record. The header of a file just created may not name it yet."""
    return max(file.header.end_physical_offset for file in files)


def _index_start(walk: _Walk, border: int) -> int | None:
    """Return where indexing continues; None if the last record is before the border."""
    if walk.last_record is None or walk.last_record[0] < border:
        return None
    return border


def _is_doubtful(file: IndexFileState, checkpoint: Checkpoint) -> bool:
    """Return whether an index file may hold entries that were not on disk at the checkpoint."""
    header, time_ms = file.header, checkpoint.index_msg_timestamp_ms
    if header.end_timestamp_ms != time_ms:
        return header.end_timestamp_ms > time_ms
    return not file.is_full and header.end_physical_offset > checkpoint.logics_physical_offset
