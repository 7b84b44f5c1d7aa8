"""The files at the root of a RocketMQ store: abort, lock, checkpoint, config/topics.json and
consumerOffset.json (or lmqConsumerOffset.json), and our own plain files beside them.

Owns reading and writing them, each atomically; must not know the log, the queues or the index. What
the reference has no file for lies in `.logserver.store.json` (that we own the store, the file sizes,
producer ids handed out), `.logserver.producers.json` (sequences of producers) and
`.logserver.deleted.json` (topics whose records still lie in the log). Other files of config/ are
never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from storage.errors import Corrupt
from storage.files import (
    STORE_FILE,
    UNFINISHED_STORE_FILE,
    FileLock,
    FileSystem,
    Recognized,
    foreign_store,
    holds_no_store,
    process_id,
    remove_if_present,
    stored_backend,
    write_durably,
)
from storage.findings import finding
from storage.model import TopicPartition
from storage.rocketmq.config_file import ConfigFile, Decoders
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from storage.rocketmq.format.config_json import decode_object
from storage.rocketmq.format.config_shapes import shape_of
from storage.rocketmq.offsets_file import StoredOffsets
from storage.rocketmq.settings import Sizes
from storage.rocketmq.topics_file import TopicTable
from storage.root_files import RootFiles, StoreFacts
from storage.sequencing import ProducerState

_T = TypeVar("_T")
BACKEND: Final = "rocketmq"
ABORT_MARK: Final = (
    b" logserver"  # behind the process id; to the real store only the file's presence counts
)
DAMAGED_TOPICS_FILE: Final = ".logserver.topics.damaged.json"
DAMAGED_OFFSETS_FILE: Final = ".logserver.consumerOffset.damaged.json"


def detect(fs: FileSystem, path: Path) -> bool | None:
    """None: no RocketMQ store; else whether it is one of ours (made by us, or taken over before)."""
    named = stored_backend(fs, path)
    return True if named == BACKEND else recognize(fs, path, named).adopted


def recognize(fs: FileSystem, path: Path, named: str | None) -> Recognized:
    """Whether a directory is a store of this backend. `named`: the backend that its store file names."""
    entries = set(fs.list_dir(path))
    holds_files = _holds_files(fs, path, entries)
    if named == BACKEND:
        return Recognized(holds_files, True)
    if holds_files:  # a damaged store file does not tell whose store this is
        return Recognized(holds_files, STORE_FILE in entries)
    begun = {names.LOCK, UNFINISHED_STORE_FILE} <= entries
    return Recognized(holds_files, True if begun else None)


def _holds_files(fs: FileSystem, path: Path, entries: Collection[str]) -> bool:
    """Whether the log has a file, or two of the other parts of a store are there."""
    log = path / names.COMMIT_LOG
    has_log = names.COMMIT_LOG in entries and fs.is_dir(log)
    if has_log and any(_is_log_file(fs, log / name) for name in fs.list_dir(log)):
        return True
    for name in entries:
        if (
            names.is_dledger_name(name)
            and fs.is_dir(path / name)
            and fs.is_dir(path / name / "data")
        ):
            return True
    parts = (
        has_log,
        names.CONSUME_QUEUE in entries and fs.is_dir(path / names.CONSUME_QUEUE),
        names.CHECKPOINT in entries and not fs.is_dir(path / names.CHECKPOINT),
        fs.exists(path / names.CONFIG / names.TOPICS),
    )
    return sum(parts) >= 2


def _is_log_file(fs: FileSystem, path: Path) -> bool:
    return names.parse_file_name(path.name) is not None and not fs.is_dir(path)


def is_empty(fs: FileSystem, path: Path) -> bool:
    """Whether nothing of a store is there yet; what an interrupted first start left does not count."""
    return holds_no_store(fs, path, lock=names.LOCK)


def refuse_other_format(fs: FileSystem, path: Path) -> None:
    """Raise UnsupportedFormat for a directory that holds something, but no RocketMQ store."""
    if not is_empty(fs, path) and detect(fs, path) is None:
        raise foreign_store(fs, path, "RocketMQ store")


def take_lock(fs: FileSystem, path: Path) -> FileLock:
    """Lock the store at `path` against other processes, the real one too. Raises StoreLocked.

    The file holds the word that the real store puts there; it is written before it is locked, since
    a locked file cannot be opened again.
    """
    lock = path / names.LOCK
    if not fs.exists(lock) or fs.size(lock) == 0:
        write_durably(fs, lock, names.LOCK_CONTENT)
    return fs.lock(lock)


class StoreFile(StoreFacts, kw_only=True):
    """The content of `.logserver.store.json`. `queued`: the ends of all queues in sum, as of the
    last checkpoint: fewer after a clean stop tell of lost files. `gaps`: parts of the log [start, end) without files
    that a start accepted as lost.
    """

    backend: str = BACKEND
    sizes: Sizes | None = None
    queued: int = 0
    gaps: tuple[tuple[int, int], ...] = ()


class DeletedTopics(msgspec.Struct, kw_only=True):
    """The content of `.logserver.deleted.json`.

    `topics`: the records of this topic below this physical offset are gone. `unfinished`: topics
    that are deleted, though their queues or their line in topics.json may still be there.
    """

    topics: dict[str, int] = {}
    unfinished: list[str] = []


class QueueProducers(msgspec.Struct, kw_only=True):
    """The producers of one queue, as storage.sequencing gives them."""

    topic: str
    queue_id: int
    producers: list[ProducerState]


class ProducerSnapshot(msgspec.Struct, kw_only=True):
    """The content of `.logserver.producers.json`: what the records below a physical offset tell."""

    physical_offset: int
    queues: list[QueueProducers]

    def by_queue(self) -> Mapping[TopicPartition, Sequence[ProducerState]]:
        """The states by the queue that they belong to."""
        return {TopicPartition(q.topic, q.queue_id): q.producers for q in self.queues}


class RememberedFile(msgspec.Struct, kw_only=True):
    """An index file: its header, and the checksums of its first `size_bytes`."""

    name: str
    header: list[int]
    size_bytes: int
    sums: bytes


class IndexProof(msgspec.Struct, kw_only=True):
    """The content of `.logserver.index.json`. Ranges are physical offsets [low, high)."""

    covered: list[tuple[int, int]]
    key_holes: list[tuple[int, int]]
    files: list[RememberedFile]
    last_record: int
    last_size: int
    last_sum: int


class StoreDirectory(RootFiles[StoreFile]):
    """The root of one store. Its own files as RootFiles; topics.json is guarded by the store's lock, the offsets file
    by that of GroupOffsets. `enable_lmq`: whether offsets are in lmqConsumerOffset.json; None: the files tell.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        enable_lmq: bool | None = None,
        log_folders: Sequence[str] = (),
    ) -> None:
        """`log_folders`: where the commit log is, if not in the store; new files go to the first."""
        super().__init__(fs, path, BACKEND, StoreFile)
        self.log_folders = tuple(map(Path, log_folders)) or (path / names.COMMIT_LOG,)
        self.commit_log = self.log_folders[0]
        self.consume_queue = path / names.CONSUME_QUEUE
        self._batch_queue = path / names.BATCH_QUEUE
        self.index = path / names.INDEX
        self.config = path / names.CONFIG
        self._topics = ConfigFile(
            fs,
            path,
            names.TOPICS,
            Decoders(TopicTable.decode, TopicTable.decode_loosely),
            damaged=DAMAGED_TOPICS_FILE,
            report=self._report_topics,
        )
        self._offsets = ConfigFile(
            fs,
            path,
            self._offsets_name(enable_lmq),
            Decoders(StoredOffsets.decode, StoredOffsets.decode_loosely),
            damaged=DAMAGED_OFFSETS_FILE,
            report=self._report_offsets,
        )

    def _offsets_name(self, enable_lmq: bool | None) -> str:
        """The one of the two files that the broker reads (BrokerController: LmqConsumerOffsetManager). A broker that
        was switched to light message queues leaves the other one behind.
        """
        if enable_lmq is None:
            lmq = self.config / names.LMQ_OFFSETS
            backup = lmq.with_name(lmq.name + names.BACKUP)
            enable_lmq = self.fs.exists(lmq) or self.fs.exists(backup)
        return names.LMQ_OFFSETS if enable_lmq else names.OFFSETS

    # ---- reading: what cannot be understood counts as missing and is reported ----

    def _read(self, name: str, decode: Callable[[bytes], _T]) -> _T | None:
        """See RootFiles. A folder in the place of the file counts as missing; it has a finding: see blocked_files."""
        return None if self.fs.is_dir(self.path / name) else super()._read(name, decode)

    def is_unclean(self) -> bool:
        """Whether the last stop was unclean: the file `abort` exists."""
        return self.fs.exists(self.path / names.ABORT)

    def is_left_by_us(self) -> bool:
        """Whether `abort` was written here: the real store's holds its process id alone."""
        abort = self.path / names.ABORT
        return not self.fs.is_dir(abort) and self.fs.read_bytes(abort).endswith(ABORT_MARK)

    def checkpoint(self) -> Checkpoint:
        """How far things were flushed; all zeros when it is not known."""
        return self._read(names.CHECKPOINT, decode_checkpoint) or Checkpoint()

    def deleted_topics(self) -> DeletedTopics:
        """Which topics were deleted here."""
        return self._read_json(names.DELETED_FILE, DeletedTopics) or DeletedTopics()

    def producers(self) -> ProducerSnapshot | None:
        """The newest snapshot of producers' sequences."""
        return self._read_json(names.PRODUCERS_FILE, ProducerSnapshot)

    def living_topics(self, table: TopicTable) -> frozenset[str] | None:
        """The topics of `table` (which was read last) and those that have a folder: any other was deleted, if the
        last stop was clean. None where that cannot be said: topics.json is missing or damaged, all of consumequeue
        is lost, or topics may be in a database.
        """
        folders = self._folders_in(self.consume_queue)
        if not folders or not self._topics.is_understood or self.databases():
            return None
        batches = self._folders_in(self._batch_queue)
        return frozenset({*table.topics, *table.unreadable, *folders, *batches})

    def databases(self) -> Sequence[Path]:
        """The folders that are RocksDB databases, where others have queues or config files."""
        configs = (self.config / name for name in self._folders_in(self.config))
        folders = (self.consume_queue, self.path / names.ROCKSDB_QUEUE, *configs)
        return [folder for folder in folders if self._is_database(folder)]

    def queues_in_database(self) -> bool:
        """Whether units are in a database; one may be there beside files of queues that are whole."""
        if self._is_database(self.consume_queue):
            return True
        return self._is_database(self.path / names.ROCKSDB_QUEUE) and not self.queue_folders()

    def _is_database(self, folder: Path) -> bool:
        current = folder / names.ROCKSDB_CURRENT
        return self.fs.exists(current) and not self.fs.is_dir(current)  # a topic may bear that name

    def _folders_in(self, folder: Path) -> Sequence[str]:
        if not self.fs.is_dir(folder):
            return ()
        return [name for name in self.fs.list_dir(folder) if self.fs.is_dir(folder / name)]

    def queue_folders(self) -> Mapping[str, Sequence[int]]:
        """The queues that have a folder below consumequeue, by topic, ascending."""
        return self._folders_below(self.consume_queue)

    def batch_topics(self, table: TopicTable) -> frozenset[str]:
        """The topics with batch queues: topics.json says so, or there are such queues."""
        return frozenset(table.batch_topics).union(self._folders_below(self._batch_queue))

    def _folders_below(self, root: Path) -> Mapping[str, Sequence[int]]:
        found = {topic: self._queues_in(root / topic) for topic in self._folders_in(root)}
        return {topic: ids for topic, ids in found.items() if ids}

    def _queues_in(self, folder: Path) -> Sequence[int]:
        return sorted(
            queue_id
            for name in self.fs.list_dir(folder)
            if (queue_id := names.parse_queue_id(name)) is not None
            and self.fs.is_dir(folder / name)
        )

    def topics(self, *, read_only: bool) -> TopicTable:
        """config/topics.json; without it, or when it is damaged, its `.bak`, as the broker does.

        When neither can be understood: Corrupt naming the file, or an empty table if `read_only`.
        """
        try:
            table = self._topics.read() or TopicTable()
        except Corrupt as error:
            if not read_only:
                hint = "Restore it; --read-only serves the topics that have queues"
                raise Corrupt(f"{error.message}. {hint}", **error.facts()) from error
            self._report_topics(
                self._topics.path, f"{error.message}; topics are those that have queues"
            )
            return TopicTable()
        for topic in table.unreadable:
            message = f"what it says of {topic!r} is no topic; it is left as it is"
            self._report_topics(self._topics.path, message)
        return table

    def _report_topics(self, path: Path, message: str) -> None:
        self._report_config("bad-topics-file", path, message)

    def offsets(self) -> StoredOffsets:
        """The offsets file of config/, or its `.bak`; when neither can be understood, no offsets."""
        try:
            return self._offsets.read() or StoredOffsets()
        except Corrupt as error:
            self._report_offsets(self._offsets.path, f"{error.message}; no group has offsets")
            return StoredOffsets()

    @property
    def offsets_path(self) -> Path:
        """The offsets file of config/."""
        return self._offsets.path

    def delay_offsets(self) -> Mapping[int, int]:
        """By delay level the offset up to which config/delayOffset.json says that records were delivered; empty where
        the file is missing or cannot be understood.
        """
        path = self.config / names.DELAY_OFFSETS
        if names.DELAY_OFFSETS not in self.config_files():
            return {}
        try:
            shape = shape_of(path.name)
            table = decode_object(self.fs.read_bytes(path), shape, kind=path.name)
        except Corrupt:
            return {}
        return {
            int(level): offset
            for level, offset in (table.get("offsetTable") or {}).items()
            if int(level) > 0 and offset >= 0
        }

    def config_files(self) -> Sequence[str]:
        """The names of the files in config/."""
        if not self.fs.is_dir(self.config):
            return ()
        return [n for n in self.fs.list_dir(self.config) if not self.fs.is_dir(self.config / n)]

    def _report_offsets(self, path: Path, message: str) -> None:
        self._report_config("bad-config-file", path, message)

    def _report_config(self, code: str, path: Path, message: str) -> None:
        self.findings.append(finding(code, path, message=message))

    def index_proof(self) -> IndexProof | None:
        """What the last clean stop remembered of the key index."""
        return self._read_json(names.INDEX_FILE, IndexProof)

    # ---- writing (each durable on return, and left out where it would change nothing) ----

    def write_abort(self) -> None:
        """The marker that a server runs: before the first change. Whole at every moment: who wrote it
        decides how far a start trusts the log. Before it the names in the root are made durable, also
        those that a killed process left there: what follows builds on them.
        """
        self.fs.sync_dir(self.path)
        self._write(names.ABORT, b"%d%s" % (process_id(), ABORT_MARK))

    def remove_abort(self) -> None:
        """A clean stop: only after everything else is durable."""
        if remove_if_present(self.fs, self.path / names.ABORT):
            self.fs.sync_dir(self.path)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """How far things are flushed. Written beside and renamed: whole at every moment."""
        self._write(names.CHECKPOINT, encode_checkpoint(checkpoint))

    def write_deleted_topics(self, content: DeletedTopics) -> None:
        """Which topics were deleted here."""
        self._write_json(names.DELETED_FILE, content)

    def write_producers(
        self, physical_offset: int, states: Mapping[TopicPartition, Iterable[ProducerState]]
    ) -> None:
        """The producers of each queue that has some, as all records below `physical_offset` tell."""
        queues = [
            QueueProducers(topic=queue.topic, queue_id=queue.partition, producers=producers)
            for queue, producers in ((queue, list(found)) for queue, found in states.items())
            if producers
        ]
        if not queues and not self.fs.exists(self.path / names.PRODUCERS_FILE):
            return
        content = ProducerSnapshot(physical_offset=physical_offset, queues=queues)
        self._write_json(names.PRODUCERS_FILE, content)

    def write_index_proof(self, proof: IndexProof) -> None:
        """What is known of the key index, as of a clean stop."""
        self._write_json(names.INDEX_FILE, proof)

    def write_topics(self, table: TopicTable) -> None:
        """config/topics.json, and its former content as `.bak`."""
        self._topics.write(table.encode())

    def write_offsets(self, offsets: StoredOffsets) -> None:
        """The offsets file of config/, and its former content as `.bak`."""
        self._offsets.write(offsets.encode())
