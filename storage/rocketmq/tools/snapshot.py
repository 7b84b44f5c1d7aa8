"""A store's files as they were at one moment, handed to parts that each read a section of them.

Owns the list of files with their ends, and opening them in another process; must not judge, and must not list
folders again: all parts see the same store, also one that grows meanwhile. Picklable and small: some numbers
for each queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.files import FileSystem, HandleCache
from storage.rocketmq.format import names
from storage.rocketmq.format.message import PADDING_SIZE, Message, decode_message, peek
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import KeyIndexFile
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery.store_files import StoreFiles
from storage.rocketmq.state.settings import Sizes
from storage.rocketmq.state.topics import DeletedRecords
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.rocketmq.tools.verify.queues import QueueContext

OPEN_FILES: Final = 64


class QueueFiles(NamedTuple):
    """The files of a queue by base offset, its next offset, and the position in the log where its last record ends."""

    topic: str
    queue_id: int
    bases: Sequence[int]
    end: int
    last_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """The list of a store's files. `deleted`: records deleted with their topic. `rebuilt_from`: see QueueContext.
    `index_paths` None: the index is disabled.
    """

    fs: FileSystem
    log_folders: Sequence[Path]
    log_bases: Sequence[int]
    queue_directory: Path
    queues: Sequence[QueueFiles]
    batch_topics: frozenset[str]
    queues_in_database: bool
    index_directory: Path
    index_paths: Sequence[Path] | None
    sizes: Sizes
    clean: bool
    deleted: DeletedRecords
    index_tags: bool
    delays_ms: Sequence[int] | None
    extended: bool
    rebuilt_from: int | None

    def surroundings(
        self, run: FileSequence, damaged_between: Callable[[int, int], bool]
    ) -> QueueContext:
        """Return the facts about the log that the checks of queues and index need."""
        return QueueContext(
            run.start,
            self.rebuilt_from,
            damaged_between,
            extended=self.extended,
            levels_given=self.delays_ms is not None,
            fillers_hide=not run.lacks_first,
            record_at=lambda at: _record_at(run, at),
        )

    def live(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Return the dispatches of records that were not deleted with their topic."""
        return [d for d in dispatches if not self.deleted.holds(d.topic, d.physical_offset)]

    @contextmanager
    def opened(self) -> Iterator[StoreFiles]:
        """Open the store's parts, with the files of the snapshot."""
        files = HandleCache(self.fs, OPEN_FILES)
        run = FileSequence(
            files,
            self.log_folders[0],
            self.sizes.commit_log_bytes,
            kind=names.COMMIT_LOG,
            folders=self.log_folders,
        )
        run.take_as_there(self.log_bases)
        queues = QueueTable(
            files,
            self.queue_directory,
            self.sizes.consume_queue_bytes,
            batch_topics=self.batch_topics,
        )
        for topic, queue_id, bases, end, last_end in self.queues:
            queues.add(topic, queue_id).units.look_at(bases, end, last_end)
        index = None
        if self.index_paths is not None:
            index = self._index(files)
            index.look_at(self.index_paths)
        try:
            yield StoreFiles(files=files, run=run, queues=queues, index=index)
        finally:
            files.close(sync=False)

    @contextmanager
    def opened_index_file(self, at: int) -> Iterator[KeyIndexFile]:
        """Open one index file by its number, without the rest of the store."""
        files = HandleCache(self.fs, OPEN_FILES)
        try:
            index = self._index(files)
            index.look_at([(self.index_paths or ())[at]])
            yield index.index_files[0]
        finally:
            files.close(sync=False)

    def _index(self, files: HandleCache) -> KeyIndex:
        slots, entries = self.sizes.index_slots, self.sizes.index_entries
        return KeyIndex(files, self.index_directory, slots=slots, entries=entries, clock=lambda: 0)


def _record_at(run: FileSequence, physical_offset: int) -> Message | None:
    """Return the good record that begins at a physical offset, or None."""
    try:
        size, _ = peek(run.read(physical_offset, PADDING_SIZE), 0)
        return decode_message(run.read(physical_offset, max(size, 0)))
    except DataError:
        return None


def snapshot_of(raw: UnrecoveredStore) -> StoreSnapshot:
    """Return the snapshot of the store's current files."""
    index = raw.index
    queues = [
        QueueFiles(*queue.partition, tuple(units.run.bases), units.end, units.last_end)
        for queue in raw.queues
        for units in (queue.units,)
    ]
    return StoreSnapshot(
        fs=raw.fs,
        log_folders=raw.run.folders,
        log_bases=tuple(raw.run.bases),
        queue_directory=raw.directory.consume_queue,
        queues=queues,
        batch_topics=raw.queues.batch_topics,
        queues_in_database=raw.directory.queues_in_database(),
        index_directory=raw.directory.index,
        index_paths=None if index is None else [file.path for file in index.index_files],
        sizes=raw.sizes,
        clean=raw.clean,
        deleted=raw.deleted,
        index_tags=raw.settings.index_tags,
        delays_ms=raw.settings.delays_ms,
        extended=raw.fs.exists(raw.root / names.QUEUE_EXTENSION),
        rebuilt_from=None if raw.clean else raw.checkpoint.logics_physical_offset,
    )
