"""Rebuilding queues or index of a store from its commit log alone. The real store does not guarantee that this works.

Owns the refusals, building, comparing, keeping old files and putting new files in place; must not write the log. The
rules are the engine's. Without `write` all files are built in memory, a piece at a time, and the disk is not touched.
With `write` the store's lock is held all the time. The new folder is built in `DIR.rebuild-TIME` next to the store and
synced: here in one walk over the log, or in parts (first the log ranges are staged, then queues or index files are
built of the staged data). Then the old folder is moved to `DIR.cut-TIME`, and the new folder to its place, with one
rename each:

    DIR/consumequeue -> DIR.cut-TIME/consumequeue      DIR.rebuild-TIME/consumequeue -> DIR/consumequeue

A crash between the renames leaves a store without that folder, and both folders next to it. Another rebuild then
repairs the store. The staged data is about 20 bytes a record for queues, and 20 bytes a string for the index.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from storage.contract import Progress, TaskRunner, run_serially
from storage.errors import InvalidArgument, NotOffered
from storage.files import FileSystem, HandleCache, OverlayFileSystem, copy_range
from storage.findings import finding
from storage.model import RebuildReport
from storage.rocketmq.format import names
from storage.rocketmq.format.queue_entry import FILLER, UNIT
from storage.rocketmq.index.consume_queue import NOWHERE
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.recovery.losses import moved_record, refused_record
from storage.rocketmq.state import live_data
from storage.rocketmq.state.root import StoreDirectory, take_lock
from storage.rocketmq.tools.rebuild.files import BuiltFiles, Site, compare_queue
from storage.rocketmq.tools.rebuild.recount import Built, count_entries, count_index, count_queues
from storage.rocketmq.tools.rebuild.single_walk import build_here
from storage.rocketmq.tools.rebuild.staged import build_in_parts
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.rocketmq.tools.verify.queues import QueueContext, damaged_in, wrong_units
from storage.rocketmq.tools.view import View
from storage.shared.diagnostics import Meter, Notes
from storage.shared.recount import check_files

QUEUES: Final = names.CONSUME_QUEUE
INDEX: Final = "indexfile"
KINDS: Final = (QUEUES, INDEX)


def rebuild(
    view: View, what: str, *, write: bool, progress: Progress, run: TaskRunner = run_serially
) -> RebuildReport:
    """See SupportsInspect.rebuild, and SupportsParts for `run`. Raises:

    - StoreLocked: a server owns the store (only with `write`);
    - InvalidArgument: an unknown `what`, or PATH is only a part of a store;
    - NotOffered: the queues have an extension file or are in a database, or DLedger keeps the log.
    """
    if what not in KINDS:
        raise InvalidArgument(
            f"rebuild: {what!r} is unknown here, choose one of {', '.join(KINDS)}", field="what"
        )
    if not view.is_whole:
        raise InvalidArgument(
            "rebuild needs the whole store: all of it is in one log", field="path"
        )
    if what == QUEUES and view.base.exists(view.root / names.QUEUE_EXTENSION):
        raise NotOffered(
            f"rebuild: {names.QUEUE_EXTENSION} holds what the log does not tell", feature="rebuild"
        )
    live_data.refuse_dledger(StoreDirectory(view.base, view.root))
    if what == QUEUES and StoreDirectory(view.base, view.root).queues_in_database():
        raise NotOffered("rebuild: the broker keeps its queues in RocksDB", feature="rebuild")
    lock = take_lock(view.base, view.root) if write else None
    try:
        raw = UnrecoveredStore(view.root, view.options, fs=view.base, clock=view.clock)
        try:
            report: RebuildReport | None = None
            while report is None:
                report = _Rebuild(view, raw, what, write=write, progress=progress, run=run).run()
            return report
        finally:
            raw.close()
    finally:
        if lock is not None:
            lock.release()


class _Rebuild:
    """One rebuild from the log of a store."""

    def __init__(
        self,
        view: View,
        raw: UnrecoveredStore,
        what: str,
        *,
        write: bool,
        progress: Progress,
        run: TaskRunner,
    ) -> None:
        moment_ms = view.clock()
        self._view = view
        self._raw = raw
        self._what = what
        self._write = write
        self._progress = progress
        self._run = run if write else run_serially
        self._notes = Notes()
        self._fs: FileSystem = view.base if write else OverlayFileSystem()
        self._made_dir = view.root.parent / f"{view.root.name}.rebuild-{moment_ms}"
        self._kept_dir = view.root.parent / f"{view.root.name}.cut-{moment_ms}"
        self._name = names.CONSUME_QUEUE if what == QUEUES else names.INDEX
        self._files = HandleCache(self._fs, view.options.open_files)
        self._site = Site(
            fs=self._fs,
            made=self._made_dir / self._name,
            old=raw.root / self._name,
            old_fs=raw.fs,
            old_index=_index_paths(view.base, raw.directory.index),
            sizes=raw.sizes,
            with_fillers=raw.run.lacks_first,
            batch_topics=raw.queues.batch_topics,
            write=write,
        )
        self._built = BuiltFiles()

    def run(self) -> RebuildReport | None:
        """Build, compare and, with `write`, put the new files in place.

        Return None if the walk found topics that were deleted and created again. `raw.deleted` now knows them, nothing
        was put in place, and the caller must rebuild again.
        """
        try:
            self._fs.make_dir(self._made_dir)
            self._build()
            if self._built.begun:
                return None
            self._mend_kept()
            self._note_old()
            changed = [str(path) for path, same in self._built.compared.items() if not same]
            if changed:
                self._note_left_out()
            if self._write and changed:
                self._keep_queues()
                self._files.close(sync=False)
                self._recount(self._reported())
                self._swap()
                self._write_checkpoint()
            return RebuildReport(
                what=self._what,
                written=self._write,
                files=len(self._built.compared),
                changed=sorted(changed),
                findings=self._notes.all(),
            )
        finally:
            self._files.close(sync=False)
            if self._fs.exists(self._made_dir):
                self._fs.remove_tree(self._made_dir)
                self._fs.sync_dir(self._made_dir.parent)

    # ---- building ------------------------------------------------------------------------------

    def _build(self) -> None:
        """Build all files, and compare them with the store's files."""
        log, for_queues = self._raw.run, self._what == QUEUES
        meter = Meter(self._progress, f"rebuilding {self._what}", log.limit - log.start)
        if self._run is run_serially:
            clock = self._view.clock
            built = build_here(
                self._site, self._raw, self._files, meter, for_queues=for_queues, clock=clock
            )
        else:
            staged = self._made_dir / "log_ranges"
            self._fs.make_dir(staged)
            built = build_in_parts(
                self._site,
                self._raw,
                self._run,
                meter,
                for_queues=for_queues,
                staged_dir=staged,
                clock=self._view.clock,
            )
        self._built = built
        self._notes.add(*built.notes)
        self._notes.add(*(refused_record(log, dispatch) for dispatch in built.refused))
        self._notes.add(*(moved_record(log, dispatch) for dispatch in built.moved))

    def _mend_kept(self) -> None:
        """Rebuild queues without a record in the log whose entries lead into the log, or to impossible places. Entries
        are kept up to the last possible one, so that the queue continues at the offset after it. Impossible entries
        before it become fillers.
        """
        log = self._raw.run
        if self._what == INDEX or not log.bases:  # perhaps the log's disk is not mounted
            return
        surroundings = QueueContext(log.start, None, damaged_in(self._built.gaps))
        for queue in filter(self._is_kept, self._raw.queues):
            wrong = wrong_units(queue, surroundings) if queue.units.run.is_whole else None
            if wrong:
                self._mend(queue, wrong)

    def _mend(self, queue: Queue, wrong: Collection[int]) -> None:
        units = queue.units
        first, end = units.first_offset, units.end
        while end - 1 in wrong:
            end -= 1
        good = (
            FILLER if offset in wrong else UNIT.pack(*units.unit(offset))
            for offset in range(first, end)
        )
        made = self._site.queues(self._files).add(*queue.partition).units
        made.append(b"".join(good), first, NOWHERE)
        made.sync()
        self._built.entries[queue.partition] = made.end - made.first_offset
        self._built.files += compare_queue(
            self._site, made, queue.partition, self._built.compared, finished=True
        )

    # ---- comparing -----------------------------------------------------------------------------

    def _note_old(self) -> None:
        """Note the old files that the rebuild removes, and the files of kept queues."""
        compared = self._built.compared
        if self._what == INDEX:
            for path in self._site.old_index[self._built.files :]:
                compared[path] = False
            return
        for queue in self._raw.queues:
            run = queue.units.run
            kept = self._is_kept(queue)
            for base in run.bases:
                compared.setdefault(run.path(base), kept)
        folders = self._raw.directory.queue_folders()
        for topic in self._raw.queues.batch_topics.intersection(folders):
            compared[self._raw.directory.consume_queue / topic] = False

    def _note_left_out(self) -> None:
        """Explain why index files without an error change."""
        left_out = self._built.left_out
        if self._what == INDEX and left_out:
            self._notes.add(
                finding(
                    "deleted-left-out",
                    self._raw.directory.index,
                    message=f"{left_out} records of deleted topics are left out, so that files "
                    "change that have no fault",
                )
            )

    def _is_kept(self, queue: Queue) -> bool:
        """Return whether the log has no record left of a queue. Only the queue's files know its next offset, so they
        stay as they are.
        """
        return queue.partition not in self._built.entries

    # ---- putting in place ----------------------------------------------------------------------

    def _kept(self) -> dict[Path, Queue]:
        """Return the kept queues that have files, by their folder among the new files."""
        return {
            self._site.folder_of(queue.partition): queue
            for queue in self._raw.queues
            if self._what == QUEUES and queue.units.run.bases and self._is_kept(queue)
        }

    def _keep_queues(self) -> None:
        """Copy the files of kept queues to the new folder."""
        for folder, queue in self._kept().items():
            run = queue.units.run
            self._fs.make_dir(folder)
            for base in run.bases:
                copy_range(self._fs, run.path(base), folder / names.file_name(base), start=0)
            for synced in (folder, folder.parent, folder.parent.parent):
                self._fs.sync_dir(synced)

    def _reported(self) -> Built:
        """Return the contents of the new folder by the count of the builders."""
        built = self._built
        if self._what == INDEX:
            return Built({self._site.made: built.strings}, built.files)
        kept = self._kept()
        entries = {folder: count_entries(queue.units) for folder, queue in kept.items()}
        entries |= {self._site.folder_of(key): n for key, n in built.entries.items() if n}
        return Built(entries, built.files + sum(len(q.units.run.bases) for q in kept.values()))

    def _recount(self, reported: Built) -> None:
        """Open the new files and check their counts, before they are put in place."""
        sizes, folder = self._raw.sizes, self._site.made
        counted = (
            count_index(self._fs, folder, sizes, self._view.clock)
            if self._what == INDEX
            else count_queues(self._fs, folder, sizes)
        )
        advice = "The store is unchanged"
        check_files(reported.entries, counted.entries, what="entries", advice=advice)
        check_files({folder: reported.files}, {folder: counted.files}, what="files", advice=advice)

    def _swap(self) -> None:
        """Move the old folder aside and the new folder to its place; durable on return."""
        fs, old, made = self._fs, self._site.old, self._site.made
        fs.sync_dir(self._made_dir)
        if fs.exists(old):
            fs.make_dir(self._kept_dir)
            fs.rename(old, self._kept_dir / self._name)
            fs.sync_dir(self._kept_dir)
            what = "the files that rebuild replaced"
            self._notes.add(finding("kept-aside", self._kept_dir, message=what))
        if fs.exists(made):
            fs.rename(made, old)
        for folder in (self._raw.root, self._made_dir, self._raw.root.parent):
            fs.sync_dir(folder)

    def _write_checkpoint(self) -> None:
        """Record in the checkpoint that the new files are on disk."""
        last = self._built.last
        if last is None:
            return
        checkpoint = self._raw.directory.checkpoint()
        if self._what == QUEUES:
            checkpoint = checkpoint._replace(
                logics_msg_timestamp_ms=last.store_timestamp_ms,
                logics_physical_offset=last.physical_offset,
            )
        else:
            checkpoint = checkpoint._replace(index_msg_timestamp_ms=self._built.index_end_ms)
        self._raw.directory.write_checkpoint(checkpoint)


def _index_paths(fs: FileSystem, folder: Path) -> Sequence[Path]:
    """Return the index files, the oldest first."""
    found = fs.list_dir(folder) if fs.is_dir(folder) else ()
    named = (folder / name for name in found if names.parse_index_name(name) is not None)
    return [path for path in named if not fs.is_dir(path)]
