"""Verification of one partition: the results of its segments, which any process may have read, put together.

Owns the state carried from one segment to the next: consecutive offsets, epochs already reported,
damage, open transactions; must not read logs. A segment is read again if its guess of the open
transactions was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.evidence import INDEX_SUFFIXES
from storage.kafka.recovery.segment_gaps import segments_without_log
from storage.kafka.tools.logs import Log
from storage.kafka.tools.verify.holes import hole, left_behind
from storage.kafka.tools.verify.log import SegmentPart, SegmentResult
from storage.kafka.tools.view import INDEX_INTERVAL, View
from storage.model import FileCount, Finding
from storage.shared.loss_report import is_reported


class PartitionCheck:
    """The segments of one partition; their results arrive in ascending order."""

    def __init__(self, view: View, plan: PartitionPlan, *, compacted: bool) -> None:
        self.plan = plan
        self._view = view
        segments = [*plan.segments, *plan.removed_segments]
        self.segments = segments  # also segments that the next start would cut
        self.found: list[Finding] = []
        self._left_behind = left_behind(view, plan.partition)
        self._interval_bytes = _known_interval(view, plan.partition.topic)
        self._taken = 0
        self._next_offset = segments[0].base_offset if segments else 0
        self._holes: list[Finding] = []
        self._told_epochs: set[tuple[int, int | None]] = set()
        self._open: Mapping[int, int] = {}
        self._compacted = compacted
        self._damaged = self._after_gap = False

    @property
    def is_done(self) -> bool:
        """Whether the result of every segment has arrived."""
        return self._taken == len(self.segments)

    def parts(self) -> Iterator[SegmentPart]:
        """Yield a part for every segment.

        A part includes the open transactions if the results of all segments before it have arrived.
        """
        for at, segment in enumerate(self.segments):
            part = self._part(segment, last=at == len(self.segments) - 1)
            yield replace(part, open_transactions=self._open) if at == self._taken else part

    def _part(self, segment: SegmentPlan, *, last: bool) -> SegmentPart:
        view, plan = self._view, self.plan
        log = Log(
            path=segment.path,
            base_offset=segment.base_offset,
            size_bytes=segment.file_bytes,
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            limit_offset=segment.limit_offset,
            lies_at=view.fs.base_path(segment.path),
        )
        return SegmentPart(
            fs=view.base,
            log=log,
            indexes=index_places(view, segment),
            snapshot=snapshot_place(view, segment),
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
    ) -> FileCount:
        """Add the next segment's result; `again` reads the segment once more. Return the count of its log."""
        if result.transactional and result.opened != self._open:
            result = again(replace(part, open_transactions=self._open))
        segment = self.segments[self._taken]
        self._taken += 1
        log = part.log
        self._damaged |= result.damaged
        self._compacted |= result.compacted
        self.found += _missing(log, segment)
        self.found += result.findings
        self._follow(log, result)
        for pair, mismatch in result.epochs.items():
            if pair not in self._told_epochs:
                self._told_epochs.add(pair)
                self.found.append(mismatch)
        if not self._damaged:
            self.found += result.if_undamaged
            self.found += () if self._compacted else result.if_all_is_there
        if result.transactional:
            self._open = result.left_open
        return FileCount(str(log.path), log.topic, log.partition, result.records, log.size_bytes)

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
        if not self._compacted:
            return [*self.found, *self._holes]
        view = self._view
        return [*self.found, *segments_without_log(view.fs, view.files, self.plan)]


def _known_interval(view: View, topic: str) -> int | None:
    """Return index.interval.bytes if it is configured, else None: a foreign store may not use the default."""
    if INDEX_INTERVAL not in view.configs_of(topic):
        return None
    return view.settings_of(topic).index_interval_bytes


def index_places(view: View, segment: SegmentPlan) -> Mapping[str, Path]:
    """Return the paths with the bytes of a segment's index files, by suffix."""
    places: dict[str, Path] = {}
    for suffix in INDEX_SUFFIXES:
        path = segment.path.with_name(segment_name(segment.base_offset, suffix))
        if suffix not in segment.suffixes:
            continue
        lies_at = _stored_at(view, path)
        if lies_at is not None:
            places[suffix] = lies_at
    return places


def _stored_at(view: View, path: Path) -> Path | None:
    """Return the path with a file's bytes on the disk; None if only the view has them.

    The view has no such file if recovery removed it there: the partition's committed offsets were read before.
    """
    if view.fs.exists(path):
        return view.fs.base_path(path)
    return path if view.base.exists(path) else None


def snapshot_place(view: View, segment: SegmentPlan) -> Path | None:
    """Return the path of the producer snapshot at the segment's base offset, None if there is no such file."""
    path = segment.path.with_name(segment_name(segment.base_offset, names.SNAPSHOT))
    return path if view.base.exists(path) else None


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
