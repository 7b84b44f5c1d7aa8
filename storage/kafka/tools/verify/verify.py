"""Verification of a log directory: every file is read, and every error is reported.

Owns the order of the checks, and the state carried from one segment to the next: consecutive offsets, epochs already
reported, damage, open transactions. `files` checks names and small files; `log` checks segments, in any process. A
segment is read again if its guess of the open transactions was wrong. A partition is checked again if a running server
replaced or removed files meanwhile. Must not repair: the files are checked as they are on the disk, with only left-over
files cleared. Also reports what the next start would cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from storage.contract import Counted, TaskRunner, not_counted, run_serially
from storage.errors import IoFailure
from storage.files import is_missing
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.losses import segments_without_log
from storage.kafka.state.file_listing import unread_findings
from storage.kafka.tools.live import steady
from storage.kafka.tools.logs import Log, hole, log_replaced
from storage.kafka.tools.summary import transaction_findings
from storage.kafka.tools.verify import files
from storage.kafka.tools.verify.log import SegmentPart, SegmentResult, check_segment
from storage.kafka.tools.view import INDEX_INTERVAL, View
from storage.model import FileCount, Finding, TopicPartition
from storage.shared.diagnostics import Notes
from storage.shared.loss_report import is_reported


def check_view(
    view: View,
    *,
    whole: bool,
    run: TaskRunner = run_serially,
    counted: Counted = not_counted,
) -> Iterator[Finding]:
    """Yield every finding of a fresh view: of the root first, then partition by partition.

    `whole`: check the names at the root too. `run` reads the segments.
    """
    notes = Notes()
    notes.add(*files.check_root(view, whole=whole))
    notes.add(*view.weigh_names())
    yield from notes.take()
    view.start_meter("verifying", list(view.folders))
    yield from _Audit(view, run, counted).findings()
    notes.add(*unread_findings(view.base))
    yield from notes.take()


class _Audit:
    """The partitions of a view: the parts that were handed out, and their results."""

    def __init__(self, view: View, run: TaskRunner, counted: Counted) -> None:
        self._view = view
        self._run = run
        self._counted = counted
        self._checks: deque[PartitionCheck] = deque()  # not reported yet, in order
        self._pending: deque[tuple[PartitionCheck, SegmentPart]] = deque()  # parts without results
        self._topic_ids: dict[str, str] = {}
        # A part that is read in this process reports its own progress.
        self._is_local = run is run_serially
        self._work = partial(check_segment, meter=view.reader.meter if self._is_local else None)

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of all partitions."""
        for result in self._run(self._work, self._parts()):
            self._take(result)
            yield from self._complete()
        yield from self._complete()
        yield from self._view.gone

    def _parts(self) -> Iterator[SegmentPart]:
        for address in self._view.folders:
            check = self._begun(self._view, address)
            self._checks.append(check)
            for part in check.parts():
                self._pending.append((check, part))
                yield part

    def _begun(self, view: View, address: TopicPartition) -> PartitionCheck:
        """Return the check of a partition; one without segments, which `is_changed`, if its files are gone."""
        compacted = view.checkpoints[names.CLEANER_OFFSETS]
        try:
            plan = view.plan(address)
        except IoFailure as error:
            if not is_missing(error):
                raise
            return PartitionCheck(view, address, None)
        return PartitionCheck(view, address, plan, compacted=address in compacted)

    def _take(self, result: SegmentResult) -> None:
        check, part = self._pending.popleft()
        check.take(part, result, self._again)
        if not self._is_local:
            self._view.reader.meter.add(part.log.size_bytes)

    def _again(self, part: SegmentPart) -> SegmentResult:
        (result,) = self._run(self._work, [part])
        return result

    def _complete(self) -> Iterator[Finding]:
        """Yield the findings of the partitions that are complete."""
        while self._checks and self._checks[0].is_done:
            check = self._checks.popleft()
            found = self._judged(check)
            if found is None:
                look = partial(self._looked_again, check.address)
                found = steady(self._view, check.address, look, again=True)
            if found is not None:
                yield from sorted(found, key=lambda one: (one.path, one.position or 0))

    def _judged(self, check: PartitionCheck) -> Sequence[Finding] | None:
        """Return the findings of a partition; None if its files were changed meanwhile."""
        view, plan, notes = check.view, check.plan, Notes()
        if plan is None:
            return None
        counts = list(check.counts)
        try:
            counts += files.derived_files(view, plan.partition)
            notes.add(*plan.findings)
            notes.add(*check.all())
            notes.add(*files.check_names(view, plan.partition))
            notes.add(*files.check_snapshots(view, plan))
            notes.add(*files.check_small_files(view, plan, self._topic_ids))
            notes.add(*files.check_against_root(view, plan))
            notes.add(*transaction_findings(plan, view.clock()))
        except IoFailure as error:
            if not is_missing(error):
                raise
            return None
        if check.is_changed:
            return None
        for count in counts:
            self._counted(count)
        return notes.all()

    def _looked_again(self, address: TopicPartition, view: View) -> Sequence[Finding]:
        """Return the findings of a partition, as its files are now. Raises `log_replaced`."""
        view.weigh_names()
        check = self._begun(view, address)
        for part in check.parts():
            check.take(part, self._again(part), self._again)
        found = self._judged(check)
        if found is None:
            raise log_replaced(view.folders[address])
        return found


class PartitionCheck:
    """The segments of one partition; their results arrive in ascending order.

    `plan` None: the files are gone.
    """

    def __init__(
        self,
        view: View,
        address: TopicPartition,
        plan: PartitionPlan | None,
        *,
        compacted: bool = False,
    ) -> None:
        self.view = view
        self.address = address
        self.plan = plan
        segments = [] if plan is None else [*plan.segments, *plan.removed_segments]
        self.segments = segments  # also segments that the next start would cut
        self.found: list[Finding] = []
        self.counts: list[FileCount] = []
        self._is_gone = False
        self._left_behind = view.reported_losses(address)
        self._interval_bytes = _known_interval(view, address.topic)
        self._taken = 0
        self._next_offset = segments[0].base_offset if segments else 0
        self._holes: list[Finding] = []
        self._reported_epochs: set[tuple[int, int | None]] = set()
        self._open: Mapping[int, int] = {}
        self._compacted = compacted
        self._damaged = self._after_gap = False

    @property
    def is_done(self) -> bool:
        """Whether the result of every segment has arrived."""
        return self._taken == len(self.segments)

    @property
    def is_changed(self) -> bool:
        """Whether a running server replaced or removed a log meanwhile."""
        return self._is_gone or self.view.is_changed(self.address)

    def parts(self) -> Iterator[SegmentPart]:
        """Yield a part for every segment.

        A part includes the open transactions if the results of all segments before it have arrived.
        """
        for at, segment in enumerate(self.segments):
            part = self._part(segment, last=at == len(self.segments) - 1)
            yield replace(part, open_transactions=self._open) if at == self._taken else part

    def _part(self, segment: SegmentPlan, *, last: bool) -> SegmentPart:
        view, plan = self.view, self.plan
        assert plan is not None
        log = Log.of(segment, plan.partition, whole=True)
        return SegmentPart(
            fs=view.base,
            log=replace(log, stored_at=view.fs.base_path(segment.path)),
            indexes=view.index_places(segment),
            snapshot=view.snapshot_place(segment),
            start_offset=plan.start_offset,
            epochs=plan.stored_epochs,
            interval_bytes=self._interval_bytes,
            left_behind=self._left_behind,
            open_end=last and not view.clean,
        )

    def take(
        self,
        part: SegmentPart,
        result: SegmentResult,
        again: Callable[[SegmentPart], SegmentResult],
    ) -> None:
        """Add the next segment's result, and the count of its log; `again` reads the segment once more."""
        if result.transactional and result.opened != self._open:
            result = again(replace(part, open_transactions=self._open))
        segment = self.segments[self._taken]
        self._taken += 1
        log = part.log
        self._is_gone |= result.is_gone
        self._damaged |= result.damaged
        self._compacted |= result.compacted
        self.found += _missing(log, segment)
        self.found += result.findings
        self._follow(log, result)
        for pair, mismatch in result.epochs.items():
            if pair not in self._reported_epochs:
                self._reported_epochs.add(pair)
                self.found.append(mismatch)
        if not self._damaged:
            self.found += result.if_undamaged
            self.found += () if self._compacted else result.if_all_is_there
        if result.transactional:
            self._open = result.left_open
        self.counts.append(
            FileCount(str(log.path), log.topic, log.partition, result.records, log.size_bytes)
        )

    def _follow(self, log: Log, result: SegmentResult) -> None:
        """Check that the offsets continue from one segment to the next."""
        expected = self._next_offset
        if result.first is not None and not self._after_gap:
            position, found = result.first
            if found > expected and not is_reported(self._left_behind, expected, found):
                self._holes.append(hole(log, position, expected=expected, found=found))
        self._holes += result.holes
        if result.next_offset is None:
            self._after_gap |= result.after_gap
        else:
            self._next_offset, self._after_gap = result.next_offset, result.after_gap

    def all(self) -> Sequence[Finding]:
        """Return the findings of the logs and the indexes. Offsets removed by compaction are not a hole."""
        if not self._compacted or self.plan is None:
            return [*self.found, *self._holes]
        return [*self.found, *segments_without_log(self.view.files, self.plan)]


def _known_interval(view: View, topic: str) -> int | None:
    """Return index.interval.bytes if it is configured, else None: a foreign store may not use the default."""
    if INDEX_INTERVAL not in view.configs_of(topic):
        return None
    return view.settings_of(topic).index_interval_bytes


def _missing(log: Log, segment: SegmentPlan) -> Iterator[Finding]:
    for suffix in (names.INDEX, names.TIME_INDEX):
        if suffix not in segment.suffixes:
            yield finding(
                "missing-index",
                log.path.with_name(segment_name(log.base_offset, suffix)),
                topic=log.topic,
                partition=log.partition,
                message="the next start rebuilds it",
            )
