"""Rebuilding queues or index of a store: one walk over its log, then the new files are put in place.

Owns building, comparing, keeping old files and putting new files in place; must not write the log. The rules are the
engine's. With `write` the caller holds the store's lock. The new folder is built in `DIR.rebuild-TIME` next to the
store and synced. Then the old folder is moved to `DIR.cut-TIME`, and the new folder to its place, with one rename each:

    DIR/consumequeue -> DIR.cut-TIME/consumequeue      DIR.rebuild-TIME/consumequeue -> DIR/consumequeue

A crash between the renames leaves a store without that folder, and both folders next to it. Another rebuild then
repairs the store. Without `write` all files are built in memory, a piece at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from storage.contract import Progress
from storage.files import FileSystem, HandleCache, OverlayFileSystem, copy_range
from storage.findings import finding
from storage.model import Finding, RebuildReport, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.format.queue_entry import FILLER, UNIT, UNIT_SIZE
from storage.rocketmq.index.consume_queue import NOWHERE
from storage.rocketmq.index.dispatch import Dispatch
from storage.rocketmq.index.dispatcher import Builder
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.light_queues import lmq_dispatches
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.recovery.losses import moved_record, refused_record
from storage.rocketmq.recovery.topic_incarnations import TopicIncarnations
from storage.rocketmq.tools.log_walk import Padding
from storage.rocketmq.tools.rebuild.files import is_same
from storage.rocketmq.tools.rebuild.log_range import DispatchWalk
from storage.rocketmq.tools.rebuild.recount import Built, count_entries, count_index, count_queues
from storage.rocketmq.tools.unrecovered import RawStore
from storage.rocketmq.tools.verify.due_times import as_told
from storage.rocketmq.tools.verify.queues import QueueContext, Range, damaged_in, wrong_units
from storage.rocketmq.tools.view import View
from storage.shared.diagnostics import Meter, Notes
from storage.shared.recount import check_files

QUEUES: Final = names.CONSUME_QUEUE
INDEX: Final = "indexfile"


class Rebuild:
    """One rebuild from the log of a store."""

    def __init__(
        self,
        view: View,
        raw: RawStore,
        what: str,
        *,
        write: bool,
        progress: Progress,
        fs: FileSystem | None = None,
    ) -> None:
        """Prepare the build. `fs` is the file system to build in; None: the store's with `write`, memory without."""
        moment_ms = view.clock()
        self._view = view
        self._raw = raw
        self._what = what
        self._write = write
        self._progress = progress
        self._notes = Notes()
        self._fs = fs or (view.base if write else OverlayFileSystem())
        self._made_dir = view.root.parent / f"{view.root.name}.rebuild-{moment_ms}"
        self._kept_dir = view.root.parent / f"{view.root.name}.cut-{moment_ms}"
        self._name = names.CONSUME_QUEUE if what == QUEUES else names.INDEX
        self._files = HandleCache(self._fs, view.options.open_files)
        self._queues = QueueTable(
            self._files,
            self._made_dir / names.CONSUME_QUEUE,
            raw.sizes.consume_queue_bytes,
            batch_topics=raw.queues.batch_topics,
        )
        self._index = KeyIndex(
            self._files,
            self._made_dir / names.INDEX,
            slots=raw.sizes.index_slots,
            entries=raw.sizes.index_entries,
            clock=view.clock,
        )
        self._builder = Builder(self._queues, None, {}, with_fillers=raw.run.lacks_first)
        self._old_index = _index_paths(view.base, raw.directory.index)
        self._compared: dict[Path, bool] = {}  # a file of the store -> whether it stays as it is
        self._indexed = 0  # index files that were compared
        self._strings_put = 0  # strings put into the index
        self._files_made = 0  # queue files that parts built, perhaps in other processes
        self._last: Dispatch | None = None
        self._left_out = 0  # records of deleted topics
        self._begun: set[str] = set()  # topics found to be deleted and created again, see Lives
        self._gaps: list[Range] = []  # bad places of the log
        self._mended: set[TopicPartition] = set()  # queues that had impossible entries
        self._index_end_ms = 0  # store time of the last record that is indexed

    def run(self) -> RebuildReport | None:
        """Build, compare and, with `write`, put the new files in place.

        Return None if the walk found topics that were deleted and created again. `raw.deleted` now knows them, nothing
        was put in place, and the caller must rebuild again.
        """
        try:
            self._fs.make_dir(self._made_dir)
            self._build()
            if self._begun:
                return None
            self._mend_kept()
            self._note_old()
            changed = [str(path) for path, same in self._compared.items() if not same]
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
                files=len(self._compared),
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
        for batch, in_lmqs in self._dispatches():
            if self._what == QUEUES:
                self._builder.build_queues([*batch, *in_lmqs])
            else:
                self._index.put_all(batch)
                self._strings_put += sum(len(dispatch.keys) for dispatch in batch)
            self._last = batch[-1] if batch else self._last
            if not self._write:
                self._compare(finished=False)
        if self._what == QUEUES:
            for queue in self._queues:
                queue.units.sync()
        else:
            self._index.sync()
        self._index_end_ms = self._index.end_timestamp_ms
        builder = self._builder
        self._note_records(builder.refused, list(builder.moved.values()))
        self._compare(finished=True)

    def _dispatches(self) -> Iterator[tuple[Sequence[Dispatch], Sequence[Dispatch]]]:
        """Yield the dispatches of all records that are not deleted, and those to LMQ queues, some at a time."""
        raw = self._raw
        meter = Meter(self._progress, f"rebuilding {self._what}", raw.run.limit - raw.run.start)
        walk = DispatchWalk(
            raw.run, raw.queues, self._notes, end=raw.run.limit, meter=meter, clean=raw.clean
        )
        with_tags, delays_ms = raw.settings.index_tags, raw.settings.delays_ms
        lives = TopicIncarnations(raw.run, raw.queues, raw.deleted)
        for stretch in walk.stretches():
            if isinstance(stretch, Padding):
                continue
            found = walk.dispatches(stretch, with_tags=with_tags, delays_ms=delays_ms)
            kept = lives.without(found)
            if self._what == QUEUES and delays_ms is None:
                kept = as_told(kept, raw.queues, self._notes)
            self._begun |= lives.begun.keys()
            self._left_out += len(stretch.records) - len(kept)
            in_lmqs = lmq_dispatches(stretch, raw.queues)
            yield kept, self._builder.live(in_lmqs)
        self._gaps = walk.gaps

    def _note_records(self, refused: Sequence[Dispatch], moved: Sequence[Dispatch]) -> None:
        """Report records that no queue can take, and records that got another queue offset than their own."""
        run = self._raw.run
        self._notes.add(*(refused_record(run, dispatch) for dispatch in refused))
        self._notes.add(*(moved_record(run, dispatch) for dispatch in moved))

    def _mend_kept(self) -> None:
        """Rebuild queues without a record in the log whose entries lead into the log, or to impossible places. Entries
        are kept up to the last possible one, so that the queue continues at the offset after it. Impossible entries
        before it become fillers.
        """
        log = self._raw.run
        if self._what == INDEX or not log.bases:  # perhaps the log's disk is not mounted
            return
        surroundings = QueueContext(log.start, None, damaged_in(self._gaps))
        for queue in filter(self._is_kept, self._raw.queues):
            wrong = wrong_units(queue, surroundings) if queue.units.run.is_whole else None
            if wrong:
                self._mend(queue, wrong)

    def _mend(self, queue: Queue, wrong: Collection[int]) -> None:
        units, made = queue.units, self._queues.add(*queue.partition)
        first, end = units.first_offset, units.end
        while end - 1 in wrong:
            end -= 1
        good = (
            FILLER if offset in wrong else UNIT.pack(*units.unit(offset))
            for offset in range(first, end)
        )
        made.units.append(b"".join(good), first, NOWHERE)
        made.units.sync()
        self._mended.add(queue.partition)
        self._compare_queue(made, finished=True)
        if not self._write:
            made.units.run.remove(made.units.run.bases)

    # ---- comparing -----------------------------------------------------------------------------

    def _compare(self, *, finished: bool) -> None:
        """Compare the new files that are complete. Without `write`, remove them from memory after that."""
        if self._what == QUEUES:
            for queue in self._queues:
                self._compare_queue(queue, finished=finished)
        else:
            self._compare_index(finished=finished)

    def _compare_queue(self, queue: Queue, *, finished: bool) -> None:
        run = queue.units.run
        topic, queue_id = queue.partition
        folder = self._raw.directory.consume_queue / topic / str(queue_id)
        written = queue.units.end * UNIT_SIZE
        done = [base for base in run.bases if finished or base + run.file_bytes <= written]
        for base in done:
            self._compare_file(run.path(base), folder / names.file_name(base))
        if done and not self._write and not finished:
            run.remove(done)

    def _compare_index(self, *, finished: bool) -> None:
        made = self._index.index_files
        done = made if finished else made[:-1]
        for file in done:
            known = self._indexed < len(self._old_index)
            old = self._raw.directory.index / file.path.name
            self._compare_file(file.path, self._old_index[self._indexed] if known else old)
            self._indexed += 1
        if done and not self._write and not finished:
            self._index.delete_before(done[-1].header.end_physical_offset + 1)

    def _compare_file(self, made: Path, old: Path) -> None:
        self._compared[old] = is_same(self._fs, made, self._raw.fs, old)

    def _note_old(self) -> None:
        """Note the old files that the rebuild removes, and the files of kept queues."""
        if self._what == INDEX:
            for path in self._old_index[self._indexed :]:
                self._compared[path] = False
            return
        for queue in self._raw.queues:
            run = queue.units.run
            kept = self._is_kept(queue)
            for base in run.bases:
                self._compared.setdefault(run.path(base), kept)
        folders = self._raw.directory.queue_folders()
        for topic in self._raw.queues.batch_topics.intersection(folders):
            self._compared[self._raw.directory.consume_queue / topic] = False

    def _note_left_out(self) -> None:
        """Explain why index files without an error change."""
        if self._what == INDEX and self._left_out:
            self._notes.add(
                finding(
                    "deleted-left-out",
                    self._raw.directory.index,
                    message=f"{self._left_out} records of deleted topics are left out, so that files "
                    "change that have no fault",
                )
            )

    def _is_kept(self, queue: Queue) -> bool:
        """Return whether the log has no record left of a queue. Only the queue's files know its next offset, so they
        stay as they are.
        """
        return queue.partition not in self._mended and not self._is_in_log(queue)

    def _is_in_log(self, queue: Queue) -> bool:
        made = self._queues.get(*queue.partition)
        return made is not None and not made.units.is_empty

    # ---- putting in place ----------------------------------------------------------------------

    def _keep_queues(self) -> None:
        """Copy the files of kept queues to the new folder."""
        if self._what == INDEX:
            return
        for queue in self._raw.queues:
            run = queue.units.run
            topic, queue_id = queue.partition
            if not run.bases or not self._is_kept(queue):
                continue
            folder = self._made_dir / names.CONSUME_QUEUE / topic / str(queue_id)
            self._fs.make_dir(folder)
            for base in run.bases:
                copy_range(self._fs, run.path(base), folder / names.file_name(base), start=0)
            for synced in (folder, folder.parent, folder.parent.parent):
                self._fs.sync_dir(synced)

    def _reported(self) -> Built:
        """Return the contents of the new folder by the count of the builders."""
        if self._what == INDEX:
            return Built({self._made_dir / self._name: self._strings_put}, self._indexed)
        kept = {
            self._made_dir / names.CONSUME_QUEUE / q.partition.topic / str(q.partition.partition): q
            for q in self._raw.queues
            if q.units.run.bases and self._is_kept(q)
        }
        files = sum(len(q.units.run.bases) for q in (*self._queues, *kept.values()))
        entries = {folder: count_entries(q.units) for folder, q in kept.items()}
        return Built({**entries, **self._queues_made()}, files + self._files_made)

    def _queues_made(self) -> dict[Path, int]:
        """Return the number of entries of the queues that were built, by folder."""
        return {
            q.units.directory: q.units.end - q.units.first_offset
            for q in self._queues
            if q.units.run.bases
        }

    def _recount(self, reported: Built) -> None:
        """Open the new files and check their counts, before they are put in place."""
        view, sizes, folder = self._view, self._raw.sizes, self._made_dir / self._name
        counted = (
            count_index(self._fs, folder, sizes, view.clock)
            if self._what == INDEX
            else count_queues(self._fs, folder, sizes)
        )
        advice = "The store is unchanged"
        check_files(reported.entries, counted.entries, what="entries", advice=advice)
        check_files({folder: reported.files}, {folder: counted.files}, what="files", advice=advice)

    def _swap(self) -> None:
        """Move the old folder aside and the new folder to its place; durable on return."""
        fs, root = self._fs, self._raw.root
        old, made = root / self._name, self._made_dir / self._name
        fs.sync_dir(self._made_dir)
        if fs.exists(old):
            fs.make_dir(self._kept_dir)
            fs.rename(old, self._kept_dir / self._name)
            fs.sync_dir(self._kept_dir)
            self._notes.add(self._kept_aside())
        if fs.exists(made):
            fs.rename(made, old)
        for folder in (root, self._made_dir, root.parent):
            fs.sync_dir(folder)

    def _write_checkpoint(self) -> None:
        """Record in the checkpoint that the new files are on disk."""
        last = self._last
        if last is None:
            return
        found = self._raw.directory.checkpoint()
        checkpoint: Checkpoint
        if self._what == QUEUES:
            checkpoint = found._replace(
                logics_msg_timestamp_ms=last.store_timestamp_ms,
                logics_physical_offset=last.physical_offset,
            )
        else:
            checkpoint = found._replace(index_msg_timestamp_ms=self._index_end_ms)
        self._raw.directory.write_checkpoint(checkpoint)

    def _kept_aside(self) -> Finding:
        return finding("kept-aside", self._kept_dir, message="the files that rebuild replaced")


def _index_paths(fs: FileSystem, folder: Path) -> Sequence[Path]:
    """Return the index files, the oldest first."""
    found = fs.list_dir(folder) if fs.is_dir(folder) else ()
    named = (folder / name for name in found if names.parse_index_name(name) is not None)
    return [path for path in named if not fs.is_dir(path)]
