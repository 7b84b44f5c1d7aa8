"""Verification of a log directory: every file is read, and every error is reported.

Owns the order of the checks. verify_files checks names and small files; verify_log checks segments,
in any process; verify_partition puts their results together. Must not repair: the files are checked as
they are on the disk, with only left-over files cleared. Also reports what the next start would cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from storage.contract import Counted, TaskRunner, not_counted, run_serially
from storage.errors import IoFailure
from storage.kafka.format import names
from storage.kafka.state.file_listing import unread_findings
from storage.kafka.tools.open_transactions import transaction_findings
from storage.kafka.tools.verify import files
from storage.kafka.tools.verify.log import SegmentPart, SegmentResult, check_segment
from storage.kafka.tools.verify.partition import PartitionCheck
from storage.kafka.tools.view import View
from storage.model import Finding
from storage.shared.diagnostics import Notes


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
        self._given: deque[tuple[PartitionCheck, SegmentPart]] = deque()  # parts without results
        self._topic_ids: dict[str, str] = {}
        # A part that is read in this process reports its own progress.
        self._is_local = run is run_serially
        self._work = partial(check_segment, meter=view.reader.meter if self._is_local else None)

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of all partitions."""
        for result in self._run(self._work, self._parts()):
            self._take(result)
            yield from self._told()
        yield from self._told()
        yield from self._view.gone

    def _parts(self) -> Iterator[SegmentPart]:
        compacted = self._view.checkpoints[names.CLEANER_OFFSETS]
        for address in self._view.those_there(self._view.folders):
            plan = self._view.plan(address)
            check = PartitionCheck(self._view, plan, compacted=address in compacted)
            self._checks.append(check)
            for part in check.parts():
                self._given.append((check, part))
                yield part

    def _take(self, result: SegmentResult) -> None:
        check, part = self._given.popleft()
        self._counted(check.take(part, result, self._again))
        if not self._is_local:
            self._view.reader.meter.add(part.log.size_bytes)

    def _again(self, part: SegmentPart) -> SegmentResult:
        (result,) = self._run(self._work, [part])
        return result

    def _told(self) -> Iterator[Finding]:
        """Yield the findings of the partitions that are complete."""
        view = self._view
        while self._checks and self._checks[0].is_done:
            check = self._checks.popleft()
            plan, notes = check.plan, Notes()
            notes.add(*plan.findings)
            notes.add(*check.all())
            try:
                for count in files.derived_files(view, plan.partition):
                    self._counted(count)
                notes.add(*files.check_names(view, plan.partition))
                notes.add(*files.check_snapshots(view, plan))
                notes.add(*files.check_small_files(view, plan, self._topic_ids))
                notes.add(*files.check_against_root(view, plan))
                notes.add(*transaction_findings(plan, view.clock()))
            except IoFailure as error:
                view.note_gone(plan.partition, error)
            yield from sorted(notes.all(), key=lambda found: (found.path, found.position or 0))
