"""Committed offsets of consumer groups, stored as the broker does: in config/consumerOffset.json, or in
the file that the broker uses instead with enableLmq.

Owns the order of a commit's steps; must not know the file's text. The whole file is written once per
call, so a call that commits for many groups costs one write. The file has only the number of an
offset: leader epoch, metadata and time of a commit are not stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from storage.contract import Clock
from storage.errors import DiskFull, InvalidArgument
from storage.files import Fence
from storage.model import CommittedOffset, GroupCommit, TopicPartition
from storage.rocketmq.state.offsets_file import SEPARATOR, StoredOffsets
from storage.rocketmq.state.root import StoreDirectory
from storage.shared.group_offsets import OffsetTable, check_commits


class Home(Protocol):
    """The methods of the store that the offsets need."""

    def queue(self, partition: TopicPartition) -> object:
        """Return the queue of a partition. Raises UnknownTopic, UnknownPartition."""

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """See LogStore.flush."""


class GroupOffsets:
    """The committed offsets of one store: see SupportsGroupOffsets. Every commit is durable on return."""

    def __init__(self, home: Home, directory: StoreDirectory, fence: Fence, clock: Clock) -> None:
        self._home = home
        self._directory = directory
        self._fence = fence
        self._clock = clock
        self._lock = threading.Lock()  # for a change and its IO; `_stored` is replaced as a whole
        self._stored = directory.offsets()

    def groups(self) -> Sequence[str]:
        """Return the groups that have offsets, in order."""
        return self._stored.table.groups()

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a group's offsets by partition, in order, without epoch, metadata or time."""
        offsets = self._stored.table.of_group(group)
        return {partition: CommittedOffset(offset) for partition, offset in offsets.items()}

    def unstable(self, group: str) -> Collection[TopicPartition]:
        """Return no partitions: offsets are no part of a transaction in this format."""
        return ()

    def commit(self, commits: Sequence[GroupCommit], *, durable: bool) -> None:
        """Commit offsets, durably even if `durable` is false: see SupportsGroupOffsets.commit_offsets. A
        group's name must not contain `@`, which ends the topic's name in the file.
        """

        def put_all(table: OffsetTable[int]) -> None:
            for group, offsets, _ in commits:
                for partition, committed in offsets.items():
                    if committed.offset < 0:  # none: the broker reads it as one that is missing
                        table.drop(group, partition)
                    else:
                        table.put(group, partition, committed.offset)

        with self._lock:
            self._check(commits)
            if any(offsets for _, offsets, _ in commits):
                self._sync_records(commits)
                self._write(put_all)

    def _sync_records(self, commits: Sequence[GroupCommit]) -> None:
        """Make the records below the offsets durable before the offsets: after a crash no group's offset
        is after the end of a queue.
        """
        self._home.flush(sorted({partition for _, offsets, _ in commits for partition in offsets}))

    def _check(self, commits: Sequence[GroupCommit]) -> None:
        check_commits(commits, check_partition=self._home.queue)
        for group, _, _ in commits:
            if SEPARATOR in group:
                raise InvalidArgument(
                    f"group {group!r} holds {SEPARATOR}, which separates topic and group",
                    field="group",
                )

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None) -> None:
        with self._lock:
            held = self._stored.table.held(group, partitions)
            if held:
                self._write(lambda table: table.drop(group, *held))

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Delete every group's offsets for deleted topics (cleanOffsetByTopic). On a full disk they are
        deleted in memory, and from the file at its next change.
        """
        with self._lock:
            gone = [topic for topic in topics if self._stored.table.of_topic(topic)]
            if gone:
                self._stored = self._changed(lambda table: table.drop_topics(gone))
                with suppress(DiskFull):
                    self._directory.write_offsets(self._stored)

    def _changed(self, change: Callable[[OffsetTable[int]], None]) -> StoredOffsets:
        return self._stored.changed(change, now_ms=self._clock())

    def _write(self, change: Callable[[OffsetTable[int]], None]) -> None:
        changed = self._changed(change)
        with self._fence.guarding():
            self._directory.write_offsets(changed)
        self._stored = changed
