"""A Kafka log directory as a LogStore: topics and partitions, a single owner, checkpoints and the clean stop.

Owns the store's life cycle (lock, open, checkpoint, close), its topics and their configs; must not know batches or
segments, which belong to the partitions. Thread-safe: `_lock` guards the topic map and the files at the root.
Partitions have their own locks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

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
    InvalidTopic,
    MissingPartitions,
    NotOffered,
    UnknownPartition,
    UnknownTopic,
)
from storage.files import FileLock, FileSystem
from storage.kafka.compaction.compactor import Compactor
from storage.kafka.format import batch, names
from storage.kafka.log import encoding
from storage.kafka.log.reading import Limits
from storage.kafka.lookup.find import find_by_id, find_records
from storage.kafka.partition import Partition, PartitionEnvironment
from storage.kafka.prompt import WorksPromptly
from storage.kafka.recovery.opening import Opening, Recovered, own_epochs, recover_partitions
from storage.kafka.state import blocked_paths
from storage.kafka.state.group_offsets import GroupOffsets, KeepsGroupMembers
from storage.kafka.state.log_dirs import log_directory, log_roots, refuse_several
from storage.kafka.state.root import (
    LogDirectory,
    StoreFile,
    is_empty,
    new_uuid,
    refuse_other_format,
    take_lock,
)
from storage.kafka.state.settings import (
    INERT_CONFIGS,
    RETENTION_SETTINGS,
    StoreSettings,
    TopicSettings,
    changed_retention,
    check_topic_config,
    check_topic_reset,
    parse_store_settings,
)
from storage.kafka.state.topics import (
    check_new_name,
    check_partition_count,
    check_same_shape,
    create_folders,
    folder_of,
    set_aside,
)
from storage.kafka.state.transactions import KeepsTransactions, TransactionLog
from storage.model import (
    AppendResult,
    BatchPage,
    Bound,
    Capabilities,
    CompactionReport,
    EpochEnd,
    FindQuery,
    FoundPage,
    Isolation,
    OffsetBounds,
    Page,
    ProducerEpoch,
    ProducerSequence,
    Record,
    RetentionReport,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicConfig,
    TopicInfo,
    TopicPartition,
)
from storage.shared.disk_store import DiskStore, open_directory
from storage.shared.group_offsets import KeepsGroupOffsets
from storage.shared.sequencing import FIRST_BESIDE_BROKER, ProducerIds
from storage.transactions import TransactionLimits


class Unserved(NamedTuple):
    """A partition that is not served: the reason, and its folder (None if the partition has no folder)."""

    reason: str
    folder: Path | None


@dataclass(slots=True)
class _Topic:
    """A topic: its partitions by number, its own configs, and the partitions that are not served, with the reason."""

    partitions: dict[int, Partition]
    configs: dict[str, str]
    topic_id: str | None
    missing: dict[int, Unserved] = field(default_factory=dict)


def open_kafka(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock, read_only: bool
) -> KafkaStore:
    """Open the log directory at `path`. A missing or empty directory becomes a new store, unless `read_only`. See
    storage.open_store.
    """
    settings = parse_store_settings(options.settings)
    refuse_other_format(fs, path)
    roots = log_roots(fs, path, settings.log_dirs)
    if not read_only:
        refuse_several(roots)
        blocked_paths.refuse(log_directory(fs, roots))

    def opened(view: FileSystem, lock: FileLock | None) -> KafkaStore:
        directory = log_directory(view, roots)
        return KafkaStore(directory, options, settings, clock=clock, lock=lock)

    return open_directory(
        path, fs=fs, clock=clock, read_only=read_only, take_lock=take_lock, opened=opened
    )


class KafkaStore(DiskStore, WorksPromptly, KeepsGroupOffsets, KeepsGroupMembers, KeepsTransactions):
    """An open log directory. Created by `open_kafka`."""

    capabilities = Capabilities(
        backend="kafka",
        indexed_keys=False,
        batch_bytes=True,
        truncate=False,
        time_axis="timestamp",
        leader_epochs=True,
        inert_configs=INERT_CONFIGS,
    )
    offsets_topic = names.GROUP_OFFSETS_TOPIC
    transactions_topic = names.TRANSACTION_STATE_TOPIC

    def __init__(
        self,
        directory: LogDirectory,
        options: StoreOptions,
        settings: StoreSettings,
        *,
        clock: Clock,
        lock: FileLock | None,
    ) -> None:
        super().__init__(directory.fs, directory.path, options, lock=lock)
        self._settings = settings
        self.compaction_pause_ms = settings.cleaner_backoff_ms
        self._lock = threading.Lock()
        self._directory = directory
        try:
            self._open(Opening(options, settings, self.settings_of, clock, self.read_only))
        except BaseException:
            self._files.close(sync=False)
            raise

    def _open(self, opening: Opening) -> None:
        directory = self._directory
        directory.findings += blocked_paths.take_out(directory) if self.read_only else ()
        self._configs = directory.topic_configs()
        self.cluster_id = directory.known_cluster_id() if self.read_only else directory.cluster_id()
        self.node_id = directory.node_id
        stored = directory.store_file()
        facts = stored or StoreFile(created=is_empty(self.fs, self.path))
        self._shared = PartitionEnvironment(
            files=self._files,
            clock=opening.clock,
            fence=self._fence,
            read_only=self.read_only,
            producer_expiration_ms=self._settings.producer_id_expiration_ms,
            epochs=own_epochs(directory, facts),
        )
        recovered = recover_partitions(directory, self._shared, opening, facts)
        self._topics: dict[str, _Topic] = {}
        self._deleted: set[str] = set()  # topics deleted in this run: checkpoints drop their lines
        for partition in recovered.partitions:
            self._adopt(partition.partition, partition.directory).partitions[
                partition.partition.partition
            ] = partition
        self._take_missing(recovered)
        self._names_left = dict(recovered.names_left)
        self._accepts_loss = opening.options.accept_loss
        self._configs = {t: c for t, c in self._configs.items() if t in self._topics}
        report = recovered.report
        self.recovery = replace(report, findings=[*directory.findings, *report.findings])
        self._producer_ids = ProducerIds(
            max(facts.next_producer_id, FIRST_BESIDE_BROKER),
            partial(directory.write_next_producer_id, facts),
        )
        self._group_offsets: GroupOffsets = GroupOffsets(self, self._shared.clock)
        self._compactor = Compactor(
            self._files,
            self._fence,
            self._settings,
            compacted=partial(self._compacted, is_own=facts.created),
            offsets=directory.offsets(names.CLEANER_OFFSETS),
            checkpoint=self._write_cleaned,
        )
        self._transactions = TransactionLog(self)
        if self.read_only:
            return
        if stored is None:
            directory.write_store_file(facts)
        if facts.created and self.cluster_id is None:
            self.cluster_id = directory.write_identity(self._settings)
            self.node_id = directory.node_id
        if self.recovery.losses or not self.recovery.clean_shutdown:
            self.checkpoint()

    def _adopt(self, address: TopicPartition, folder: Path | None) -> _Topic:
        name = address.topic
        topic_id = None if folder is None else self._directory.topic_id(folder)
        topic = self._topics.setdefault(name, _Topic({}, self._configs.get(name, {}), topic_id))
        topic.topic_id = topic.topic_id or topic_id
        return topic

    def _take_missing(self, recovered: Recovered) -> None:
        """Register the partitions that are not served. If losses are accepted, recreate the partitions without a folder
        instead, except long ranges of unnamed partitions (`last_number`).
        """
        folders = dict(self._directory.partition_dirs())
        for address, refused in recovered.refused.items():
            folder = folders[address]
            topic = self._adopt(address, folder)
            topic.missing[address.partition] = Unserved(refused.message, folder)
        starts: dict[str, dict[int, int]] = {}
        for lost in recovered.missing:
            topic = self._adopt(lost.address, None)
            topic.missing[lost.address.partition] = Unserved(lost.finding().message, None)
            offsets = starts.setdefault(lost.address.topic, {})
            if lost.last_number is None:
                offsets[lost.address.partition] = lost.next_offset
        if recovered.accepts_loss:
            for name, offsets in starts.items():
                topic = self._topics[name]
                topic.missing.clear()
                if not offsets:
                    continue
                topic.topic_id = topic.topic_id or new_uuid()
                settings = self.settings_of(name)
                topic.partitions |= self._created(name, offsets, topic.topic_id, settings)

    def _created(
        self,
        topic: str,
        starts: Mapping[int, int],
        topic_id: str,
        settings: TopicSettings,
        *,
        added: bool = False,
    ) -> dict[int, Partition]:
        """Create partitions of a topic, by number and start offset, and open them; durable on return."""
        addresses = {TopicPartition(topic, number): start for number, start in starts.items()}
        create_folders(self.fs, self.path, addresses, topic_id, added=added)
        return {
            address.partition: Partition.create(
                self._shared, address, folder_of(self.path, address), settings, start_offset=start
            )
            for address, start in addresses.items()
        }

    def settings_of(self, topic: str) -> TopicSettings:
        """Return the settings of a topic's partitions. A topic that does not exist has the settings it would get."""
        return self._settings.of_topic(topic, self._configs.get(topic, {}))

    # ---- topics ----

    def partition(self, address: TopicPartition) -> Partition:
        """Return the partition at an address.

        Raises UnknownTopic, UnknownPartition, or MissingPartitions if the partition is not served.
        """
        self._check_open()
        topic = self._topics.get(address.topic)
        if topic is None:
            raise UnknownTopic(address.topic)
        partition = topic.partitions.get(address.partition)
        if partition is not None:
            return partition
        if address.partition in topic.missing:
            raise MissingPartitions(address.topic, _reasons(topic), partition=address.partition)
        raise UnknownPartition(*address, partitions=len(topic.partitions) + len(topic.missing))

    def partitions(self) -> Sequence[Partition]:
        """Return every open partition, in order of topic and number."""
        with self._lock:
            topics = sorted(self._topics.items())
        return [partition for _, topic in topics for partition in self._partitions_of(topic)]

    def _info(self, name: str, topic: _Topic) -> TopicInfo:
        return TopicInfo(
            name=name,
            partitions=tuple(sorted(topic.partitions)),
            configs={**self._settings.broker_configs(name), **topic.configs},
            topic_id=topic.topic_id,
            internal=names.is_internal_topic(name),
            missing=_reasons(topic),
        )

    def topics(self) -> Mapping[str, TopicInfo]:
        self._check_open()
        with self._lock:
            return MappingProxyType({n: self._info(n, t) for n, t in sorted(self._topics.items())})

    def create_topic(
        self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        self._check_writable()
        wanted = dict(configs or {})
        for name, value in wanted.items():
            check_topic_config(name, value)
        count = self._settings.num_partitions if partitions is None else partitions
        check_partition_count(count)
        with self._lock:
            if topic in self._topics:
                info = self._info(topic, self._topics[topic])
                check_same_shape(info, partitions, configs)
                return info
            self._check_new(topic)
            with self._fence.guarding():
                return self._create(topic, count, wanted)

    def _check_new(self, topic: str) -> None:
        """Raise InvalidTopic for an illegal name. Raise MissingPartitions if checkpoints still name offsets of a topic
        with this name and losses are not accepted.
        """
        check_new_name(topic, self._topics)
        left = self._names_left.get(topic)
        if left and not self._accepts_loss:
            reasons = {number: str(named) for number, named in left.items()}
            raise MissingPartitions(topic, reasons, creating=True)

    def _create(self, topic: str, count: int, configs: dict[str, str]) -> TopicInfo:
        settings = self._settings.of_topic(topic, configs)
        left = self._names_left.get(topic, {})  # losses are accepted: continue above these
        starts = {n: left[n].offset if n in left else 0 for n in range(count)}
        topic_id = new_uuid()
        self._directory.forget(lambda partition: partition.topic == topic)
        self._directory.write_topic_configs({**self._configs, topic: configs})
        partitions = self._created(topic, starts, topic_id, settings)
        self._names_left.pop(topic, None)
        self._configs[topic] = configs
        self._topics[topic] = _Topic(partitions, configs, topic_id)
        return self._info(topic, self._topics[topic])

    def preview_topic(
        self,
        topic: str,
        records: Sequence[Record] | bytes = (),
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
    ) -> TopicInfo:
        self._check_writable()
        with self._lock:
            known = self._topics.get(topic)
            if known is None:
                self._check_new(topic)
                info = TopicInfo(name=topic, partitions=range(self._settings.num_partitions))
            else:
                info = self._info(topic, known)
            settings = self.settings_of(topic)
        now_ms = self._shared.clock()
        encoding.check_appendable(
            records, settings, compression=compression, producer=producer, now_ms=now_ms
        )
        return info

    def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        self._check_writable()
        for name, value in configs.items():
            if value is None:
                check_topic_reset(name)
            else:
                check_topic_config(name, value)
        with self._lock:
            if topic not in self._topics:
                raise UnknownTopic(topic)
            merged = {**self._topics[topic].configs, **configs}
            new = {name: value for name, value in merged.items() if value is not None}
            with self._fence.guarding():
                self._directory.write_topic_configs({**self._configs, topic: new})
            self._configs[topic] = self._topics[topic].configs = new
            settings = self.settings_of(topic)
            for partition in self._topics[topic].partitions.values():
                partition.use_settings(settings)
            return self._info(topic, self._topics[topic])

    def add_partitions(self, topic: str, partitions: int) -> TopicInfo:
        self._check_writable()
        check_partition_count(partitions)
        with self._lock:
            known = self._topics.get(topic)
            if known is None:
                raise UnknownTopic(topic)
            info = self._info(topic, known)
            check_not_fewer(info, partitions)
            if info.internal:
                raise InvalidTopic(
                    f"the number of partitions of topic {topic!r} is a broker's own", topic=topic
                )
            first = max(*known.partitions, *known.missing, -1, -1) + 1
            with self._fence.guarding():
                self._add(known, topic, range(first, partitions))
            return self._info(topic, known)

    def _add(self, known: _Topic, topic: str, numbers: range) -> None:
        """Create the next partitions of a topic. An id that cannot be read from its folders is not replaced."""
        if not numbers:
            return
        if known.topic_id is None:
            raise InvalidTopic(f"topic {topic!r} has no readable topic id", topic=topic)
        self._directory.forget(lambda p: p.topic == topic and p.partition in numbers)
        starts = dict.fromkeys(numbers, 0)
        known.partitions |= self._created(
            topic, starts, known.topic_id, self.settings_of(topic), added=True
        )

    def describe_configs(self, topic: str) -> Sequence[TopicConfig]:
        self._check_open()
        with self._lock:
            if topic not in self._topics:
                raise UnknownTopic(topic)
            return self._settings.describe(topic, self._topics[topic].configs)

    def default_configs(self) -> Sequence[TopicConfig]:
        return self._settings.describe("", {})

    def check_configs(self, configs: Mapping[str, str]) -> None:
        for name, value in configs.items():
            check_topic_config(name, value)

    def delete_topic(self, topic: str) -> None:
        self._check_writable()
        with self._lock:
            if topic not in self._topics:
                raise UnknownTopic(topic)
            topic_id = self._topics[topic].topic_id
            with self._fence.guarding():
                self._producer_ids.remember(self._highest_producer_id())
                known = self._topics[topic]
                unserved = [
                    TopicPartition(topic, number)
                    for number, missing in known.missing.items()
                    if missing.folder is not None
                ]
                partitions = list(known.partitions.values())
                folders = set_aside(self._files, self.path, partitions, unserved)
                del self._topics[topic]
                self._deleted.add(topic)
                self._compactor.forget(topic)
                self._configs.pop(topic, None)
                with suppress(DiskFull):  # the next start or config change writes it
                    self._directory.write_topic_configs(self._configs)
                for folder in folders:
                    self.fs.remove_tree(folder)
                with suppress(DiskFull):  # the next checkpoint drops the lines
                    self._directory.forget(lambda partition: partition.topic == topic)
        self._group_offsets.forget_topic(topic, topic_id)

    # ---- used by the committed offsets: see group_offsets.Home ----

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic; None if it has no id or does not exist."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def offsets_partitions(self) -> Sequence[Partition]:
        """Return the open partitions of `__consumer_offsets`. Before the first commit there are none."""
        topic = self._topics.get(names.GROUP_OFFSETS_TOPIC)
        return () if topic is None else self._partitions_of(topic)

    def offsets_count(self) -> int:
        """Return the number of partitions of `__consumer_offsets`, including partitions that are not served."""
        return self._count_of(names.GROUP_OFFSETS_TOPIC)

    def _count_of(self, name: str) -> int:
        topic = self._topics.get(name)
        return 0 if topic is None else len(topic.partitions) + len(topic.missing)

    def create_offsets_topic(self) -> None:
        """Create `__consumer_offsets`; durable on return."""
        self.create_topic(names.GROUP_OFFSETS_TOPIC, self._settings.offsets_partitions)

    # ---- transactions: see transactions.Home and SupportsTransactions ----

    def transactions_count(self) -> int:
        """Return the number of partitions of `__transaction_state`, including partitions that are not served."""
        return self._count_of(names.TRANSACTION_STATE_TOPIC)

    def create_transactions_topic(self) -> None:
        """Create `__transaction_state`; durable on return."""
        self.create_topic(names.TRANSACTION_STATE_TOPIC, self._settings.transactions_partitions)

    @property
    def transaction_limits(self) -> TransactionLimits:
        """See SupportsTransactions."""
        return self._settings.transaction_limits

    # ---- records ----

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
        return self.partition(partition).append(
            records, compression=compression, producer=producer, publish=publish
        )

    def append_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        keep_offsets: bool = False,
        publish: bool = True,
        client: bool = False,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
    ) -> AppendResult:
        rules = encoding.BatchRules(
            keep_offsets=keep_offsets, client=client, checked=checked, transaction=transaction
        )
        return self.partition(partition).append_batches(data, rules, publish=publish)

    def check_client_batches(
        self, topic: str, data: bytes, transaction: ProducerEpoch | None = None
    ) -> bytes:
        with self._lock:
            settings = self.settings_of(topic)
        now_ms = self._shared.clock()
        return encoding.check_client_batches(data, settings, transaction, now_ms=now_ms).data

    are_compressed = staticmethod(encoding.are_compressed)

    def leader_epoch(self, partition: TopicPartition) -> int:
        return self.partition(partition).leader_epoch

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Page:
        return self.partition(partition).read(offset, Limits(max_records, max_bytes), isolation)

    def read_batches(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> BatchPage:
        return self.partition(partition).read_batches(
            offset, max_bytes=max_bytes, isolation=isolation
        )

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self.partition(partition).bounds()

    def log_bytes(self, partition: TopicPartition) -> int | None:
        return sum(segment.size_bytes for segment in self.partition(partition).segments())

    def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int, *, bound: Bound = Bound.LOWER
    ) -> TimedOffset | None:
        return self.partition(partition).offset_for_time(timestamp_ms, bound)

    def newest_time(self, partition: TopicPartition) -> TimedOffset | None:
        return self.partition(partition).newest_time()

    def end_of_epoch(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        return self.partition(partition).end_of_epoch(leader_epoch)

    def delete_records(self, partition: TopicPartition, before_offset: int) -> OffsetBounds:
        """See SupportsDeleteRecords. The checkpoint has the new log start before any file is removed."""
        self._check_writable()
        known = self.partition(partition)
        bounds = known.check_deletion(before_offset)
        if before_offset <= bounds.start:
            return bounds
        with self._lock, self._fence.guarding():
            if self.partition(partition) is not known:  # deleted meanwhile, and created again
                raise UnknownTopic(partition.topic)
            self._write_checkpoints({partition: max(before_offset, known.bounds().start)})
            return known.delete_records(before_offset)

    def find_page(self, topic: str, query: FindQuery) -> FoundPage:
        self._check_open()
        known = self._topics.get(topic)
        if known is None:
            raise UnknownTopic(topic)
        if query.unique_id is not None:
            raise NotOffered("unique_id: the Kafka backend keeps none", feature="unique_id")
        return find_records(self._partitions_of(known), query)

    @staticmethod
    def _partitions_of(topic: _Topic) -> Sequence[Partition]:
        return [topic.partitions[number] for number in sorted(topic.partitions)]

    def record_id(self, partition: TopicPartition, locator: int) -> str:
        return f"{partition.topic}:{partition.partition}:{locator}"

    def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        self._check_open()
        return find_by_id(self.partition, record_id)

    # ---- the store as a whole ----

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._check_open()
        if partitions is None:
            partitions = [partition.partition for partition in self.partitions()]
        for address in partitions:
            self.partition(address).flush()

    def new_producer_id(self) -> int:
        self._check_writable()
        with self._lock, self._fence.guarding():
            return self._producer_ids.next_above(self._highest_producer_id())

    def _highest_producer_id(self) -> int:
        return max((p.highest_producer_id for p in self._all_partitions()), default=-1)

    def _all_partitions(self) -> Iterable[Partition]:
        return (p for topic in self._topics.values() for p in topic.partitions.values())

    def checkpoint(self) -> None:
        self._check_writable()
        with self._lock, self._fence.guarding():
            self._write_checkpoints()
            for partition in self._all_partitions():
                partition.write_indexes()
                partition.expire_producers(self._shared.clock())

    def _write_checkpoints(self, log_starts: Mapping[TopicPartition, int] | None = None) -> None:
        """Write the next producer id, recovery points, high watermarks and log starts. `log_starts`: those that the
        partitions will have.
        """
        self._producer_ids.remember(self._highest_producer_id())
        here = {p.partition: p for p in self._all_partitions()}
        values: dict[str, dict[TopicPartition, int | None]] = {
            names.RECOVERY_POINTS: {a: p.flushed_offset for a, p in here.items()},
            names.HIGH_WATERMARKS: {a: p.high_watermark() for a, p in here.items()},
            names.LOG_STARTS: {a: p.start_in_segment() for a, p in here.items()},
        }
        values[names.LOG_STARTS].update(log_starts or {})
        for name, offsets in values.items():
            self._directory.write_offsets(name, offsets, gone=self._deleted)

    def retention_settings(self) -> Mapping[str, str | None]:
        """See SupportsRetentionSettings: the defaults of all topics. A topic's own configs count before them."""
        defaults = self._settings.topic_defaults
        return {name: defaults.get(topic_name) for name, topic_name in RETENTION_SETTINGS.items()}

    def change_retention(self, changes: Mapping[str, str | None]) -> None:
        """See SupportsRetentionSettings."""
        self._check_writable()
        with self._lock:
            defaults = changed_retention(self._settings.topic_defaults, changes)
            self._settings = replace(self._settings, topic_defaults=defaults)
            for name, topic in self._topics.items():
                settings = self.settings_of(name)
                for partition in topic.partitions.values():
                    partition.use_settings(settings)

    def enforce_retention(self, now_ms: int) -> RetentionReport:
        self._check_writable()
        with self._fence.guarding():
            reports = [partition.enforce_retention(now_ms) for partition in self.partitions()]
        deleted = sum(report.segments_deleted for report in reports)
        bytes_deleted = sum(report.bytes_deleted for report in reports)
        if deleted:
            self.checkpoint()
        return RetentionReport(segments_deleted=deleted, bytes_deleted=bytes_deleted)

    def compact(self, now_ms: int, *, max_bytes: int | None = None) -> CompactionReport:
        self._check_writable()
        return self._compactor.step(now_ms, max_bytes)

    def _compacted(self, *, is_own: bool) -> Sequence[Partition]:
        """Return the partitions that compaction may clean. `is_own`: this server created the store."""
        with self._lock:
            topics = list(self._topics.items())
        return [
            partition
            for name, topic in topics
            if self._settings.may_compact(name, topic.configs, is_own=is_own)
            for partition in self._partitions_of(topic)
            if partition.settings.compacts
        ]

    def _write_cleaned(self, partition: Partition, offset: int) -> None:
        """Record the offset up to which a partition was cleaned, unless its topic was deleted; durable on return."""
        address = partition.partition
        with self._lock:
            topic = self._topics.get(address.topic)
            # By identity: another topic may have the name now.
            if topic is not None and topic.partitions.get(address.partition) is partition:
                self._directory.write_offsets(
                    names.CLEANER_OFFSETS, {address: offset}, gone=self._deleted
                )

    def stats(self) -> StoreStats:
        self._check_open()
        partitions = self.partitions()
        segments = [segment for partition in partitions for segment in partition.segments()]
        return StoreStats(
            topics=len(self._topics),
            partitions=len(partitions),
            segments=len(segments),
            size_bytes=sum(segment.size_bytes for segment in segments),
            open_files=self._files.open_files,
            fenced=self._fence.cause,
            deleted_segments=self._shared.deleted.segments,
            deleted_bytes=self._shared.deleted.size_bytes,
            details={
                "compiled": not (batch.__file__ or "").endswith(".py"),
                "deleted_files_waiting": sum(p.deleted_files for p in partitions),
                "metadata_dirs": [folder.name for folder in self._directory.metadata_dirs()],
            },
            compaction=self._compactor.status(self._shared.clock()),
        )

    def close(self) -> None:
        self._compactor.close()  # without the lock, which the end of a cleaning takes
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._end()

    def _stop_cleanly(self) -> None:
        """Make all partitions durable and trim their files, then write the checkpoints, and last the clean-stop marker.

        The marker is left out after an unclean stop if an unserved partition has a folder.
        """
        with self._fence.guarding():
            for partition in self._all_partitions():
                partition.close()
            self._write_checkpoints()
            if self.recovery.clean_shutdown or not self._has_unserved_folder():
                self._directory.write_marker()

    def _has_unserved_folder(self) -> bool:
        """Return whether an unserved partition has a folder. No marker may cover a folder that is not recovered."""
        return any(
            missing.folder is not None
            for topic in self._topics.values()
            for missing in topic.missing.values()
        )


def _reasons(topic: _Topic) -> Mapping[int, str]:
    return {number: topic.missing[number].reason for number in sorted(topic.missing)}
