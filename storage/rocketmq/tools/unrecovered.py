"""A store's files as they are stored, for verify and rebuild: opened, but not recovered.

Owns finding the sizes, log files, queues and index files without any change or decision; must not
judge their contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storage.contract import Clock, StoreOptions
from storage.errors import Corrupt
from storage.files import FileSystem, HandleCache
from storage.model import Finding
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.index.sizes import resolve_sizes
from storage.rocketmq.recovery.evidence import Evidence, read_evidence
from storage.rocketmq.recovery.opening import load_index, load_log
from storage.rocketmq.recovery.queue_proof import foreign_queues, misnamed_files
from storage.rocketmq.recovery.store_files import StoreFiles
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.state.settings import parse_store_settings
from storage.rocketmq.state.topics import DeletedRecords, TopicFiles


@dataclass(slots=True, kw_only=True)
class UnrecoveredFiles(StoreFiles):
    """The files as they are stored; the log in physical offsets [start, end).

    `deleted`: records deleted with their topic. `evidence`: positions and offsets recorded in other files.
    """

    start: int
    end: int
    clean: bool
    deleted: DeletedRecords = field(default_factory=DeletedRecords)
    evidence: Evidence | None = None


class UnrecoveredStore(UnrecoveredFiles):
    """The files of a whole store. Nothing is written through `files`."""

    def __init__(self, root: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        """Open the files. Raises InvalidConfig if the sizes of the index files are unknown."""
        self.root = root
        self.fs = fs
        self.findings: list[Finding] = []
        self.settings = parse_store_settings(options.settings)
        self.directory = StoreDirectory(fs, root, log_folders=self.settings.log_folders)
        self.clean = not self.directory.is_unclean()
        self.checkpoint = self.directory.checkpoint()
        stored = self.directory.store_file()
        self.is_ours = stored is not None and (self.clean or self.directory.is_left_by_us())
        self.sizes = resolve_sizes(
            fs,
            root,
            self.settings,
            None if stored is None else stored.sizes,
            findings=self.findings,
        )
        topics = TopicFiles(StoreDirectory(fs, root), read_only=True, forget_offsets=lambda _: None)
        self.files = HandleCache(fs, options.open_files)
        run = load_log(self.files, self.directory, self.sizes)
        super().__init__(
            files=self.files,
            run=run,
            queues=self._load_queues(self.directory.deleted_topics().unfinished),
            index=self._load_index(clock),
            start=run.start,
            end=run.limit,
            clean=self.clean,
            deleted=topics.deleted_records(clean=self.clean),
        )

    def _load_queues(self, unfinished: Sequence[str]) -> QueueTable:
        """Load every queue that has a folder, up to its last byte that is not zero. Topics with batch queues and topics
        with an unfinished deletion are left out. Return no queues if a database holds the entries: queue files next to
        it are leftovers of an earlier broker setup.
        """
        queue_bytes = self.sizes.consume_queue_bytes
        apart = StoreDirectory(self.fs, self.root)  # separate, so findings are not reported twice
        batch_topics = apart.batch_topics(apart.topics(read_only=True))
        queues = QueueTable(
            self.files, self.directory.consume_queue, queue_bytes, batch_topics=batch_topics
        )
        if self.directory.queues_in_database():
            return queues
        for topic, ids in self.directory.queue_folders().items():
            for queue_id in () if topic in batch_topics.union(unfinished) else ids:
                units = queues.units_of(topic, queue_id)
                units.run.load()
                self._measure(units)
                queues.add(topic, queue_id).units = units
        return queues

    def _measure(self, units: ConsumeQueue) -> None:
        try:
            end = -(-units.run.data_end(units.run.start) // UNIT_SIZE)
            units.use(units.first_offset, max(end, units.first_offset))
        except Corrupt:  # a file is shorter than it should be
            units.use(units.first_offset, units.first_offset)

    def _load_index(self, clock: Clock) -> KeyIndex | None:
        if not self.settings.index_enabled:
            return None
        index = load_index(self.files, self.directory, self.sizes, clock=clock)
        self.findings += index.findings
        return index

    def forget_foreign(self) -> None:
        """Drop the entries of a queue if they belong to another queue, or if one of its files has the name of another
        file. Their queue offsets are wrong; a start rebuilds them.
        """
        foreign = [self.queues.get(*key) for key in foreign_queues(self.queues, self.run).queues]
        misnamed = [found.queue for found in misnamed_files(self.queues, self.run)]
        for queue in [*foreign, *misnamed]:
            if queue is not None:
                queue.units.forget()

    def read_evidence(self) -> Evidence:
        """Return the positions and offsets that the small files and the index record as used."""
        apart = StoreDirectory(self.fs, self.root, enable_lmq=self.settings.enable_lmq)
        return read_evidence(apart, self.checkpoint, self.index)

    def close(self) -> None:
        """Close all open files."""
        self.files.close(sync=False)
