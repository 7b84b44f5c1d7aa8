"""A RocketMQ store as a LogStore: one commit log with its queues and index, one owner, and a clean stop.

Owns the lifetime of the store (lock, open, checkpoint, close) and its topics; must not know records or queue entries:
appending, reading and finding do. Thread-safe: the append lock orders appends, topic changes, deletions and
checkpoints; reads take no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from storage.contract import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_RECORDS,
    Clock,
    StoreOptions,
    check_not_fewer,
)
from storage.errors import (
    DiskFull,
    InvalidArgument,
    InvalidConfig,
    InvalidTopic,
    NotOffered,
    StoreFenced,
    UnknownPartition,
    UnknownTopic,
)
from storage.files import FileLock, FileSystem
from storage.model import (
    AppendResult,
    Bound,
    Capabilities,
    FindQuery,
    FoundPage,
    Isolation,
    OffsetBounds,
    Page,
    ProducerSequence,
    RawMessage,
    Record,
    RetentionReport,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicInfo,
    TopicPartition,
)
from storage.retries import BY_LADDER, RetrySettings, SentBack
from storage.rocketmq.format import message, names
from storage.rocketmq.index.dispatcher import Dispatcher
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.index.sizes import resolve_sizes
from storage.rocketmq.log.encoding import Encoder
from storage.rocketmq.log.reading import locator_text
from storage.rocketmq.log.record_run import RecordRun
from storage.rocketmq.log.retention import Deletions, DiskWatch, given_up
from storage.rocketmq.lookup.by_time import find_time, newest_time
from storage.rocketmq.lookup.find import (
    TIME_AXIS,
    LocatedMessage,
    find_by_id,
    find_records,
    message_by_id,
)
from storage.rocketmq.queue import Appender, Limits, QueueReader
from storage.rocketmq.recovery.index_proof import proof_of
from storage.rocketmq.recovery.opening import Opening, open_parts
from storage.rocketmq.recovery.store_files import Checkpointer, OpenedStore
from storage.rocketmq.retries import Retries, dead_letter_topic, retry_topic
from storage.rocketmq.schedule import Schedule
from storage.rocketmq.state import blocked_paths, live_data
from storage.rocketmq.state.group_offsets import GroupOffsets
from storage.rocketmq.state.root import (
    BACKEND,
    StoreDirectory,
    StoreFile,
    is_empty,
    refuse_other_format,
    take_lock,
)
from storage.rocketmq.state.settings import (
    INERT_CONFIGS,
    MULTI_PATH_SPLITTER,
    RETENTION_SETTINGS,
    StoreSettings,
    changed_retention,
    check_queue_count,
    parse_store_settings,
)
from storage.rocketmq.state.topics import (
    TopicFiles,
    check_changes,
    check_folder_name,
    check_new_topic,
    check_same_shape,
)
from storage.rocketmq.transactions import HalfMessageStore
from storage.shared.disk_store import DiskStore, open_directory
from storage.shared.group_offsets import KeepsGroupOffsets
from storage.shared.sequencing import PRODUCER_EXPIRATION_MS, ProducerIds, highest_id


def open_rocketmq(
    path: Path,
    options: StoreOptions,
    *,
    fs: FileSystem,
    clock: Clock,
    read_only: bool,
    with_dledger: bool = False,
) -> RocketMQStore:
    """Open the store at `path`; create a missing or empty store, unless `read_only`. See storage.open_store.

    Also raises UnsupportedFormat in two cases:
    - the store has a RocksDB database, unless `read_only`;
    - DLedger keeps the log, unless `with_dledger` (for a summary).
    """
    settings = parse_store_settings(options.settings)
    refuse_other_format(fs, path)
    if not with_dledger:
        live_data.refuse_dledger(StoreDirectory(fs, path))
    if not read_only:
        _refuse_several_folders(settings)
        live_data.refuse_database(StoreDirectory(fs, path))
        blocked_paths.refuse(StoreDirectory(fs, path))

    def opened(view: FileSystem, lock: FileLock | None) -> RocketMQStore:
        return RocketMQStore(view, path, options, settings, clock=clock, lock=lock)

    return open_directory(
        path, fs=fs, clock=clock, read_only=read_only, take_lock=take_lock, opened=opened
    )


def _refuse_several_folders(settings: StoreSettings) -> None:
    """Raise InvalidConfig if the log has several folders. Such a store is read-only."""
    if len(settings.log_folders) > 1:
        folders = MULTI_PATH_SPLITTER.join(settings.log_folders)
        raise InvalidConfig(
            f"storePathCommitLog: the log is in several folders ({folders}), and such a store is not written. Serve it "
            "with --read-only, or put all log files into one folder and name that",
            name="storePathCommitLog",
            value=folders,
        )


CAPABILITIES: Final = Capabilities(
    backend=BACKEND,
    indexed_keys=True,
    batch_bytes=False,
    truncate=False,
    time_axis=TIME_AXIS,
    leader_epochs=False,
    messages=True,
    inert_configs=INERT_CONFIGS,
)


class RocketMQStore(DiskStore, KeepsGroupOffsets):
    """An open RocketMQ store, created by `open_rocketmq`."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        options: StoreOptions,
        settings: StoreSettings,
        *,
        clock: Clock,
        lock: FileLock | None,
    ) -> None:
        super().__init__(fs, path, options, lock=lock)
        self._settings = settings
        self._given: Mapping[str, str] = options.settings
        self._deleted_files = self._deleted_bytes = 0
        self._clock = clock
        self._directory = StoreDirectory(
            fs, path, enable_lmq=settings.enable_lmq, log_folders=settings.log_folders
        )
        try:
            self._open(options)
        except BaseException:
            self._files.close(sync=False)
            raise

    def _open(self, options: StoreOptions) -> None:
        directory = self._directory
        taken = blocked_paths.take_out_folders(directory) if self.read_only else ()
        directory.findings += blocked_paths.take_out_files(directory) if self.read_only else ()
        stored = directory.store_file()
        facts = stored or StoreFile(created=is_empty(self.fs, self.path))
        facts.sizes = resolve_sizes(
            self.fs,
            self.path,
            self._settings,
            facts.sizes,
            findings=directory.findings if self.read_only else None,
        )
        if facts.created and stored is None and not self.read_only:
            directory.write_store_file(facts)  # first: an interrupted start must leave a store
        self._group_offsets: GroupOffsets = GroupOffsets(self, directory, self._fence, self._clock)
        self._topic_files = TopicFiles(
            directory, read_only=self.read_only, forget_offsets=self._group_offsets.forget_topics
        )
        parts = open_parts(
            Opening(
                directory=directory,
                files=self._files,
                options=options,
                settings=self._settings,
                sizes=facts.sizes,
                stored=stored,
                topics=self._topic_files,
                clock=self._clock,
                read_only=self.read_only,
            )
        )
        filled = [queue.units.directory for queue in parts.queues if not queue.units.is_empty]
        directory.findings += blocked_paths.folder_findings(directory, taken, filled)
        self._topics = dict(self._topic_files.infos())
        self._use(parts, facts)
        found = [*directory.findings, *parts.report.findings]
        if not self.read_only:
            found += self.delays.timer_findings()
        self.recovery = replace(parts.report, findings=found)
        self._producer_ids = ProducerIds(
            facts.next_producer_id,
            lambda next_id: directory.write_next_producer_id(facts, next_id),
        )
        if self.read_only:
            return
        gaps = sorted({*facts.gaps, *parts.passed_gaps})
        facts.gaps = tuple(gap for gap in gaps if gap[1] > parts.log.start)
        directory.write_store_file(facts)
        self._topic_files.finish_deletions(self._clock())
        if self.recovery.losses or not self.recovery.clean_shutdown:
            self.checkpoint()
        self._dispatcher.start()

    def _use(self, parts: OpenedStore, facts: StoreFile) -> None:
        """Connect the opened parts."""
        self.files = parts
        self.log = parts.log
        self.queues = parts.queues
        self.index = parts.index
        self.coverage = parts.coverage
        self._dispatcher = Dispatcher(parts.builder, position=parts.log.end, fence=self._fence)
        parts.dispatcher = self._dispatcher
        self._appender = Appender(parts, self._fence, self._settings, self._clock)
        self._lock = self._appender.lock
        self._deletions = Deletions(self._lock)
        self._disk = DiskWatch(self.fs, self._directory.path)
        self._checkpointer = Checkpointer(self._directory, parts, self._lock, facts)
        self.encoder = Encoder(self._settings, self._clock, with_crc=parts.with_crc)
        self.delays = Schedule(
            self, self._directory, self._fence, self._clock, self._settings.delays_ms
        )
        self._retries = Retries(self, self._directory, self._fence, self._clock, self.delays.levels)
        self.half_messages = HalfMessageStore(
            self, self._clock, lambda: self._settings, len(self.delays.levels)
        )

    @property
    def settings(self) -> StoreSettings:
        """The settings in force."""
        return self._settings

    # ---- topics ----

    def queue(self, partition: TopicPartition) -> Queue:
        """Return the queue of a partition.

        Raises UnknownTopic, UnknownPartition; NotOffered for a topic with batch queues.
        """
        self._check_open()
        queue = self.queues.at(partition)
        if queue is None:
            info = self._topic(partition.topic)
            if partition.partition in info.partitions:  # deleted meanwhile, perhaps recreated
                raise UnknownTopic(partition.topic)
            raise UnknownPartition(*partition, partitions=len(info.partitions))
        return queue

    def _topic(self, topic: str) -> TopicInfo:
        info = self._topics.get(topic)
        if info is None:
            self._topic_files.check_offered(topic)
            raise UnknownTopic(topic)
        return info

    def topics(self) -> Mapping[str, TopicInfo]:
        self._check_open()
        with self._lock:
            return MappingProxyType({name: self._topics[name] for name in sorted(self._topics)})

    def create_topic(
        self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        self._check_writable()
        count = self._settings.default_topic_queues if partitions is None else partitions
        with self._lock:
            if topic in self._topics:
                check_same_shape(self._topics[topic], partitions, configs)
                return self._topics[topic]
            self._topic_files.check_offered(topic)
            check_new_topic(topic, count, configs or {})
            with self._fence.guarding():
                info = self._topic_files.create(topic, count, configs or {}, now_ms=self._clock())
            return self._adopt(info)

    def create_own_topic(self, topic: str) -> None:
        """Create a topic of the broker's own, with one queue and an entry, if it is missing."""
        with self._lock:
            if topic not in self._topics:
                with self._fence.guarding():
                    info = self._topic_files.create(topic, 1, {}, now_ms=self._clock())
                self._adopt(info)

    def _adopt(self, info: TopicInfo) -> TopicInfo:
        for queue_id in info.partitions:
            self.queues.add(info.name, queue_id)
        self._topics[info.name] = info
        return info

    def preview_topic(
        self,
        topic: str,
        records: Sequence[Record] | bytes = (),
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
    ) -> TopicInfo:
        self._check_writable()
        self.check_not_compacted(topic)
        info = self._topics.get(topic)
        if info is None and topic in {names.SCHEDULE_TOPIC, names.HALF_TOPIC}:
            info = self._topic_files.info(topic)
        elif info is None:
            self._topic_files.check_offered(topic)
            info = TopicInfo(name=topic, partitions=range(self._settings.default_topic_queues))
            check_new_topic(topic, len(info.partitions), {})
        if isinstance(records, bytes):
            raise NotOffered("the RocketMQ backend takes no record batches", feature="batches")
        if records:
            run = self.encoder.encode_run(
                TopicPartition(topic, 0), records, compression=compression, producer=producer
            )
            self._appender.check_sizes(run)
        return info

    def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        self._check_writable()
        check_changes(configs)
        with self._lock:
            info = self._topic(topic)
            with self._fence.guarding():
                info = self._topic_files.alter(info, configs, now_ms=self._clock())
            return self._adopt(info)

    def add_partitions(self, topic: str, partitions: int) -> TopicInfo:
        """See LogStore.add_partitions. The entry gets more queues to read and to write, as by updateTopicConfig."""
        self._check_writable()
        check_queue_count(partitions)
        with self._lock:
            info = self._topic(topic)
            check_not_fewer(info, partitions)
            if info.internal:
                raise InvalidTopic(
                    f"the number of queues of topic {topic!r} is a broker's own", topic=topic
                )
            if partitions == len(info.partitions):
                return info
            with self._fence.guarding():
                info = self._topic_files.widen(info, partitions, now_ms=self._clock())
            return self._adopt(info)

    def delete_topic(self, topic: str) -> None:
        self._check_writable()
        with suppress(DiskFull, StoreFenced):
            self._dispatcher.step()  # creates files without the lock, so that appends go on
        with self._checkpointer.gate, self._lock:
            self._topic(topic)
            with self._fence.guarding():
                self._dispatcher.step()
                self._producer_ids.remember(self._highest_producer_id())
                self._topic_files.delete(topic, physical_offset=self.log.end, now_ms=self._clock())
                self._dispatcher.builder.deleted = self._topic_files.deleted
                self._files.forget_tree(self._directory.consume_queue / topic, sync=False)
                self.queues.remove_topic(topic)
                del self._topics[topic]
                self._group_offsets.forget_topics([topic])  # committed during its deletion
                self._deletions.note()

    # ---- records ----

    def check_not_compacted(self, topic: str) -> None:
        """Raise NotOffered for a topic that a broker compacts: it is read and not written."""
        self._topic_files.check_not_compacted(topic)

    def check_offered(self, topic: str) -> None:
        """Raise NotOffered for a topic that only a broker can write: with batch queues, or compacted."""
        self._topic_files.check_offered(topic)
        self.check_not_compacted(topic)

    def append(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
        born_hosts: Sequence[bytes] = (),
        publish: bool = True,
    ) -> AppendResult:
        if not records:
            raise InvalidArgument("records must hold at least one record", field="records")
        self._check_writable()
        self.check_not_compacted(partition.topic)
        queue = self.queues.at(partition) or self._queue_to_write(partition)
        self._disk.check(self._settings, self._clock)
        run = self.encoder.encode_run(
            partition,
            records,
            compression=compression,
            producer=producer,
            born_hosts=born_hosts,
        )
        with self._lock:
            self._check_writable()
            if self.queues.at(partition) is not queue:  # deleted meanwhile, perhaps recreated
                queue = self.queue(partition)
            return self._appender.append(queue, run, producer=producer, publish=publish)

    def append_promptly(
        self, partition: TopicPartition, records: Sequence[Record], born_hosts: Sequence[bytes] = ()
    ) -> AppendResult | None:
        """See SupportsPromptAppend."""
        self._check_writable()
        self.check_not_compacted(partition.topic)
        queue = self.queues.at(partition)
        if not records or queue is None or self._disk.is_due(self._settings, self._clock):
            return None
        self._disk.check(self._settings, self._clock)
        run = self.encoder.encode_run(partition, records, born_hosts=born_hosts)
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._check_writable()
            if self.queues.at(partition) is not queue or not self._appender.is_prompt(run):
                return None
            return self._appender.append(queue, run, producer=None, publish=True)
        finally:
            self._lock.release()

    def _queue_to_write(self, partition: TopicPartition) -> Queue:
        """Return the queue of a partition. That of a delay level or of half messages is created, as the broker does at
        its first start.
        """
        own = {names.SCHEDULE_TOPIC: len(self.delays.levels), names.HALF_TOPIC: 1}
        if partition.partition in range(own.get(partition.topic, 0)):
            with self._lock:
                return self.queues.at(partition) or self._new_queue(partition)
        return self.queue(partition)

    def append_messages(
        self,
        partition: TopicPartition,
        messages: Sequence[RawMessage],
        *,
        store_timestamp_ms: int | None = None,
        store_host: bytes | None = None,
        start_physical_offset: int | None = None,
        publish: bool = True,
        is_stored: bool = False,
    ) -> AppendResult:
        """See SupportsRawMessages.append_messages. A missing queue is created.

        As in the real store, its topic may have any name that is valid for a folder. `is_stored`: the store has the
        messages already, so that maxMessageSize, which may be lower now, is no limit.
        """
        if not messages:
            raise InvalidArgument("messages must hold at least one message", field="messages")
        self._check_writable()
        host = self._settings.store_host if store_host is None else store_host
        return self.append_run(
            partition,
            self.encoder.encode_raw(
                partition, messages, host, limit_bytes=message.MAX_SIZE if is_stored else None
            ),
            store_timestamp_ms=store_timestamp_ms,
            start_physical_offset=start_physical_offset,
            publish=publish,
        )

    def append_run(
        self,
        partition: TopicPartition,
        run: RecordRun,
        *,
        store_timestamp_ms: int | None = None,
        start_physical_offset: int | None = None,
        publish: bool = True,
    ) -> AppendResult:
        """Append records of `encoder`, as append_messages does."""
        self._check_writable()
        self.check_not_compacted(partition.topic)
        self._disk.check(self._settings, self._clock)
        with self._lock:
            self._check_writable()
            queue = self.queues.at(partition) or self._new_queue(partition)
            if start_physical_offset is not None:
                self._appender.begin_at(start_physical_offset)
            now_ms = self._clock() if store_timestamp_ms is None else store_timestamp_ms
            return self._appender.append_run(queue, run, now_ms, publish=publish)

    def _new_queue(self, partition: TopicPartition) -> Queue:
        topic, queue_id = partition
        self._topic_files.check_offered(topic)
        known = self._topics.get(topic)
        check_folder_name(topic)
        self._adopt(self._topic_files.info(topic, {*(known.partitions if known else ()), queue_id}))
        return self.queues.add(topic, queue_id)

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Page:
        """See LogStore.read. `isolation` changes nothing: a prepared message is in no queue that consumers read."""

        def look() -> Page:
            queue = self.queue(partition)
            bounds = queue.checked_bounds(offset)
            self.files.catch_up(queue, bounds.end)
            reader = QueueReader(self.log, queue.units, partition)
            return Page(*reader.read(offset, bounds.end, Limits(max_records, max_bytes)), bounds)

        return self._deletions.beside(look)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self.queue(partition).bounds()

    def log_bytes(self, partition: TopicPartition) -> int | None:
        self.queue(partition)  # raises for a partition that does not exist
        return None

    def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int, *, bound: Bound = Bound.LOWER
    ) -> TimedOffset | None:
        """Return the answer of the real store, by store time.

        None where the real store answers with the queue's end (or, with UPPER, its start).
        """

        def look() -> TimedOffset | None:
            queue = self.queue(partition)
            end, known = queue.bounds().end, queue.edge_times
            self.files.catch_up(queue, end)
            return find_time(self.log, queue.units, timestamp_ms, end=end, bound=bound, known=known)

        return self._deletions.beside(look)

    def newest_time(self, partition: TopicPartition) -> TimedOffset | None:
        """Return the last record: the search by time takes store times as ascending too."""

        def look() -> TimedOffset | None:
            queue = self.queue(partition)
            start, _, end = queue.bounds()
            self.files.catch_up(queue, end)
            return newest_time(self.log, queue.units, range(start, end))

        return self._deletions.beside(look)

    def find_page(self, topic: str, query: FindQuery) -> FoundPage:
        def look() -> FoundPage:
            self._check_open()
            self._topic(topic)
            return find_records(self.files, topic, query)

        return self._deletions.beside(look)

    def record_id(self, partition: TopicPartition, locator: int) -> str:
        return locator_text(locator)

    def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        self._check_open()
        return self._deletions.beside(partial(find_by_id, self.files, record_id))

    def message_by_id(self, record_id: str) -> LocatedMessage:
        """Return the message with this id. Raises RecordNotFound."""
        self._check_open()
        return self._deletions.beside(partial(message_by_id, self.files, record_id))

    # ---- retries: see SupportsRetry ----

    def queues_of(self, topic: str) -> Sequence[Queue]:
        """Return the queues of a topic; none if it does not exist."""
        return self.queues.of_topic(topic)

    def retry_topic(self, group: str) -> str:
        return retry_topic(group)

    def dead_letter_topic(self, group: str) -> str:
        return dead_letter_topic(group)

    def retry_settings(self, group: str) -> RetrySettings:
        self._check_open()
        return self._retries.settings(group)

    def change_retries(self, group: str, max_times: int) -> RetrySettings:
        self._check_writable()
        return self._retries.change(group, max_times)

    def send_back(
        self, group: str, record_id: str, *, level: int = BY_LADDER, max_times: int | None = None
    ) -> SentBack:
        self._check_writable()
        return self._retries.send_back(group, record_id, level=level, max_times=max_times)

    # ---- the store as a whole ----

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """See LogStore.flush. One sync of the log covers all queues; the records of the named queues become visible."""
        self._check_open()
        queues = list(self.queues) if partitions is None else [self.queue(p) for p in partitions]
        appended = [queue.appended() for queue in queues]
        if any(self.log.flushed < log_end for _, log_end in appended):
            with self._fence.guarding():
                self.log.flush()
        for queue, (next_offset, _) in zip(queues, appended, strict=True):
            queue.flushed(next_offset)

    def new_producer_id(self) -> int:
        self._check_writable()
        with self._lock, self._fence.guarding():
            return self._producer_ids.next_above(self._highest_producer_id())

    def _highest_producer_id(self) -> int:
        return highest_id(queue.producers.highest_id for queue in self.queues)

    def checkpoint(self) -> None:
        self._check_writable()
        with self._fence.guarding():
            with self._lock:
                self._producer_ids.remember(self._highest_producer_id())
                for queue in self.queues:
                    queue.producers.expire(self._clock() - PRODUCER_EXPIRATION_MS)
            self._checkpointer.write()

    def retention_settings(self) -> Mapping[str, str | None]:
        """See SupportsRetentionSettings."""
        given = self._given
        return {name: given.get(name) for name in RETENTION_SETTINGS}

    def change_retention(self, changes: Mapping[str, str | None]) -> None:
        """See SupportsRetentionSettings."""
        self._check_writable()
        with self._lock:
            self._given = changed_retention(self._given, changes)
            self._settings = parse_store_settings(self._given)

    def enforce_retention(self, now_ms: int) -> RetentionReport:
        self._check_writable()
        if given_up(self.log, self._settings, now_ms=now_ms):
            with suppress(DiskFull):  # the deletion may free space
                self.checkpoint()  # so that producer states are known without the deleted records
        with self._lock, self._fence.guarding():
            # Evaluated again under the lock: the checkpoint took time.
            doomed = given_up(self.log, self._settings, now_ms=now_ms)
            if doomed:
                self._dispatcher.step_past(doomed[-1] + self.log.run.file_bytes)
                self.files.delete_head(doomed)
                self._deletions.note()
                self._topic_files.forget_deleted(self.log.start)
            freed = len(doomed) * self.log.run.file_bytes
            self._deleted_files += len(doomed)
            self._deleted_bytes += freed
        return RetentionReport(segments_deleted=len(doomed), bytes_deleted=freed)

    def stats(self) -> StoreStats:
        self._check_open()
        log, failure = self.log, self._dispatcher.failure
        return StoreStats(
            topics=len(self._topics),
            partitions=len(self.queues),
            segments=len(log.run.bases),
            size_bytes=max(log.end - log.start, 0),
            open_files=self._files.open_files,
            fenced=self._fence.cause,
            suspect_records=log.suspect_records,
            deleted_segments=self._deleted_files,
            deleted_bytes=self._deleted_bytes,
            details={
                "compiled": not (message.__file__ or "").endswith(".py"),
                "min_physical_offset": log.start,
                "max_physical_offset": log.end,
                "flushed_physical_offset": log.flushed,
                "dispatch_lag_bytes": max(log.end - self._dispatcher.position, 0),
                "dispatch_failure": None if failure is None else failure.message,
                "index_files": 0 if self.index is None else len(self.index.index_files),
                "disk_used_percent": self._disk.used_percent,
            },
        )

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._dispatcher.stop()
        self._end()

    def _stop_cleanly(self) -> None:
        """Make everything durable, then remove the spare file, and last the `abort` marker of a running server."""
        with self._fence.guarding():
            self._checkpointer.write()
            self._remember_index()
            self.log.remove_spare()
            self._directory.remove_abort()

    def _remember_index(self) -> None:
        """Store a proof of which records the index has, for the next start. Without a proof that start checks again."""
        last = self._dispatcher.builder.last
        if self.coverage is not None and last is not None:
            proof = proof_of(self.coverage, last.physical_offset)
            if proof is not None:
                with suppress(DiskFull):
                    self._directory.write_index_proof(proof)
