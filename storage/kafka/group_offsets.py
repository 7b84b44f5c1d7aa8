"""Committed offsets of consumer groups, stored as the broker does: as records of `__consumer_offsets`.

Owns which partition a group's records go to, and the order of a commit's steps; must not know the
bytes of a record or which record counts. A commit of many groups is one append to each partition that
is the home of a group, and a sync of these partitions:

    check all -> sync the records that the offsets count -> append -> sync

No state is stored apart from the log: offsets are read from the log when they are requested.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from storage.coding.javahash import java_hash
from storage.errors import DiskFull
from storage.interface import Clock
from storage.kafka.format import names
from storage.kafka.format.offset_records import OffsetKey, OffsetValue, encode_key, encode_value
from storage.kafka.offsets_log import OffsetsLog, id_bytes, is_of
from storage.kafka.partition import Partition
from storage.model import CommittedOffset, GroupCommit, Record, TopicPartition
from storage.shared.group_offsets import OffsetTable, at_time, check_commits

INT32_MIN: Final = -(1 << 31)
_Change = tuple[str, TopicPartition, CommittedOffset | None]
"""A group, a partition, and its new offset; None deletes the group's offset."""


class Home(Protocol):
    """The calls to the store that the offsets belong to."""

    def partition(self, address: TopicPartition) -> Partition:
        """Return a partition. Raises UnknownTopic, UnknownPartition, MissingPartitions."""

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic; None if the topic has no id or does not exist."""

    def offsets_partitions(self) -> Sequence[Partition]:
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

    def _of_group(self, group: str) -> Mapping[TopicPartition, OffsetValue]:
        logs = self._current()
        count = self._home.offsets_count()
        if not count:
            return {}
        home = self._home.partition(
            TopicPartition(names.GROUP_OFFSETS_TOPIC, home_of(group, count))
        )
        (log,) = (log for log in logs if log.partition is home)
        return log.look(lambda table: table.of_group(group))

    def _current(self) -> Sequence[OffsetsLog]:
        """Return the logs of the current topic: it may have been created or deleted since the last call."""
        partitions = self._home.offsets_partitions()
        with self._lock:
            if [log.partition for log in self._logs] != list(partitions):
                self._logs = [OffsetsLog(partition) for partition in partitions]
            return self._logs

    # ---- writing ----

    def commit(self, commits: Sequence[GroupCommit], *, durable: bool) -> None:
        """See SupportsGroupOffsets.commit_offsets."""
        with self._commit_lock:
            check_commits(commits, check_partition=self._home.partition)
            changes: list[_Change] = [
                (group, partition, committed)
                for group, offsets in commits
                for partition, committed in offsets.items()
            ]
            self._sync_records(changes)
            self._append(changes, durable=durable)

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None) -> None:
        """See SupportsGroupOffsets.delete_offsets."""
        with self._commit_lock:
            held = self._of_group(group)
            wanted = held if partitions is None else [p for p in partitions if p in held]
            self._append([(group, partition, None) for partition in wanted], durable=True)

    def forget_topic(self, topic: str, topic_id: str | None) -> None:
        """Delete every group's offsets for a deleted topic, except the offsets of a new topic with its name. On a full
        disk the offsets stay: their topic id shows that they do not count.
        """
        with self._commit_lock, suppress(DiskFull):
            changes: list[_Change] = [
                (group, partition, None)
                for log in self._current()
                for group, partition, value in log.look(lambda table: table.of_topic(topic))
                if is_of(value, id_bytes(topic_id))
            ]
            self._append(changes, durable=True)

    def _sync_records(self, changes: Sequence[_Change]) -> None:
        """Flush the records below each new offset, before the offset is appended: after a crash no group's offset is
        above the log end.
        """
        for _, address, committed in changes:
            partition = self._home.partition(address)
            if committed is not None and committed.offset > partition.flushed_offset:
                partition.flush()

    def _append(self, changes: Sequence[_Change], *, durable: bool) -> None:
        if not changes:
            return
        if not self._home.offsets_count():
            self._home.create_offsets_topic()
        count = self._home.offsets_count()
        runs: dict[int, list[Record]] = {}
        for change in changes:
            runs.setdefault(home_of(change[0], count), []).append(self._record(change))
        homes = [
            (self._home.partition(TopicPartition(names.GROUP_OFFSETS_TOPIC, number)), records)
            for number, records in sorted(runs.items())
        ]
        for partition, records in homes:
            partition.append(records, compression="none", producer=None, publish=not durable)
        if durable:
            for partition, _ in homes:
                partition.flush()

    def _record(self, change: _Change) -> Record:
        group, (topic, partition), committed = change
        key = encode_key(OffsetKey(group, topic, partition))
        if committed is None:
            return Record(key, None)
        offset, leader_epoch, metadata, time_ms = at_time(committed, self._clock())
        topic_id = id_bytes(self._home.topic_id(topic))
        assert time_ms is not None
        value = OffsetValue(offset, leader_epoch, metadata, time_ms, topic_id)
        return Record(key, encode_value(value))
