"""Committed offsets and members of consumer groups, stored as the broker does: as records of `__consumer_offsets`.

Owns which partition a group's records go to, the order of a commit's steps, and the rule which record counts; must not
know the bytes of a record. No state is stored apart from the log: offsets are read from the log when they are
requested. A commit of many groups is one append to each partition that is the home of a group, and a sync of these
partitions:

    check all -> sync the records that the offsets count -> append -> sync

As in the broker's loader (GroupCoordinatorShard, and OffsetMetadataManager for transactions), the last record of a key
counts, in the order of the log:

    record                               counts
    of no transaction                    at once; it replaces all earlier records of its key, also
                                         those in open transactions
    of a transaction                     when its COMMIT marker comes, unless a later record of its
                                         key has counted; never with ABORT or without a marker
    the members of a classic group       at once; a tombstone ends the group
    a part of a group of the new         at once; a group is the sum of its parts
    protocol
    another type, or a key or value      not at all; it stays in the log as it is
    that cannot be understood

Each read of the log continues where the last read ended. So records that other clients append are seen too.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from storage.coding.hashes import java_hash
from storage.contract import Clock
from storage.errors import Corrupt, DataError, DiskFull, OffsetOutOfRange
from storage.groups import AnyStoredGroup, StoredGroup
from storage.kafka.format import names
from storage.kafka.format.batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    decode_control,
    decode_records,
    split_batches,
)
from storage.kafka.format.consumer_group_records import (
    decode_consumer_group,
    encode_consumer_group,
    tombstone_order,
)
from storage.kafka.format.group_records import (
    CLASSIC_TYPE,
    decode_group_key,
    decode_group_value,
    encode_group_key,
    encode_group_value,
)
from storage.kafka.format.offset_records import (
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from storage.kafka.format.properties import parse_uuid_text
from storage.model import (
    AppendResult,
    BatchPage,
    CommittedOffset,
    GroupCommit,
    Isolation,
    OffsetBounds,
    ProducerEpoch,
    ProducerSequence,
    Record,
    TopicPartition,
)
from storage.shared.group_offsets import OffsetTable, at_time, check_commits, check_group
from storage.shared.sequencing import NO_SEQUENCE

INT32_MIN: Final = -(1 << 31)
READ_BYTES: Final = 1 << 20
_T = TypeVar("_T")
_Change = tuple[str, TopicPartition, CommittedOffset | None, ProducerEpoch | None]
"""A group, a partition, its new offset (None deletes the group's offset), and the transaction that commits it."""


class OffsetsPartition(Protocol):
    """The calls to a partition: one of `__consumer_offsets`, or one whose records an offset counts."""

    @property
    def flushed_offset(self) -> int: ...

    def bounds(self) -> OffsetBounds: ...

    def read_batches(self, offset: int, *, max_bytes: int, isolation: Isolation) -> BatchPage: ...

    def append(
        self,
        records: Sequence[Record],
        *,
        compression: str | None,
        producer: ProducerSequence | None,
        publish: bool,
    ) -> AppendResult: ...

    def flush(self) -> None: ...


def is_of(value: OffsetValue, topic_id: bytes | None) -> bool:
    """Return whether an offset belongs to the topic with this id, and not to an earlier topic of the same name (as in
    OffsetMetadataManager). An id that is not known (None) matches every topic.
    """
    return None in (value.topic_id, topic_id) or value.topic_id == topic_id


def id_bytes(topic_id: str | None) -> bytes | None:
    """Return a topic's id as the records store it; None if it is not known."""
    return None if topic_id is None else parse_uuid_text(topic_id, field="topic id")


class _Stored(NamedTuple):
    """The content of one record for its key; `value` None: a tombstone, so the key has no offset."""

    record_offset: int
    value: OffsetValue | None


class OffsetsLog:
    """The committed offsets of the groups that belong to one partition. Thread-safe."""

    def __init__(self, partition: OffsetsPartition) -> None:
        self.partition = partition
        self._lock = threading.Lock()  # guards the fields below
        self._read_to = 0
        self._table = OffsetTable[OffsetValue]()
        self._groups: dict[str, StoredGroup] = {}
        # Records of the new group protocol by group, values by key: they are decoded when they are asked for.
        self._parts: dict[str, dict[bytes, bytes]] = {}
        # of open transactions, by producer id
        self._pending: dict[int, dict[OffsetKey, _Stored]] = {}

    def look(self, question: Callable[[OffsetTable[OffsetValue]], _T]) -> _T:
        """Return the result of `question` on the table, read up to the log's published end.

        The result must contain only copies of the table's data.
        """
        with self._lock:
            self._catch_up()
            return question(self._table)

    def stored_groups(self) -> Sequence[AnyStoredGroup]:
        """Return the groups with members, or that had some."""
        with self._lock:
            self._catch_up()
            modern = [
                decode_consumer_group(name, parts)
                for name, parts in self._parts.items()
                if name not in self._groups
            ]
            return [*self._groups.values(), *modern]

    def parts_of(self, group: str) -> Mapping[bytes, bytes | None]:
        """Return the values of the records of a group's members, by key; None for the value of a classic group."""
        with self._lock:
            self._catch_up()
            own = {encode_group_key(group): None} if group in self._groups else {}
            return {**own, **self._parts.get(group, {})}

    def pending(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions for which an open transaction holds an offset of the group."""
        with self._lock:
            self._catch_up()
            return {
                TopicPartition(key.topic, key.partition)
                for keys in self._pending.values()
                for key in keys
                if key.group == group
            }

    def pending_of_topic(self, topic: str) -> Collection[tuple[str, TopicPartition]]:
        """Return each group and partition of a topic for which an open transaction holds an offset."""
        with self._lock:
            self._catch_up()
            return {
                (key.group, TopicPartition(key.topic, key.partition))
                for keys in self._pending.values()
                for key in keys
                if key.topic == topic
            }

    def _catch_up(self) -> None:
        """Read up to the published end. Damage is skipped: `verify` and a start report it."""
        while True:
            bounds = self.partition.bounds()
            offset = max(self._read_to, bounds.start)
            if offset >= bounds.end:
                return
            with suppress(OffsetOutOfRange):  # segments were deleted meanwhile: try again
                self._read_to = self._read(offset, bounds.end)

    def _read(self, offset: int, end: int) -> int:
        """Read and apply some batches from `offset` on. Return the offset to continue from."""
        try:
            page = self.partition.read_batches(
                offset, max_bytes=READ_BYTES, isolation=Isolation.READ_UNCOMMITTED
            )
        except Corrupt as error:
            following: object = error.facts().get("next_good_offset")
            return following if isinstance(following, int) and following > offset else end
        for at, header in split_batches(page.data):
            with suppress(DataError):
                self._take(page.data, at, header)
        return page.next_offset if page.next_offset > offset else end

    def _take(self, data: bytes, at: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = decode_control(data, at)
            if marker is not None and marker.type in (ABORT, COMMIT):
                self._end_transaction(header.producer_id, commit=marker.type == COMMIT)
            return
        for record_offset, _, key, value, _ in decode_records(data, at, header=header):
            with suppress(DataError):
                if key is None:
                    continue
                offset_key = decode_key(key)
                if offset_key is None:
                    self._take_group(key, value)
                    continue
                stored = _Stored(record_offset, None if value is None else decode_value(value))
                if header.is_transactional:
                    self._pending.setdefault(header.producer_id, {})[offset_key] = stored
                else:
                    self._apply(offset_key, stored)

    def _take_group(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the members of a group."""
        found = decode_group_key(key)
        if found is None:
            return
        kind, group = found
        if kind != CLASSIC_TYPE:
            parts = self._parts.setdefault(group, {})
            if value is None:
                parts.pop(key, None)
            else:
                parts[key] = value
                self._groups.pop(group, None)
            if not parts:
                del self._parts[group]
        elif value is None:
            self._groups.pop(group, None)
        else:
            self._groups[group] = decode_group_value(group, value)

    def _end_transaction(self, producer_id: int, *, commit: bool) -> None:
        ended = self._pending.pop(producer_id, {})
        for key, stored in ended.items() if commit else ():
            self._apply(key, stored)

    def _apply(self, key: OffsetKey, stored: _Stored) -> None:
        """Apply a record to the table. Earlier records of its key that still wait for a marker are dropped."""
        for pending in self._pending.values():
            if key in pending and pending[key].record_offset < stored.record_offset:
                del pending[key]
        address = TopicPartition(key.topic, key.partition)
        if stored.value is None:
            self._table.drop(key.group, address)
        else:
            self._table.put(key.group, address, stored.value)


class Home(Protocol):
    """The calls to the store that the offsets belong to."""

    def partition(self, address: TopicPartition) -> OffsetsPartition:
        """Return a partition. Raises UnknownTopic, UnknownPartition, MissingPartitions."""

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic; None if the topic has no id or does not exist."""

    def offsets_partitions(self) -> Sequence[OffsetsPartition]:
        """Return the existing partitions of `__consumer_offsets`; none before the first commit."""

    def offsets_count(self) -> int:
        """Return the partition count of `__consumer_offsets`, missing partitions included; 0 without the topic."""

    def create_offsets_topic(self) -> None:
        """Create `__consumer_offsets`; durable on return."""


def home_of(group: str, partitions: int) -> int:
    """Return the partition that holds a group's records (GroupCoordinatorService.partitionFor)."""
    hashed = java_hash(group)
    return (0 if hashed == INT32_MIN else abs(hashed)) % partitions


class GroupOffsets:
    """The offsets of a store's groups; see SupportsGroupOffsets. Leader epoch, metadata and commit time are kept."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._commit_lock = threading.Lock()  # held during a commit's IO: commits have an order
        self._lock = threading.Lock()  # guards `_logs`
        self._logs: Sequence[OffsetsLog] = ()

    def groups(self) -> Sequence[str]:
        """Return the groups that have offsets, sorted."""
        return sorted({group for log in self._current() for group in log.look(self._counting)})

    def _counting(self, table: OffsetTable[OffsetValue]) -> Sequence[str]:
        """Return the groups of a table with at least one offset that counts."""
        return [
            group
            for group in table.groups()
            if any(self._counts(*item) for item in table.of_group(group).items())
        ]

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a group's offsets by partition, in order. Offsets of an earlier topic of that name do not count."""
        return {
            partition: CommittedOffset(*value[:4])
            for partition, value in self._of_group(group).items()
            if self._counts(partition, value)
        }

    def _counts(self, partition: TopicPartition, value: OffsetValue) -> bool:
        return is_of(value, id_bytes(self._home.topic_id(partition.topic)))

    def unstable(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions with an offset of the group in an open transaction."""
        log = self._log_of(group)
        return () if log is None else log.pending(group)

    def _of_group(self, group: str) -> Mapping[TopicPartition, OffsetValue]:
        log = self._log_of(group)
        return {} if log is None else log.look(lambda table: table.of_group(group))

    def _log_of(self, group: str) -> OffsetsLog | None:
        """Return the log of a group's records; None before the first commit."""
        logs = self._current()
        count = self._home.offsets_count()
        if not count:
            return None
        home = self._home.partition(
            TopicPartition(names.GROUP_OFFSETS_TOPIC, home_of(group, count))
        )
        (log,) = (log for log in logs if log.partition is home)
        return log

    def _current(self) -> Sequence[OffsetsLog]:
        """Return the logs of the current topic: it may have been created or deleted since the last call."""
        partitions = self._home.offsets_partitions()
        with self._lock:
            if [log.partition for log in self._logs] != list(partitions):
                self._logs = [OffsetsLog(partition) for partition in partitions]
            return self._logs

    # ---- writing ----

    def commit(self, commits: Sequence[GroupCommit], *, durable: bool) -> None:
        with self._commit_lock:
            check_commits(commits, check_partition=self._home.partition, nameless=True)
            changes: list[_Change] = [
                (group, partition, committed, transaction)
                for group, offsets, transaction in commits
                for partition, committed in offsets.items()
            ]
            beyond = self._sync_records(changes)
            self._append(changes, durable=durable, beyond=beyond)

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None) -> None:
        with self._commit_lock:
            # Also offsets of open transactions (OffsetMetadataManager.deleteOffsets): the commit would restore them.
            held = sorted({*self._of_group(group), *self.unstable(group)})
            wanted = held if partitions is None else [p for p in partitions if p in held]
            self._append([(group, partition, None, None) for partition in wanted], durable=True)

    def stored_groups(self) -> Sequence[AnyStoredGroup]:
        found = [group for log in self._current() for group in log.stored_groups()]
        return sorted(found, key=lambda group: group.name)

    def write_groups(self, groups: Sequence[AnyStoredGroup], *, durable: bool) -> None:
        with self._commit_lock:
            records = []
            for group in groups:
                check_group(group.name)
                records += [(group.name, record) for record in self._changes(group)]
            self._append_records(records, durable=durable)

    def _changes(self, group: AnyStoredGroup) -> Iterator[Record]:
        """Return the records that differ from the stored ones: first the tombstones."""
        if isinstance(group, StoredGroup):
            parts: Mapping[bytes, bytes] = {encode_group_key(group.name): encode_group_value(group)}
        else:
            parts = encode_consumer_group(group)
        stored = self._parts_of(group.name)
        for key in tombstone_order(stored.keys() - parts.keys()):
            yield Record(key, None)
        for key, value in parts.items():
            if stored.get(key) != value:
                yield Record(key, value)

    def _parts_of(self, group: str) -> Mapping[bytes, bytes | None]:
        log = self._log_of(group)
        return {} if log is None else log.parts_of(group)

    def forget_groups(self, groups: Iterable[str]) -> None:
        with self._commit_lock:
            records = []
            for group in groups:
                keys = tombstone_order(self._parts_of(group))
                records += [(group, Record(key, None)) for key in keys]
            self._append_records(records, durable=True)

    def _append_records(self, records: Sequence[tuple[str, Record]], *, durable: bool) -> None:
        """Append records of groups, in their order; one append to each partition."""
        homes: dict[TopicPartition, list[Record]] = {}
        now_ms = self._clock()
        for group, record in records:
            homes.setdefault(self.home(group), []).append(record._replace(timestamp_ms=now_ms))
        for address, run in homes.items():
            partition = self._home.partition(address)
            partition.append(run, compression="none", producer=None, publish=not durable)
            if durable:
                partition.flush()

    def forget_topic(self, topic: str, topic_id: str | None) -> None:
        """Delete every group's offsets for a deleted topic, except the offsets of a new topic with its name. On a full
        disk the offsets stay: their topic id shows that they do not count.

        The offsets of open transactions are deleted too (as by OffsetMetadataManager.onPartitionsDeleted). They have no
        topic id, so their commit would make them offsets of a new topic with its name.
        """
        with self._commit_lock, suppress(DiskFull):
            forgotten = {
                (group, partition)
                for log in self._current()
                for group, partition, value in log.look(lambda table: table.of_topic(topic))
                if is_of(value, id_bytes(topic_id))
            }
            for log in self._current():
                forgotten |= set(log.pending_of_topic(topic))
            changes: list[_Change] = [(*key, None, None) for key in sorted(forgotten)]
            self._append(changes, durable=True)

    def _sync_records(self, changes: Sequence[_Change]) -> Collection[_Change]:
        """Flush the records below each new offset, before the offset is appended: after a crash no group's offset is
        above the log end. Return the changes with an offset that is beyond the end as it is: their records say so,
        since such an offset does not prove that the log reached it.
        """
        beyond = set()
        for change in changes:
            _, address, committed, _ = change
            partition = self._home.partition(address)
            if committed is not None and committed.offset > partition.flushed_offset:
                partition.flush()
                if committed.offset > partition.flushed_offset:
                    beyond.add(change)
        return beyond

    def _append(
        self, changes: Sequence[_Change], *, durable: bool, beyond: Collection[_Change] = ()
    ) -> None:
        if not changes:
            return
        runs: dict[tuple[TopicPartition, ProducerEpoch | None], list[Record]] = {}
        for change in changes:
            run = self.home(change[0]), change[3]
            runs.setdefault(run, []).append(self._record(change, is_beyond_end=change in beyond))
        homes = {address: self._home.partition(address) for address, _ in runs}
        for (address, transaction), records in runs.items():
            mark = None if transaction is None else _mark(transaction)
            homes[address].append(records, compression="none", producer=mark, publish=not durable)
        if durable:
            for partition in homes.values():
                partition.flush()

    def home(self, group: str) -> TopicPartition:
        """Return the partition of a group's records; the topic is created if it is missing."""
        if not self._home.offsets_count():
            self._home.create_offsets_topic()
        count = self._home.offsets_count()
        return TopicPartition(names.GROUP_OFFSETS_TOPIC, home_of(group, count))

    def _record(self, change: _Change, *, is_beyond_end: bool) -> Record:
        group, (topic, partition), committed, transaction = change
        key = encode_key(OffsetKey(group, topic, partition))
        if committed is None:
            return Record(key, None)
        offset, leader_epoch, metadata, time_ms = at_time(committed, self._clock())
        topic_id = None  # the broker leaves it out in a transaction
        if transaction is None:
            topic_id = id_bytes(self._home.topic_id(topic))
        assert time_ms is not None
        value = OffsetValue(offset, leader_epoch, metadata, time_ms, topic_id, is_beyond_end)
        return Record(key, encode_value(value))


def _mark(transaction: ProducerEpoch) -> ProducerSequence:
    return ProducerSequence(*transaction, NO_SEQUENCE, transactional=True)


class KeepsGroupMembers(ABC):
    """The calls of SupportsGroupMembers for a store that has GroupOffsets."""

    _group_offsets: GroupOffsets

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosed if the store is closed."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise StoreClosed, StoreReadOnly or StoreFenced if the store cannot be written."""

    def stored_groups(self) -> Sequence[AnyStoredGroup]:
        """See SupportsGroupMembers."""
        self._check_open()
        return self._group_offsets.stored_groups()

    def write_groups(self, groups: Sequence[AnyStoredGroup], *, durable: bool = True) -> None:
        """See SupportsGroupMembers."""
        self._check_writable()
        self._group_offsets.write_groups(groups, durable=durable)

    def forget_groups(self, names: Iterable[str]) -> None:
        """See SupportsGroupMembers."""
        self._check_writable()
        self._group_offsets.forget_groups(names)
