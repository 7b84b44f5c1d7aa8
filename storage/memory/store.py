"""The model: the storage contract in lists, short and obvious. All data is lost at close.

Owns the meaning of each LogStore method in its simplest form; must not know bytes, files or another backend. The
contract and state machine suites compare the backends with it, and a server that needs no disk runs on it. Where the
contract leaves a choice, the model follows Kafka (names, sequences, lookup by time). A record's size is the size of its
key, value and headers. Retention deletes nothing. One lock makes it thread-safe.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from storage import errors
from storage.contract import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_RECORDS,
    Clock,
    LogStore,
    StoreOptions,
    check_not_fewer,
)
from storage.files.fs import FileSystem
from storage.memory.rules import (
    check_new_name,
    check_records,
    check_times,
    checked_configs,
    record_bytes,
)
from storage.model import (
    AppendResult,
    Bound,
    Capabilities,
    CommittedOffset,
    FindQuery,
    FoundPage,
    GroupCommit,
    Isolation,
    OffsetBounds,
    Page,
    ProducerSequence,
    Record,
    RecoveryReport,
    RetentionReport,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicInfo,
    TopicPartition,
)
from storage.shared.group_offsets import OffsetTable, at_time, check_commits
from storage.shared.query import (
    Inspected,
    RecordSearch,
    check_limits,
    page_of,
    parse_partition_cursor,
    partition_cursor,
)
from storage.shared.sequencing import Producers

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
_RECORD_ID = re.compile(r"(.+):(\d{1,10}):(\d{1,19})", re.DOTALL)


@dataclass(slots=True)
class _Log:
    """One partition: the records from offset `start` on, the end of the published records, and its producers."""

    records: list[StoredRecord] = field(default_factory=list)
    start: int = 0
    published: int = 0
    producers: Producers = field(default_factory=Producers)

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def visible(self) -> Iterator[StoredRecord]:
        return self.visible_from(self.start)

    def visible_from(self, offset: int) -> Iterator[StoredRecord]:
        return islice(self.records, offset - self.start, self.published - self.start)

    @property
    def bounds(self) -> OffsetBounds:
        return OffsetBounds(start=self.start, stable=self.published, end=self.published)


class MemoryStore(LogStore):
    """The contract in lists. See LogStore for the contract of each method."""

    capabilities = Capabilities(
        backend="memory",
        indexed_keys=False,
        batch_bytes=False,
        truncate=False,
        time_axis="timestamp",
        leader_epochs=False,
    )
    recovery = RecoveryReport(clean_shutdown=True)
    offsets_topic: str | None = None

    def __init__(self, options: StoreOptions, *, clock: Clock, read_only: bool = False) -> None:
        self.read_only = read_only
        self._default_partitions = _number_setting(options, "num.partitions", 1)
        self._limit_bytes = _number_setting(options, "max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)
        self._clock = clock
        self._lock = threading.RLock()
        self._closed = False
        self._topics: dict[str, TopicInfo] = {}
        self._logs: dict[TopicPartition, _Log] = {}
        self._offsets = OffsetTable[CommittedOffset]()
        self._next_producer_id = 0

    def topics(self) -> Mapping[str, TopicInfo]:
        with self._opened():
            return {name: self._topics[name] for name in sorted(self._topics)}

    def create_topic(
        self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        with self._opened(write=True):
            wanted = checked_configs(configs or {})
            count = self._default_partitions if partitions is None else partitions
            if count < 1:
                raise errors.InvalidArgument(f"partitions cannot be {count}", field="partitions")
            if topic in self._topics:
                return self._same_topic(topic, partitions, configs)
            check_new_name(topic, self._topics)
            self._topics[topic] = TopicInfo(name=topic, partitions=range(count), configs=wanted)
            self._logs |= {TopicPartition(topic, number): _Log() for number in range(count)}
            return self._topics[topic]

    def preview_topic(
        self,
        topic: str,
        records: Sequence[Record] | bytes = (),
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
    ) -> TopicInfo:
        with self._opened(write=True):
            info = self._topics.get(topic)
            if info is None:
                check_new_name(topic, self._topics)
                info = TopicInfo(name=topic, partitions=range(self._default_partitions))
            if isinstance(records, bytes):
                raise errors.NotOffered("this backend takes no batches", feature="batches")
            self._check(info.configs, records, compression, producer)
            check_times(records, info.configs, now_ms=self._clock())
            return info

    def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        with self._opened(write=True):
            info = self._topic(topic)
            given = checked_configs(configs)
            kept = {name: value for name, value in info.configs.items() if name not in configs}
            self._topics[topic] = replace(info, configs=kept | given)
            return self._topics[topic]

    def add_partitions(self, topic: str, partitions: int) -> TopicInfo:
        with self._opened(write=True):
            info = self._topic(topic)
            check_not_fewer(info, partitions)
            added = range(len(info.partitions), partitions)
            self._logs |= {TopicPartition(topic, number): _Log() for number in added}
            self._topics[topic] = replace(info, partitions=range(partitions))
            return self._topics[topic]

    def delete_topic(self, topic: str) -> None:
        with self._opened(write=True):
            for number in self._topic(topic).partitions:
                del self._logs[TopicPartition(topic, number)]
            del self._topics[topic]
            self._offsets.drop_topics([topic])

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
        with self._opened(write=True):
            log = self._log(partition)
            if not records:
                raise errors.InvalidArgument("an append needs a record", field="records")
            configs = self._topics[partition.topic].configs
            self._check(configs, records, compression, producer)
            if producer is not None:
                known = log.producers.find_duplicate(producer, len(records))
                if known is not None:
                    first, last = known.base_offset, known.last_offset
                    return AppendResult(first, last, -1, range(first, last + 1), True)
                log.producers.check(producer)
            base, now_ms = log.end, self._clock()
            check_times(records, configs, now_ms=now_ms)
            by_append = configs.get("message.timestamp.type") == "LogAppendTime"
            append_time_ms = now_ms if by_append else None
            log.records += (
                _stored(record, base + index, now_ms, append_time_ms)
                for index, record in enumerate(records)
            )
            if producer is not None:
                log.producers.add(producer, len(records), base_offset=base, timestamp_ms=now_ms)
                self._next_producer_id = max(self._next_producer_id, producer.producer_id + 1)
            if publish and log.published == base:
                log.published = log.end
            last = log.end - 1
            times = -1 if append_time_ms is None else append_time_ms
            return AppendResult(base, last, times, range(base, last + 1))

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Page:
        """Read as LogStore.read; `isolation` has no effect, because there are no transactions."""
        with self._opened():
            log = self._log(partition)
            if not log.start <= offset <= log.published:
                raise errors.OffsetOutOfRange(
                    *partition, offset=offset, earliest=log.start, latest=log.published
                )
            page: list[StoredRecord] = []
            size_bytes = 0
            for record in log.visible_from(offset):
                size_bytes += record_bytes(record)
                if page and (len(page) >= max_records or size_bytes > max_bytes):
                    break
                page.append(record)
            return Page(page, offset + len(page), log.bounds)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        with self._opened():
            return self._log(partition).bounds

    def log_bytes(self, partition: TopicPartition) -> int | None:
        with self._opened():
            return sum(map(record_bytes, self._log(partition).records))

    def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int, *, bound: Bound = Bound.LOWER
    ) -> TimedOffset | None:
        """Return the first or last matching record by time.

        - LOWER: the first record in offset order with a time >= `timestamp_ms` (Kafka's rule).
        - UPPER: the last record in offset order with a time <= `timestamp_ms`.
        """
        with self._opened():
            visible = list(self._log(partition).visible)
            if bound is Bound.LOWER:
                hits = (r for r in visible if r.timestamp_ms >= timestamp_ms)
            else:
                hits = (r for r in reversed(visible) if r.timestamp_ms <= timestamp_ms)
            return next((TimedOffset(r.offset, r.timestamp_ms) for r in hits), None)

    def newest_time(self, partition: TopicPartition) -> TimedOffset | None:
        with self._opened():
            visible = (r for r in self._log(partition).visible if r.timestamp_ms >= 0)
            newest = max(visible, key=lambda record: record.timestamp_ms, default=None)
            return None if newest is None else TimedOffset(newest.offset, newest.timestamp_ms)

    def delete_records(self, partition: TopicPartition, before_offset: int) -> OffsetBounds:
        """See SupportsDeleteRecords; nothing is durable here."""
        with self._opened(write=True):
            log = self._log(partition)
            if not 0 <= before_offset <= log.published:
                raise errors.OffsetOutOfRange(
                    *partition, offset=before_offset, earliest=log.start, latest=log.published
                )
            start = max(before_offset, log.start)
            del log.records[: start - log.start]
            log.start = start
            return log.bounds

    def find_page(self, topic: str, query: FindQuery) -> FoundPage:
        """Find records in the order of partition, then offset. `scan` has no effect, because there is no index."""
        with self._opened():
            info = self._topic(topic)
            if query.unique_id is not None:
                raise errors.NotOffered("no record has a unique id here", feature="unique_id")
            check_limits(query)
            return page_of(
                self._inspected(info, query),
                query,
                lambda place: partition_cursor(*place, backward=query.backward),
                time_axis="timestamp",
            )

    def _inspected(
        self, info: TopicInfo, query: FindQuery
    ) -> Iterator[tuple[tuple[int, int], Inspected]]:
        """Yield the visible records of a topic from the cursor on, each at its (partition, offset)."""
        search, backward = RecordSearch(query), query.backward
        start = parse_partition_cursor(query, info.partitions)
        for number in reversed(info.partitions) if backward else info.partitions:
            visible = list(self._logs[TopicPartition(info.name, number)].visible)
            for record in reversed(visible) if backward else visible:
                place = (number, record.offset)
                if start is None or (place <= start if backward else place >= start):
                    yield place, Inspected(number, record if search.matches(record) else None)

    def record_id(self, partition: TopicPartition, locator: int) -> str:
        return f"{partition.topic}:{partition.partition}:{locator}"

    def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        with self._opened():
            parts = _RECORD_ID.fullmatch(record_id)
            if parts is not None:
                partition, offset = TopicPartition(parts[1], int(parts[2])), int(parts[3])
                log = self._logs.get(partition, _Log())
                known = log.start <= offset < log.published
                if known and self.record_id(partition, offset) == record_id:
                    return partition, log.records[offset - log.start]
            raise errors.RecordNotFound(f"no record has the id {record_id[:300]!r}", id=record_id)

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Publish the records; nothing becomes durable. Raises UnknownTopic, UnknownPartition."""
        with self._opened():
            for partition in self._logs if partitions is None else partitions:
                log = self._log(partition)
                log.published = log.end

    def new_producer_id(self) -> int:
        with self._opened(write=True):
            self._next_producer_id += 1
            return self._next_producer_id - 1

    def groups(self) -> Sequence[str]:
        """See SupportsGroupOffsets."""
        with self._opened():
            return self._offsets.groups()

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """See SupportsGroupOffsets."""
        with self._opened():
            return self._offsets.of_group(group)

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        """See SupportsGroupOffsets; there are no transactions here."""
        with self._opened():
            return ()

    def commit_offsets(self, commits: Sequence[GroupCommit], *, durable: bool = True) -> None:
        """See SupportsGroupOffsets; nothing is durable here."""
        with self._opened(write=True):
            check_commits(commits, check_partition=self._log, nameless=True)
            for group, offsets, _ in commits:
                for partition, committed in offsets.items():
                    self._offsets.put(group, partition, at_time(committed, self._clock()))

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """See SupportsGroupOffsets."""
        with self._opened(write=True):
            self._offsets.drop(group, *self._offsets.held(group, partitions))

    def checkpoint(self) -> None:
        with self._opened(write=True):
            """Nothing outlives this store."""

    def enforce_retention(self, now_ms: int) -> RetentionReport:
        with self._opened(write=True):
            return RetentionReport()

    def stats(self) -> StoreStats:
        with self._opened():
            sizes = (record_bytes(record) for log in self._logs.values() for record in log.records)
            return StoreStats(
                topics=len(self._topics),
                partitions=len(self._logs),
                segments=0,
                size_bytes=sum(sizes),
                open_files=0,
                fenced=None,
            )

    def close(self) -> None:
        with self._lock:
            self._closed = True

    @contextmanager
    def _opened(self, *, write: bool = False) -> Iterator[None]:
        """Hold the lock. Raises StoreClosed if the store is closed, StoreReadOnly with `write` if it is read-only."""
        with self._lock:
            if self._closed:
                raise errors.StoreClosed("the store is closed")
            if write and self.read_only:
                raise errors.StoreReadOnly("the store was opened read-only", path="memory")
            yield

    def _topic(self, topic: str) -> TopicInfo:
        if topic not in self._topics:
            raise errors.UnknownTopic(topic)
        return self._topics[topic]

    def _same_topic(
        self, topic: str, partitions: int | None, configs: Mapping[str, str] | None
    ) -> TopicInfo:
        """Return the topic if it has the requested shape; an argument that was not given is not compared."""
        info = self._topics[topic]
        same_count = partitions is None or partitions == len(info.partitions)
        if not same_count or (configs is not None and configs != info.configs):
            raise errors.TopicExists(f"topic {topic!r} exists in another shape", topic=topic)
        return info

    def _log(self, partition: TopicPartition) -> _Log:
        info = self._topic(partition.topic)
        if partition.partition not in info.partitions:
            raise errors.UnknownPartition(*partition, partitions=len(info.partitions))
        return self._logs[partition]

    def _check(
        self,
        configs: Mapping[str, str],
        records: Sequence[Record],
        compression: str | None,
        producer: ProducerSequence | None,
    ) -> None:
        limit_bytes = int(configs.get("max.message.bytes", self._limit_bytes))
        as_one = producer is not None
        check_records(records, compression=compression, limit_bytes=limit_bytes, as_one=as_one)


def open_memory(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock, read_only: bool = False
) -> MemoryStore:
    """Return a new, empty store. `path` and `fs` are not used, because no data outlives the store."""
    return MemoryStore(options, clock=clock, read_only=read_only)


def _number_setting(options: StoreOptions, name: str, default: int) -> int:
    value = options.settings.get(name, f"{default}")
    if not re.fullmatch(r"[1-9]\d{0,8}", value):
        raise errors.InvalidConfig(f"setting {name} cannot be {value!r}", name=name, value=value)
    return int(value)


def _stored(record: Record, offset: int, now_ms: int, append_time_ms: int | None) -> StoredRecord:
    given_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
    return StoredRecord(
        offset=offset,
        timestamp_ms=given_ms if append_time_ms is None else append_time_ms,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_type="CreateTime" if append_time_ms is None else "LogAppendTime",
        tag=record.tag,
        lookup_keys=tuple(record.lookup_keys),
        locator=offset,
    )
