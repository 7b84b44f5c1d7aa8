"""The operator's view of groups: members, committed offsets, lag; reset and delete.

Owns the description of a group and the operations on it from outside. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from logserver.errors import ConsumerState, UnknownGroup
from logserver.groups.config import check_group_name
from logserver.groups.consumer import Consumers
from logserver.groups.coordinator import Member
from logserver.groups.reading import Reset, check_range, reset_positions, timed_positions
from logserver.metrics import Metrics
from logserver.service.requests import Start, StartAt
from logserver.service.topics import TopicCatalog
from storage import CommittedOffset, LogStore, OffsetBounds, TopicPartition
from storage.errors import UnknownPartition, UnknownTopic

MEMBERS_NAMED: Final = 3  # in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a group in one partition.

    `committed` is its next offset; None if it has committed nothing there. `bounds` None: the partition no longer
    exists. `member`: the name of the member that reads the partition, if any.
    """

    partition: TopicPartition
    committed: CommittedOffset | None
    bounds: OffsetBounds | None
    member: str | None

    @property
    def lag(self) -> int | None:
        """The number of offsets between the committed offset and the end; None if one of them is unknown."""
        if self.committed is None or self.bounds is None:
            return None
        return max(self.bounds.end - self.committed.offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """One group: its members by name, and every partition that it has committed or that a member reads."""

    name: str
    generation: int
    members: Sequence[Member]
    progress: Sequence[Progress]


class Groups:
    """All groups of one server: their consumer instances, and the operations from outside."""

    def __init__(self, topics: TopicCatalog) -> None:
        self.consumers = Consumers(topics)
        self._access = topics.access
        self._coordinator = self.consumers.coordinator
        self._offsets = self.consumers.offsets
        # The readers of a topic that was created, changed or deleted get a new assignment at once.
        topics.listeners.append(self._coordinator.topic_changed)

    def start(self, metrics: Metrics) -> None:
        """Begin to close idle instances and to count groups, and register the metrics."""
        self.consumers.start()
        metrics.gauge("consumer_instances", "Consumer instances.", lambda: self.consumers.count)
        metrics.gauge("groups", "Groups with members.", lambda: len(self._coordinator.groups))

    async def stop(self) -> None:
        """Close all instances; their auto-commits are stored on return."""
        await self.consumers.stop()

    async def names(self) -> Sequence[str]:
        """Return all groups that have members or committed offsets, in order."""
        return sorted({*await self._offsets.groups(), *self._coordinator.groups})

    def members(self, group: str) -> Sequence[Member]:
        """Return the members of a group by name; none of a group without members."""
        return list(self._coordinator.members(group))

    async def overview(self, group: str) -> GroupOverview:
        """Return one group. Raises UnknownGroup."""
        committed = await self._known(group)
        members = self.members(group)
        readers = {at: member.name for member in members for at in member.partitions}
        partitions = sorted({*committed, *readers})
        bounds = await self._access.run(_bounds, self._access.store, partitions)
        live = self._coordinator.groups.get(group)
        return GroupOverview(
            name=group,
            generation=0 if live is None else live.generation,
            members=members,
            progress=[
                Progress(
                    partition=at,
                    committed=committed.get(at),
                    bounds=bounds.get(at),
                    member=readers.get(at),
                )
                for at in partitions
            ],
        )

    async def reset(
        self, group: str, partitions: Iterable[TopicPartition] | None, to: Start
    ) -> Mapping[TopicPartition, int]:
        """Commit other next offsets for these partitions (None: all that the group has committed): earliest, latest,
        at a time, or exactly the offset of `to`.

        On return they are durable as the flush mode requires. If partitions are given, a group that does not exist is
        created.

        Raises ConsumerState while the group has members (they would continue at their own positions), UnknownGroup,
        InvalidGroup, OffsetOutOfRange, UnknownTopic, UnknownPartition, StoreReadOnly.
        """
        self._check_empty(group)
        if partitions is None:
            chosen: Sequence[TopicPartition] = list(await self._known(group))
        else:
            check_group_name(group, rocketmq=self._access.store.capabilities.messages)
            chosen = sorted(set(partitions))
        offsets = await self._access.run(_resolved, self._access.store, chosen, to)
        self._check_empty(group)
        commits = {at: CommittedOffset(offset) for at, offset in offsets.items()}
        await self._offsets.commit(group, commits)
        return offsets

    async def check_commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Admit offsets that a client commits for a group without being its member: in a transaction.

        Raises InvalidGroup, OffsetOutOfRange for an offset after the end, UnknownTopic, UnknownPartition, Busy.
        """
        check_group_name(group, rocketmq=self._access.store.capabilities.messages)
        wanted = {partition: committed.offset for partition, committed in offsets.items()}
        await self._access.run(check_range, self._access.store, wanted, from_start=False)
        self._offsets.check(group, offsets)

    async def delete(self, group: str) -> None:
        """Delete all offsets of a group; durable on return. Raises UnknownGroup, ConsumerState while it has members,
        StoreReadOnly.
        """
        self._check_empty(group)
        await self._known(group)
        self._check_empty(group)
        await self._offsets.delete(group)

    async def _known(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group. Raises UnknownGroup."""
        committed = await self._offsets.committed(group)
        if not committed and group not in self._coordinator.groups:
            raise UnknownGroup(group)
        return committed

    def _check_empty(self, group: str) -> None:
        members = [member.name for member in self._coordinator.members(group)]
        if members:
            left_out = len(members) - MEMBERS_NAMED
            more = f" and {left_out} more" if left_out > 0 else ""
            raise ConsumerState(
                f"group {group!r} has {len(members)} member{'s' if len(members) > 1 else ''} "
                f"({', '.join(members[:MEMBERS_NAMED])}{more}): delete them first",
                group=group,
                members=len(members),
            )


def _resolved(
    store: LogStore, partitions: Sequence[TopicPartition], to: Start
) -> Mapping[TopicPartition, int]:
    if to.at is StartAt.EARLIEST:
        return reset_positions(store, partitions, Reset.EARLIEST)
    if to.at is StartAt.LATEST:
        return reset_positions(store, partitions, Reset.LATEST)
    wanted = dict.fromkeys(partitions, to.value)
    if to.at is StartAt.TIME:
        return timed_positions(store, wanted)
    check_range(store, wanted)
    return wanted


def _bounds(
    store: LogStore, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, OffsetBounds]:
    """Return the offset bounds of the partitions that exist."""
    bounds = {}
    for partition in partitions:
        with suppress(UnknownTopic, UnknownPartition):
            bounds[partition] = store.bounds(partition)
    return bounds
