"""The files at the root of a RocketMQ store: abort, lock, checkpoint, config/topics.json and
consumerOffset.json (or lmqConsumerOffset.json), delayOffset.json, subscriptionGroup.json, and logserver's own JSON
files next to them.

Owns reading and writing them, each atomically; must not know the log, the queues or the index. Facts for
which RocketMQ has no file are stored in `.logserver.store.json` (that logserver owns the store, the file
sizes, allocated producer ids), `.logserver.producers.json` (sequence numbers of producers) and
`.logserver.deleted.json` (deleted topics whose records are still in the log). Other files of config/
are never written.
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
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from storage.rocketmq.state.config_file import ConfigFile, Decoders
from storage.rocketmq.state.delay_file import DelayOffsets
from storage.rocketmq.state.groups_file import SubscriptionGroups
from storage.rocketmq.state.offsets_file import StoredOffsets
from storage.rocketmq.state.settings import Sizes
from storage.rocketmq.state.topics_file import TopicTable
from storage.shared.root_files import RootFiles, StoreFacts
from storage.shared.sequencing import ProducerState

_T = TypeVar("_T")
BACKEND: Final = "rocketmq"
ABORT_MARK: Final = (
    b" logserver"  # appended to the process id; RocketMQ checks only whether the file exists
)
DAMAGED_TOPICS_FILE: Final = ".logserver.topics.damaged.json"
DAMAGED_DELAYS_FILE: Final = ".logserver.delayOffset.damaged.json"
DAMAGED_OFFSETS_FILE: Final = ".logserver.consumerOffset.damaged.json"
DAMAGED_GROUPS_FILE: Final = ".logserver.subscriptionGroup.damaged.json"


def detect(fs: FileSystem, path: Path) -> bool | None:
    """Return None if there is no RocketMQ store, else whether logserver owns it (created or adopted it)."""
    named = stored_backend(fs, path)
    return True if named == BACKEND else recognize(fs, path, named).adopted


def recognize(fs: FileSystem, path: Path, named: str | None) -> Recognized:
    """Check whether a directory is a store of this backend. `named`: the backend in its store file."""
    entries = set(fs.list_dir(path))
    holds_files = _holds_files(fs, path, entries)
    if named == BACKEND:
        return Recognized(holds_files, True)
    if holds_files:  # a damaged store file does not say which backend wrote it
        return Recognized(holds_files, STORE_FILE in entries)
    begun = {names.LOCK, UNFINISHED_STORE_FILE} <= entries
    return Recognized(holds_files, True if begun else None)


def _holds_files(fs: FileSystem, path: Path, entries: Collection[str]) -> bool:
    """Return whether the log has a file, or a DLedger log exists, or at least two other parts of a store do."""
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
    """Return whether the directory has no part of a store; files of an interrupted first start do not count."""
    return holds_no_store(fs, path, lock=names.LOCK)


def refuse_other_format(fs: FileSystem, path: Path) -> None:
    """Raise UnsupportedFormat if the directory is not empty and holds no RocketMQ store."""
    if not is_empty(fs, path) and detect(fs, path) is None:
        raise foreign_store(fs, path, "RocketMQ store")


def take_lock(fs: FileSystem, path: Path) -> FileLock:
    """Lock the store at `path` against other processes, RocketMQ included. Raises StoreLocked.

    The file contains the same word as RocketMQ's lock file. The word is written before the file is
    locked: a locked file cannot be opened again.
    """
    lock = path / names.LOCK
    if not fs.exists(lock) or fs.size(lock) == 0:
        write_durably(fs, lock, names.LOCK_CONTENT)
    return fs.lock(lock)


class StoreFile(StoreFacts, kw_only=True):
    """The content of `.logserver.store.json`. `queued`: the sum of all queue ends at the last checkpoint;
    a smaller sum after a clean stop means lost files. `gaps`: ranges of the log [start, end) without files
    that a start accepted as lost.
    """

    backend: str = BACKEND
    sizes: Sizes | None = None
    queued: int = 0
    gaps: tuple[tuple[int, int], ...] = ()


class DeletedTopics(msgspec.Struct, kw_only=True):
    """The content of `.logserver.deleted.json`.

    `topics`: records of this topic below this physical offset are deleted. `unfinished`: deleted
    topics whose queues or entry in topics.json may still exist.
    """

    topics: dict[str, int] = {}
    unfinished: list[str] = []


class QueueProducers(msgspec.Struct, kw_only=True):
    """The producers of one queue, as storage.shared.sequencing returns them."""

    topic: str
    queue_id: int
    producers: list[ProducerState]


class ProducerSnapshot(msgspec.Struct, kw_only=True):
    """The content of `.logserver.producers.json`: producer states from the records below a physical offset."""

    physical_offset: int
    queues: list[QueueProducers]

    def by_queue(self) -> Mapping[TopicPartition, Sequence[ProducerState]]:
        """Return the producer states by queue."""
        return {TopicPartition(q.topic, q.queue_id): q.producers for q in self.queues}


class RememberedFile(msgspec.Struct, kw_only=True):
    """A remembered index file: its header, and the checksums of its first `size_bytes`."""

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
    """The root of one store. Its own files are guarded as in RootFiles, topics.json by the store's lock, the offsets
    file by the lock of GroupOffsets. `enable_lmq`: whether offsets are in lmqConsumerOffset.json; None: detect it.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        enable_lmq: bool | None = None,
        log_folders: Sequence[str] = (),
    ) -> None:
        """`log_folders`: the folders of the commit log, if not in the store; the first gets the new files."""
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
        self._delays = ConfigFile(
            fs,
            path,
            names.DELAY_OFFSETS,
            Decoders(DelayOffsets.decode, DelayOffsets.decode_loosely),
            damaged=DAMAGED_DELAYS_FILE,
            report=self._report_offsets,
        )
        self._groups = ConfigFile(
            fs,
            path,
            names.SUBSCRIPTION_GROUPS,
            Decoders(SubscriptionGroups.decode, SubscriptionGroups.decode_loosely),
            damaged=DAMAGED_GROUPS_FILE,
            report=self._report_offsets,
        )

    def _offsets_name(self, enable_lmq: bool | None) -> str:
        """Return the name of the offsets file that the broker reads (BrokerController: LmqConsumerOffsetManager). A
        broker that was switched to light message queues (LMQ) leaves the other file in place.
        """
        if enable_lmq is None:
            lmq = self.config / names.LMQ_OFFSETS
            backup = lmq.with_name(lmq.name + names.BACKUP)
            enable_lmq = self.fs.exists(lmq) or self.fs.exists(backup)
        return names.LMQ_OFFSETS if enable_lmq else names.OFFSETS

    # ---- reading: a file that cannot be decoded counts as missing and is reported ----

    def _read(self, name: str, decode: Callable[[bytes], _T]) -> _T | None:
        """See RootFiles. A folder in place of the file counts as missing; state.blocked_paths reports it."""
        return None if self.fs.is_dir(self.path / name) else super()._read(name, decode)

    def is_unclean(self) -> bool:
        """Return whether the last stop was unclean: the file `abort` exists."""
        return self.fs.exists(self.path / names.ABORT)

    def is_left_by_us(self) -> bool:
        """Return whether logserver wrote `abort`: RocketMQ's file contains only its process id."""
        abort = self.path / names.ABORT
        return not self.fs.is_dir(abort) and self.fs.read_bytes(abort).endswith(ABORT_MARK)

    def checkpoint(self) -> Checkpoint:
        """Read how far the files were flushed; all zeros if it is not known."""
        return self._read(names.CHECKPOINT, decode_checkpoint) or Checkpoint()

    def deleted_topics(self) -> DeletedTopics:
        """Read which topics were deleted by logserver."""
        return self._read_json(names.DELETED_FILE, DeletedTopics) or DeletedTopics()

    def producers(self) -> ProducerSnapshot | None:
        """Read the newest snapshot of producer states; None if there is none."""
        return self._read_json(names.PRODUCERS_FILE, ProducerSnapshot)

    def living_topics(self, table: TopicTable) -> frozenset[str] | None:
        """Return the topics of `table` (the table read last) and the topics with a folder. If the last stop was clean,
        any other topic was deleted. Return None if this is not known: topics.json is missing or damaged, all of
        consumequeue is lost, or topics may be in a database.
        """
        folders = self._folders_in(self.consume_queue)
        if not folders or not self._topics.is_understood or self.databases():
            return None
        batches = self._folders_in(self._batch_queue)
        return frozenset({*table.topics, *table.unreadable, *folders, *batches})

    def databases(self) -> Sequence[Path]:
        """Return the folders that are RocksDB databases, where RocketMQ may keep queues or config files."""
        configs = (self.config / name for name in self._folders_in(self.config))
        folders = (self.consume_queue, self.path / names.ROCKSDB_QUEUE, *configs)
        return [folder for folder in folders if self._is_database(folder)]

    def queues_in_database(self) -> bool:
        """Return whether queue entries are in a database; a database may also exist next to complete queue files."""
        if self._is_database(self.consume_queue):
            return True
        return self._is_database(self.path / names.ROCKSDB_QUEUE) and not self.queue_folders()

    def _is_database(self, folder: Path) -> bool:
        current = folder / names.ROCKSDB_CURRENT
        return self.fs.exists(current) and not self.fs.is_dir(current)  # a topic may have this name

    def _folders_in(self, folder: Path) -> Sequence[str]:
        if not self.fs.is_dir(folder):
            return ()
        return [name for name in self.fs.list_dir(folder) if self.fs.is_dir(folder / name)]

    def queue_folders(self) -> Mapping[str, Sequence[int]]:
        """Return the queues that have a folder in consumequeue: ascending queue ids by topic."""
        return self._folders_below(self.consume_queue)

    def batch_topics(self, table: TopicTable) -> frozenset[str]:
        """Return the topics with batch queues, according to topics.json or to the folder of batch queues."""
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
        """Read config/topics.json; if it is missing or damaged, its `.bak`, as the broker does.

        If neither can be decoded: raise Corrupt naming the file, or return an empty table if `read_only`.
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
        """Read the offsets file of config/, or its `.bak`; if neither can be decoded, return no offsets."""
        try:
            return self._offsets.read() or StoredOffsets()
        except Corrupt as error:
            self._report_offsets(self._offsets.path, f"{error.message}; no group has offsets")
            return StoredOffsets()

    @property
    def offsets_path(self) -> Path:
        """The path of the offsets file in config/."""
        return self._offsets.path

    def delay_progress(self) -> DelayOffsets:
        """Read config/delayOffset.json, or its `.bak`; if neither can be decoded, no offsets: every delayed message is
        then delivered again.
        """
        try:
            return self._delays.read() or DelayOffsets()
        except Corrupt as error:
            self._report_offsets(
                self._delays.path, f"{error.message}; all delayed messages are delivered again"
            )
            return DelayOffsets()

    def subscription_groups(self) -> SubscriptionGroups:
        """Read config/subscriptionGroup.json, or its `.bak`; if neither can be decoded, no groups."""
        try:
            return self._groups.read() or SubscriptionGroups()
        except Corrupt as error:
            self._report_offsets(
                self._groups.path, f"{error.message}; every group has the default settings"
            )
            return SubscriptionGroups()

    def config_files(self) -> Sequence[str]:
        """Return the names of the files in config/."""
        if not self.fs.is_dir(self.config):
            return ()
        return [n for n in self.fs.list_dir(self.config) if not self.fs.is_dir(self.config / n)]

    def _report_offsets(self, path: Path, message: str) -> None:
        self._report_config("bad-config-file", path, message)

    def _report_config(self, code: str, path: Path, message: str) -> None:
        self.findings.append(finding(code, path, message=message.removeprefix(f"{path}: ")))

    def index_proof(self) -> IndexProof | None:
        """Read the facts about the key index that the last clean stop stored; None if there are none."""
        return self._read_json(names.INDEX_FILE, IndexProof)

    # ---- writing (each durable on return, and skipped if the content would not change) ----

    def write_abort(self) -> None:
        """Write the marker that a server is running; call this before the first change. Written atomically: its content
        (RocketMQ's or logserver's) decides how far a start trusts the log. The names in the root are made durable
        first, including names that a killed process left: later steps rely on them.
        """
        self.fs.sync_dir(self.path)
        self._write(names.ABORT, b"%d%s" % (process_id(), ABORT_MARK))

    def remove_abort(self) -> None:
        """Remove `abort`, durably. A clean stop calls this only after everything else is durable."""
        if remove_if_present(self.fs, self.path / names.ABORT):
            self.fs.sync_dir(self.path)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write how far the files are flushed. Written to a temporary file and renamed, so always complete."""
        self._write(names.CHECKPOINT, encode_checkpoint(checkpoint))

    def write_deleted_topics(self, content: DeletedTopics) -> None:
        """Write which topics were deleted by logserver."""
        self._write_json(names.DELETED_FILE, content)

    def write_producers(
        self, physical_offset: int, states: Mapping[TopicPartition, Iterable[ProducerState]]
    ) -> None:
        """Write the producers of each queue that has any, from all records below `physical_offset`."""
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
        """Write the facts about the key index at a clean stop."""
        self._write_json(names.INDEX_FILE, proof)

    def write_topics(self, table: TopicTable) -> None:
        """Write config/topics.json, and its former content as `.bak`."""
        self._topics.write(table.encode())

    def write_delay_progress(self, offsets: DelayOffsets) -> None:
        """Write config/delayOffset.json, and its former content as `.bak`."""
        self._delays.write(offsets.encode())

    def write_subscription_groups(self, groups: SubscriptionGroups) -> None:
        """Write config/subscriptionGroup.json, and its former content as `.bak`."""
        self._groups.write(groups.encode())

    def write_offsets(self, offsets: StoredOffsets) -> None:
        """Write the offsets file of config/, and its former content as `.bak`."""
        self._offsets.write(offsets.encode())
