"""The recovery plan of a partition: the content of its folder, and the work needed before it can be served.

Owns the rules of LogLoader and LogSegment.recover and the damage rules of this server; must not change a file.
(storage.kafka.recovery.repair carries the plan out. So a start that is refused leaves everything as it was.)

1. Without the marker of a clean stop, every segment with offsets >= the recovery point is scanned: CRCs are checked;
   indexes, aborted transactions, epochs and producer states are rebuilt. A segment without one of its indexes is
   scanned too, and all three of its indexes are rebuilt.
2. With the marker, only the active segment is checked, from its last index entry on. A wrong index of it
   (storage.kafka.recovery.active_indexes) is rebuilt. With or without the marker, a writable start rebuilds lost leader
   epochs from every batch. A scan that finds offsets too far from a segment's base plans a split of the segment
   (storage.kafka.log.offset_overflow).
3. A gap is a range without a good batch. After an unclean stop, at or above the recovery point, it may cover a lost
   write (an aligned 512-byte sector of zeros). A gap is one of:
   - damage: it covers no lost write, and good batches follow or it contains a whole batch with a right CRC and offsets
     that do not fit. A writable start is refused, unless losses are accepted: then the log is cut there, as the broker
     does. A read-only start leaves the gap and serves the rest;
   - messages of an old format, wherever they are: handled as damage. They are good, but cannot be read here;
   - a torn tail: any other gap. It is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from storage.errors import DataError
from storage.files import File
from storage.kafka.format import checkpoints, names, txn_index
from storage.kafka.format.names import segment_name
from storage.kafka.format.producer_snapshot import decode_snapshot, encode_snapshot
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index.indexes import IndexReader, ReadsFiles, RebuiltIndexes, rebuild_indexes
from storage.kafka.log.log_file import (
    MISPLACED,
    OLD_FORMAT,
    Gap,
    StoredBatch,
    begins_in_lost_write,
    end_of,
    holds_lost_write,
    is_zero,
)
from storage.kafka.log.offset_overflow import (
    Placed,
    SegmentSplit,
    first_overflow,
    overflow_finding,
    split_parts,
)
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.active_indexes import WrongIndex, last_indexed, wrong_index
from storage.kafka.recovery.evidence import RecoveryContext
from storage.kafka.recovery.losses import judge_end, judge_log_start, judge_start
from storage.kafka.recovery.misnamed import list_segments
from storage.kafka.recovery.overlaps import pass_repeats
from storage.kafka.state.epochs import LeaderEpochs
from storage.kafka.state.producers import ProducerStates
from storage.kafka.state.settings import TopicSettings
from storage.model import Loss, TopicPartition


def examine(
    context: RecoveryContext, partition: TopicPartition, directory: Path, settings: TopicSettings
) -> PartitionPlan:
    """Examine one partition and plan its recovery. Writes nothing.

    Left-over files must be cleared away before. Raises IoFailure. Damage is reported in the plan: findings, losses,
    refusal.
    """
    plan = PartitionPlan(partition=partition, directory=directory, settings=settings)
    list_segments(context.files, plan)
    indexes = IndexReader(context.fs)
    pass_repeats(indexes, context.files, plan)
    plan.start_offset = max(
        context.log_starts.get(partition, 0), plan.segments[0].base_offset if plan.segments else 0
    )
    plan.next_offset = plan.start_offset
    _doubt_start(context, plan)
    _load_epochs(context, plan)
    judge_start(context, plan)
    scan = _Scan(context, plan, indexes)
    if plan.segments:
        scan.run()
    if plan.splits:  # a split may change the first segment's base offset
        plan.start_offset = max(plan.start_offset, plan.segments[0].base_offset)
    plan.batches_end = plan.next_offset
    plan.next_offset = max(plan.next_offset, scan.log_end)
    judge_log_start(context, plan)
    judge_end(context, plan, indexes)
    plan.epochs.truncate_end(max(plan.next_offset, plan.start_offset + 1))
    plan.epochs.truncate_start(plan.start_offset)
    return plan


def _doubt_start(context: RecoveryContext, plan: PartitionPlan) -> None:
    """Report a log start above the recovery point: it may hide records that were never deleted.

    A broker that deletes records raises both values (UnifiedLog.updateLogStartOffset). It writes both files at
    intervals and when it stops. So this state is right only after an unclean stop between the two writes.
    """
    root = plan.directory.parent
    if not plan.segments or plan.start_offset <= plan.segments[0].base_offset:
        return
    point = context.recovery_points.get(plan.partition)
    if point is None and not context.fs.exists(root / names.RECOVERY_POINTS):
        return
    if point is not None and point >= plan.start_offset:
        return
    plan.findings.append(
        plan.finding(
            "doubtful-log-start",
            root / names.LOG_STARTS,
            offset=plan.start_offset,
            expected="at most the recovery point" if point is None else f"at most {point}",
            found=str(plan.start_offset),
            message=f"the log starts above its recovery point: {plan.segments[0].base_offset} to "
            f"{plan.start_offset - 1} are in the segments and are not served",
        )
    )


def _load_epochs(context: RecoveryContext, plan: PartitionPlan) -> None:
    path = plan.directory / names.LEADER_EPOCHS
    if not context.fs.exists(path):
        return
    try:
        plan.stored_epochs = checkpoints.decode_epochs(context.fs.read_bytes(path))
    except DataError as error:
        plan.findings.append(plan.finding("bad-leader-epochs", path, message=error.message))
        plan.set_aside.append(path)  # a real broker does not start with such a file
    else:
        plan.epochs = LeaderEpochs(plan.stored_epochs)


def load_producers(
    context: RecoveryContext, plan: PartitionPlan, offset: int
) -> tuple[ProducerStates, int]:
    """Return the producers' state of the newest good snapshot at or below `offset`, and the snapshot's offset.

    Without a snapshot the state is empty and the offset is the log start. Bad snapshots are reported, and the plan
    removes them.
    """
    usable = [o for o in plan.snapshot_offsets if plan.start_offset < o <= offset]
    for snapshot_offset in sorted(usable, reverse=True):
        path = plan.directory / segment_name(snapshot_offset, names.SNAPSHOT)
        try:
            entries = decode_snapshot(context.fs.read_bytes(path))
        except DataError as error:
            plan.findings.append(plan.finding("bad-snapshot", path, message=error.message))
            plan.removed.append(path)
            plan.snapshot_offsets.discard(snapshot_offset)
            continue
        producers = ProducerStates(entries)
        producers.expire(context.clock(), context.producer_expiration_ms)
        return producers, snapshot_offset
    return ProducerStates(), plan.start_offset


class _Scan:
    """A pass over the segments of one partition that have to be read."""

    def __init__(self, context: RecoveryContext, plan: PartitionPlan, indexes: ReadsFiles) -> None:
        self.context = context
        self.plan = plan
        self.index_files = indexes
        self.unclean = not context.clean_shutdown
        self.recovery_point = context.recovery_points.get(plan.partition, 0)
        self.cut = False
        self.log_end = 0  # after every offset of the good batches read so far
        self.split: dict[
            int, Sequence[SegmentPlan]
        ] = {}  # by base offset of the segment that is split

    def run(self) -> None:
        segments = self.plan.segments
        first = self._first_unflushed()
        self._check_index_files(segments[:first])
        stored = self.plan.stored_epochs or ()
        # Retention cuts the epochs before it deletes files: a crash in between leaves batches below the first epoch.
        is_cut = self.unclean and bool(stored) and stored[0][1] > self.plan.start_offset
        if (not stored or is_cut) and not self.context.read_only:
            self.plan.epochs = LeaderEpochs()
            noted = segments if is_cut else segments[:first]
            self._note_epochs(batch for s in noted for batch in s.batches(self.context.files))
            for epoch, start_offset in stored:
                self.plan.epochs.assign(epoch, start_offset)
        if self.unclean:
            self._recover(first)
        else:
            self._check_active_tail()
        self._take_splits()

    def _note_epochs(self, batches: Iterable[StoredBatch]) -> None:
        """Add the leader epochs of these batches to the plan."""
        for batch in batches:
            self.plan.epochs.assign(batch.header.leader_epoch, batch.header.base_offset)

    def _check_index_files(self, segments: Sequence[SegmentPlan]) -> None:
        """Rebuild all indexes of a segment that lacks its offset or time index. If only its transaction index is
        unreadable, rebuild that index alone.

        As LogLoader.loadSegmentFiles: a segment without its `.index` is recovered as after an unclean stop, including
        its aborted transactions. A missing `.txnindex` alone proves nothing: most segments have none.
        """
        producers: ProducerStates | None = (
            None  # the state at the start of `segment`, if the segment before it was read
        )
        for segment in segments:
            is_whole = {names.INDEX, names.TIME_INDEX} <= segment.suffixes or not segment.size_bytes
            if is_whole and self._has_good_transactions(segment):
                producers = None
                continue
            if producers is None:
                producers = self._producers_at(segment.base_offset)
            self._rebuild_index_files(segment, producers, only_transactions=is_whole)

    def _has_good_transactions(self, segment: SegmentPlan) -> bool:
        if names.TXN_INDEX not in segment.suffixes:
            return True
        path = segment.path.with_suffix(names.TXN_INDEX)
        try:
            txn_index.decode_entries(self.context.fs.read_bytes(path))
        except DataError as error:
            self.plan.findings.append(self.plan.finding("bad-index", path, message=error.message))
            return False
        return True

    def _rebuild_index_files(
        self, segment: SegmentPlan, producers: ProducerStates, *, only_transactions: bool = False
    ) -> None:
        """Rebuild the indexes of a segment from its good batches. Advances `producers` to the segment's end."""
        good: list[Placed] = []
        aborted: list[AbortedTransaction] = []
        for batch in segment.batches(self.context.files):
            if batch.position >= segment.size_bytes:
                break
            good.append((batch.position, batch.header))
            ended = producers.update(batch.header, batch.data, batch.at)
            if ended is not None:
                aborted.append(ended)
        segment.aborted = aborted
        if not only_transactions:
            self._set_indexes(segment, good)

    def _first_unflushed(self) -> int:
        """Return the index of the first segment to be scanned in full."""
        segments = self.plan.segments
        if not self.unclean:
            return len(segments)
        point = self.recovery_point
        below = [i for i, segment in enumerate(segments) if segment.base_offset <= point]
        return below[-1] if below else 0

    # ---- after an unclean stop ----

    def _recover(self, first: int) -> None:
        plan = self.plan
        plan.producers = self._producers_at(plan.segments[first].base_offset)
        for index in range(first, len(plan.segments)):
            self._scan_segment(plan.segments[index], index)
            if self.cut:
                plan.removed_segments += plan.segments[index + 1 :]
                del plan.segments[index + 1 :]
                break
            if index + 1 < len(plan.segments):
                self._remember_snapshot(plan.segments[index + 1].base_offset)
        self._remember_snapshot(plan.next_offset)

    def _producers_at(self, offset: int) -> ProducerStates:
        """Return the producers' state before `offset`, from a snapshot and the batches after it."""
        producers, loaded = load_producers(self.context, self.plan, offset)
        for segment in self.plan.segments:
            if segment.base_offset >= offset or segment.limit_offset <= loaded:
                continue
            for batch in segment.batches(self.context.files):
                if loaded <= batch.header.base_offset < offset:
                    producers.update(batch.header, batch.data, batch.at)
        return producers

    def _scan_segment(self, segment: SegmentPlan, index: int) -> None:
        """Read a whole segment. Its batches feed the indexes, producers and epochs. A gap may end the log here."""
        plan = self.plan
        plan.segments_scanned += 1
        plan.bytes_scanned += segment.file_bytes
        plan.next_offset = segment.base_offset
        good: list[Placed] = []
        aborted: list[AbortedTransaction] = []
        with self.context.files.borrow(segment.path) as file:
            for item in segment.walk(file):
                if isinstance(item, Gap):
                    if self._ends_log(item, segment, index, file):
                        break
                    continue
                good.append((item.position, item.header))
                ended = plan.producers.update(item.header, item.data, item.at)
                if ended is not None:
                    aborted.append(ended)
                self._meet(item)
        segment.aborted = aborted
        self._set_indexes(segment, good)

    def _meet(self, batch: StoredBatch) -> None:
        """Note the epoch and the end of a good batch, the last batch so far."""
        self._note_epochs([batch])
        self.plan.next_offset = batch.header.next_offset
        self.log_end = max(self.log_end, batch.header.log_end)

    def _remember_snapshot(self, offset: int) -> None:
        """Plan a producer snapshot, as the broker writes it after a recovered segment; none at the log start."""
        if offset > self.plan.start_offset:
            self.plan.snapshots[offset] = encode_snapshot(self.plan.producers.entries())

    # ---- after a clean stop ----

    def _check_active_tail(self) -> None:
        """Find the log end from the active segment's last index entry on. The marker alone is not trusted."""
        plan = self.plan
        segment = plan.segments[-1]
        plan.next_offset = segment.base_offset
        missing = {names.INDEX, names.TIME_INDEX} - segment.suffixes
        wrong = None if missing else self._wrong_index(segment)
        if segment.size_bytes:
            with self.context.files.borrow(segment.path) as file:
                position = last_indexed(self.index_files, file, segment)
            if wrong or (position and not self._is_good_from(segment, position)):
                position = 0  # the stop was not clean: a full scan reports all damage at once
            self._check_tail_from(segment, position)
        elif len(plan.segments) > 1:
            self._note_epochs(self._last_batches(plan.segments[-2]))
        if wrong and plan.refusal is None and segment.indexes is None:  # else the log is damaged
            self._mend_indexes(segment, wrong)
        producers, loaded = load_producers(self.context, plan, plan.next_offset)
        plan.producers = producers
        if loaded < plan.next_offset:
            plan.producers = self._producers_at(plan.next_offset)
            self._remember_snapshot(plan.next_offset)

    def _last_batches(self, segment: SegmentPlan) -> Iterator[StoredBatch]:
        """Return the good batches of a segment from its last index entry on."""
        with self.context.files.borrow(segment.path) as file:
            position = last_indexed(self.index_files, file, segment)
        return segment.batches(self.context.files, position)

    def _is_good_from(self, segment: SegmentPlan, position: int) -> bool:
        items = segment.items(self.context.files, position)
        return all(isinstance(item, StoredBatch) for item in items)

    def _wrong_index(self, segment: SegmentPlan) -> WrongIndex | None:
        with self.context.files.borrow(segment.path) as file:
            return wrong_index(self.index_files, file, segment)

    def _mend_indexes(self, segment: SegmentPlan, wrong: WrongIndex) -> None:
        """Report a wrong index and rebuild it. Otherwise the next marker would confirm it, and readers that trust the
        marker would use it.
        """
        wrong_file = self.plan.finding(
            wrong.code,
            segment.path.with_suffix(wrong.suffix),
            position=wrong.position,
            expected=wrong.expected,
            found=wrong.found,
            message=wrong.message,
        )
        self.plan.findings.append(wrong_file)
        self._rebuild_segment(segment)

    def _check_tail_from(self, segment: SegmentPlan, position: int) -> None:
        plan = self.plan
        plan.segments_scanned += 1
        plan.bytes_scanned += segment.file_bytes - position
        with self.context.files.borrow(segment.path) as file:
            for item in segment.walk(file, position):
                if isinstance(item, Gap):
                    if self._ends_log(item, segment, len(plan.segments) - 1, file):
                        break
                else:
                    self._meet(item)
        if segment.size_bytes < segment.file_bytes:
            self._rebuild_segment(segment)

    def _rebuild_segment(self, segment: SegmentPlan) -> None:
        """Rebuild the offset and time index. Rebuild the transaction index too, if it exists or was rebuilt before."""
        if names.TXN_INDEX in segment.suffixes or segment.aborted is not None:
            self._rebuild_index_files(segment, self._producers_at(segment.base_offset))
            return
        good = ((batch.position, batch.header) for batch in segment.batches(self.context.files))
        self._set_indexes(segment, [item for item in good if item[0] < segment.size_bytes])

    def _set_indexes(self, segment: SegmentPlan, good: Sequence[Placed]) -> None:
        """Plan the indexes of a segment with these good batches. Plan its split if their offsets reach too far."""
        plan = self.plan
        segment.indexes = self._indexes(segment.base_offset, good)
        self.split.pop(segment.base_offset, None)  # a split planned before the tail was cut
        plan.splits = [split for split in plan.splits if split.path != segment.path]
        far = first_overflow(good, segment.base_offset)
        if far is None:
            return
        found = overflow_finding(segment.path, plan.partition, *far)
        if found not in plan.findings:
            plan.findings.append(found)
        if not self.context.read_only:
            self._plan_split(segment, good)

    def _indexes(self, base_offset: int, good: Sequence[Placed]) -> RebuiltIndexes:
        return rebuild_indexes(
            good, base_offset=base_offset, interval_bytes=self.plan.settings.index_interval_bytes
        )

    def _plan_split(self, segment: SegmentPlan, good: Sequence[Placed]) -> None:
        parts = split_parts(good, base_offset=segment.base_offset, end=segment.size_bytes)
        self.plan.splits.append(SegmentSplit(segment.path, frozenset(segment.suffixes), parts))
        self.split[segment.base_offset] = [
            SegmentPlan(
                base_offset=part.base_offset,
                path=self.plan.directory / segment_name(part.base_offset),
                size_bytes=part.end - part.start,
                file_bytes=part.end - part.start,
                suffixes={names.LOG},
                indexes=self._indexes(
                    part.base_offset,
                    [(position - part.start, header) for position, header in part.batches],
                ),
                aborted=[
                    entry
                    for entry in segment.aborted or ()
                    if part.base_offset <= entry.last_offset <= part.batches[-1][1].last_offset
                ],
            )
            for part in parts
        ]

    def _take_splits(self) -> None:
        """Replace each split segment by its parts."""
        segments = self.plan.segments
        if self.split:
            segments[:] = [p for s in segments for p in self.split.get(s.base_offset, [s])]
            for segment, following in pairwise(segments):
                segment.limit_offset = following.base_offset

    # ---- gaps ----

    def _ends_log(self, gap: Gap, segment: SegmentPlan, index: int, file: File) -> bool:
        """Judge a gap and report it. Return True if the log is cut there."""
        plan = self.plan
        old = gap.old_end is not None
        good_follows = gap.next_offset is not None or self._good_segment_after(index)
        is_lost = begins_in_lost_write if gap.misplaced else holds_lost_write
        lost_write = (
            self.unclean
            and plan.next_offset >= self.recovery_point  # everything below had reached the disk
            and is_lost(file, position=gap.position, end=gap.end)
        )
        misplaced = gap.misplaced and not lost_write
        torn = not old and not misplaced and (not good_follows or lost_write)
        zeros = torn and not good_follows and is_zero(file, position=gap.position, end=gap.end)
        severity = None
        if old:
            code = OLD_FORMAT
        elif misplaced:
            code = MISPLACED
        elif not torn:
            code = "damaged-batch"
        elif zeros:
            preallocated = self.unclean and plan.settings.preallocate
            code, severity = "zero-tail", "info" if preallocated else "warning"
        else:
            code = "torn-tail"
        finding = plan.finding(
            code,
            segment.path,
            severity=severity,
            position=gap.position,
            offset=plan.next_offset,
            expected=gap.expected,
            found=gap.found,
            message=_judgement(gap, torn=torn, good_follows=good_follows),
        )
        plan.findings.append(finding)
        if not torn and (self.context.read_only or not self.context.accept_loss):
            plan.refusal = plan.refusal or finding
            plan.next_offset = max(plan.next_offset, gap.old_end or 0)
            return False
        self._cut(gap, segment, index, records_lost=not zeros)
        return True

    def _good_segment_after(self, index: int) -> bool:
        return any(
            end_of(item) is not None
            for segment in self.plan.segments[index + 1 :]
            for item in segment.items(self.context.files)
        )

    def _cut(self, gap: Gap, segment: SegmentPlan, index: int, *, records_lost: bool) -> None:
        plan = self.plan
        self.cut = True
        segment.size_bytes = gap.position
        if not records_lost:
            return
        for lost in plan.segments[index:]:
            position = gap.position if lost is segment else 0
            if lost.file_bytes == position:
                continue
            items = lost.items(self.context.files)
            ends = [end_of(item) for item in items if item.position >= position]
            plan.losses.append(
                Loss(
                    topic=plan.partition.topic,
                    partition=plan.partition.partition,
                    path=str(lost.path),
                    position=position,
                    size_bytes=lost.file_bytes - position,
                    first_offset=plan.next_offset if lost is segment else lost.base_offset,
                    next_offset=max((end for end in ends if end is not None), default=None),
                    reason=gap.reason,
                )
            )


def _judgement(gap: Gap, *, torn: bool, good_follows: bool) -> str:
    size = gap.end - gap.position
    if gap.old_end is not None:
        return f"{size} bytes with messages of format v0 or v1, which is not supported"
    if gap.misplaced and not torn:
        return f"{size} bytes that begin with, or hold, whole batches whose offsets do not fit here"
    if not torn:
        return f"{size} damaged bytes, and good batches follow"
    if good_follows:
        return f"{size} bytes of a write that was lost, and later writes follow"
    return f"{size} bytes after the last good batch"
