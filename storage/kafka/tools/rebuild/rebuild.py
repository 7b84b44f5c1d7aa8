"""Rebuild of indexes from the logs: offset, time and transaction index of every segment.

Owns which files are compared, kept aside and replaced; rebuild_segment does one segment, in any
process. Must not write logs. With `write` it holds the store's lock all the time:

1. New bytes are written to `DIR.rebuild-TIME` next to the store.
2. Every file that changes is copied to `DIR.cut-TIME`.
3. The file is replaced in one step: a crash leaves either the old or the new file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from storage.contract import TaskRunner, run_serially
from storage.errors import InvalidArgument
from storage.files import atomic_write
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.plan import PartitionPlan, SegmentPlan
from storage.kafka.recovery.evidence import end_by_index
from storage.kafka.state import blocked_files
from storage.kafka.state.log_dirs import log_directory, refuse_several
from storage.kafka.state.root import detect
from storage.kafka.tools.logs import Log
from storage.kafka.tools.rebuild.recount import count_entries
from storage.kafka.tools.rebuild.segment import RebuildPart, SegmentBuilt, build_segment
from storage.kafka.tools.verify.partition import index_places, snapshot_place
from storage.kafka.tools.view import View
from storage.model import Finding, RebuildReport
from storage.shared.recount import check_files

INDEXES: Final = "indexes"


def rebuild_indexes(
    make_view: Callable[[], View], *, write: bool, run: TaskRunner = run_serially
) -> RebuildReport:
    """See SupportsInspect.rebuild. Raises StoreLocked, InvalidArgument without a store to lock, and DamagedStore if a
    folder has the name of a file.
    """
    view = make_view()
    if not write:
        return _Rebuild(view, run, write=False).run()
    refuse_several(view.directory.roots)
    if detect(view.base, view.root) is None:
        raise InvalidArgument(
            f"{view.root} is no log directory: there is nothing to lock, so nothing is written",
            field="write",
        )
    blocked_files.refuse(log_directory(view.base, view.directory.roots))
    lock = view.base.lock(view.root / names.LOCK)
    try:
        view.close()
        return _Rebuild(make_view(), run, write=True).run()
    finally:
        lock.release()


class _Given:
    """A segment with the part that was handed out for it."""

    def __init__(self, plan: PartitionPlan, segment: SegmentPlan, part: RebuildPart) -> None:
        self.plan = plan
        self.segment = segment
        self.part = part


class _Rebuild:
    """One pass over the partitions of a view."""

    def __init__(self, view: View, run: TaskRunner, *, write: bool) -> None:
        moment_ms = view.clock()
        self._view = view
        view.start_meter("rebuilding indexes", list(view.folders))
        self._run = run
        self._here = run is run_serially  # then a part reports its own progress
        self._work = partial(build_segment, meter=view.reader.meter if self._here else None)
        self._write = write
        self._files = 0
        self._changed: list[str] = []
        self._kept_dir = view.root.parent / f"{view.root.name}.cut-{moment_ms}"
        self._made_dir = view.root.parent / f"{view.root.name}.rebuild-{moment_ms}"
        self._given: deque[_Given] = deque()  # parts without results
        self._taken: PartitionPlan | None = None  # plan of the partition with the last result
        self._open: Mapping[int, int] = {}  # open transactions at the end of that result's segment

    def run(self) -> RebuildReport:
        """Compare every index file, and with `write` replace each that differs. Return the report."""
        view = self._view
        try:
            for result in self._run(self._work, self._parts()):
                self._take(result)
            if self._write and self._changed:
                view.notes.add(self._kept_aside())
            made_anew = set(self._changed)  # `changed` names these files: no findings for them
            return RebuildReport(
                what=INDEXES,
                written=self._write,
                files=self._files,
                changed=self._changed,
                findings=[found for found in view.findings() if found.path not in made_anew],
            )
        finally:
            view.close()
            if self._write and view.base.exists(self._made_dir):
                view.base.remove_tree(self._made_dir)
                view.base.sync_dir(self._made_dir.parent)

    # ---- parts ---------------------------------------------------------------------------------

    def _parts(self) -> Iterator[RebuildPart]:
        """Yield a part for every segment.

        A part includes the open transactions if the results of all parts before it have arrived.
        """
        compacted = self._view.checkpoints[names.CLEANER_OFFSETS]
        for address in self._view.those_there(self._view.folders):
            plan = self._view.plan(address)
            staged = self._made_dir / plan.directory.name if self._write else None
            for segment in plan.segments:
                if not self._view.base.exists(segment.path):
                    continue  # a segment of a `.swap` set that the next start completes
                if self._names_lost_records(plan, segment):
                    continue  # only this index names the lost records: a start needs it
                part = self._part(plan, segment, staged, compacted=address in compacted)
                if not self._given:
                    part = replace(part, open_transactions=self._open_before(plan))
                self._given.append(_Given(plan, segment, part))
                yield part

    def _names_lost_records(self, plan: PartitionPlan, segment: SegmentPlan) -> bool:
        """Whether the index of the last segment points past the end of the log."""
        if segment.limit_offset <= plan.batches_end:
            return False
        named = end_by_index(self._view.base, segment, segment.size_bytes)
        return named is not None and named.offset > plan.batches_end

    def _part(
        self, plan: PartitionPlan, segment: SegmentPlan, staged: Path | None, *, compacted: bool
    ) -> RebuildPart:
        """Return the part for the good batches below the end that recovery leaves."""
        log = Log(
            path=segment.path,
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            limit_offset=segment.limit_offset,
        )
        return RebuildPart(
            fs=self._view.base,
            log=log,
            indexes=index_places(self._view, segment),
            snapshot=snapshot_place(self._view, segment),
            interval_bytes=plan.settings.index_interval_bytes,
            compacted=compacted,
            staged=staged,
        )

    def _open_before(self, plan: PartitionPlan) -> Mapping[int, int]:
        """Return the transactions open after the last segment with a result; none where a partition begins."""
        return self._open if plan is self._taken else {}

    def _take(self, result: SegmentBuilt) -> None:
        given = self._given.popleft()
        before = self._open_before(given.plan)
        if result.transactional and result.opened != before:
            known = replace(given.part, open_transactions=before)
            (result,) = self._run(self._work, [known])
        self._taken = given.plan
        self._open = result.left_open if result.transactional else before
        if not self._here:
            self._view.reader.meter.add(given.part.log.size_bytes)
        self._view.notes.add(*result.findings)
        self._files += result.files
        for suffix, staged in result.changed.items():
            path = self._replace(given, suffix, staged)
            if self._write:
                self._recount(path, suffix, result.entries[suffix])

    # ---- putting in place ----------------------------------------------------------------------

    def _replace(self, given: _Given, suffix: str, staged: Path | None) -> Path:
        """Note the file as changed. With `write`, keep its old bytes aside, then replace it, both durably.

        Return its path.
        """
        segment, fs = given.segment, self._view.base
        path = segment.path.with_name(segment_name(segment.base_offset, suffix))
        self._changed.append(str(path))
        if not self._write:
            return path
        if suffix in segment.suffixes:
            kept = self._kept_dir / path.parent.name / path.name
            fs.make_dir(kept.parent)
            atomic_write(fs, kept, fs.read_bytes(given.part.indexes[suffix]))
        if staged is not None:
            atomic_write(fs, path, fs.read_bytes(staged))
        else:
            fs.remove(path)
            fs.sync_dir(path.parent)
        return path

    def _recount(self, path: Path, suffix: str, reported: int | None) -> None:
        """Read the replaced file, and check that it has the reported number of entries."""
        counted = count_entries(self._view.base, path, suffix)
        check_files(
            {path: reported},
            {path: counted},
            what="entries",
            advice=f"The logs are unchanged, and the files that were replaced are in {self._kept_dir}",
        )

    def _kept_aside(self) -> Finding:
        return finding("kept-aside", self._kept_dir, message="the files that rebuild replaced")
