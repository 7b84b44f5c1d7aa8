"""The operator's view of groups: members, committed offsets, lag; reset and delete.

Owns the description of a group and the operations on it from outside, for every kind of group: HTTP's consumer
instances, and members that use Kafka's classic or new protocol. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from logserver.errors import UnknownGroup
from logserver.groups.classic.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from logserver.groups.classic.groups import ClassicGroups
from logserver.groups.classic.values import GroupView, Limits, MemberView, State
from logserver.groups.commits import Commits
from logserver.groups.config import check_group_name
from logserver.groups.consumer import Consumers
from logserver.groups.coordinator import Group, Member
from logserver.groups.members_log import MembersLog
from logserver.groups.modern.groups import ModernGroups
from logserver.groups.modern.values import Limits as ModernLimits
from logserver.groups.modern.values import ModernMemberView
from logserver.groups.offsets import Offsets
from logserver.groups.reading import Reset, check_range, reset_positions, timed_positions
from logserver.groups.registry import Registry
from logserver.metrics import Lags, Metrics
from logserver.service.requests import Start, StartAt
from logserver.service.topics import TopicCatalog
from storage import (
    CommittedOffset,
    LogStore,
    OffsetBounds,
    StoredGroup,
    StoredModernGroup,
    SupportsGroupOffsets,
    TopicPartition,
)
from storage.errors import StorageError, UnknownPartition, UnknownTopic

CLASSIC: Final = "classic"
MODERN: Final = "consumer"
SERVER_ASSIGNOR: Final = "server"
"""How the rule of the server is named to Kafka's tools, which show an assignor."""


def lag_of(committed: CommittedOffset, bounds: OffsetBounds) -> int:
    """Return the number of offsets between a committed offset and the end."""
    return max(bounds.end - max(committed.offset, 0), 0)


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
        return lag_of(self.committed, self.bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOverview:
    """One member: a consumer instance, or a member that uses Kafka's protocol; then `name` is its member id.

    `topics`: the topics that it names; None if it names none, but a pattern or partitions. `instance_id`: of a static
    member of Kafka's protocol.
    """

    name: str
    client_id: str
    instance_id: str | None
    topics: Sequence[str] | None
    topic_pattern: str | None
    partitions: Sequence[TopicPartition]

    @property
    def is_subscribed(self) -> bool:
        """True if the group assigns the partitions; false if the member chose them by itself."""
        return self.topics is not None or self.topic_pattern is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """One group: its members by name, and every partition that it has committed or that a member reads."""

    name: str
    generation: int
    members: Sequence[MemberOverview]
    progress: Sequence[Progress]


class ListedGroup(NamedTuple):
    """A group in a list. `kind`: CLASSIC or MODERN, as Kafka names the types of groups."""

    name: str
    protocol_type: str
    state: str
    kind: str


class Groups:
    """All groups of one server: members of every kind, and the operations from outside."""

    def __init__(self, topics: TopicCatalog) -> None:
        self._access = topics.access
        settings = self._access.settings
        self._registry = Registry()
        self.offsets = Offsets(topics, self._registry)
        self.consumers = Consumers(topics, self.offsets, self._registry)
        self._members_log = MembersLog(self._access)
        self._loading: asyncio.Task[None] | None = None
        rocketmq = self._access.store.capabilities.messages
        check_name = partial(check_group_name, rocketmq=rocketmq)
        self.classic = ClassicGroups(
            self._registry,
            self.offsets,
            Limits(
                settings.group_initial_delay_ms,
                settings.group_min_session_timeout_ms,
                settings.group_max_session_timeout_ms,
                settings.group_max_size,
                settings.max_group_member_bytes,
            ),
            check_name,
            members=self._members_log,
            clock=self._access.clock,
            is_restart=bool(topics),
        )
        self.modern = ModernGroups(
            self._registry,
            self.offsets,
            topics,
            ModernLimits(
                settings.group_consumer_session_timeout_ms,
                settings.group_consumer_heartbeat_interval_ms,
                settings.group_consumer_assignment_interval_ms,
                settings.group_max_size,
                settings.max_group_member_bytes,
            ),
            check_name,
            members=self._members_log,
            clock=self._access.clock,
            is_restart=bool(topics),
        )
        self.commits = Commits(
            self._registry, self.offsets, self.classic, self.modern, nameless=not rocketmq
        )
        # The readers of a topic that was created, changed or deleted get a new assignment at once.
        topics.listeners.append(self.consumers.coordinator.topic_changed)

    def start(self, metrics: Metrics) -> None:
        """Begin to close idle instances and to count groups, and register the metrics."""
        self.consumers.start()
        self.offsets.start()
        self._loading = asyncio.create_task(self._load())
        metrics.gauge("consumer_instances", "Consumer instances.", lambda: self.consumers.count)
        metrics.gauge("groups", "Groups with members.", lambda: len(self._registry))
        metrics.gauge(
            "waiting_group_members",
            "Members that wait for the others, to join or for their assignment (Kafka's protocol).",
            lambda: self.classic.waiting,
        )
        most = self._access.settings.metrics_group_lags
        if most:
            metrics.watch_groups(self.lags, most)

    def lags(self) -> Lags:
        """Return the lag of each group in each topic, from the offsets that are stored. Partitions that a group has not
        committed, or that no longer exist, do not count; none if the store cannot be read.

        Blocks; any thread may call it.
        """
        store = self._access.store
        lags: Counter[tuple[str, str]] = Counter()
        if not isinstance(store, SupportsGroupOffsets):
            return lags
        with suppress(StorageError):
            for group in store.groups():
                committed = store.committed(group)
                for at, bounds in _bounds(store, committed).items():
                    lags[group, at.topic] += lag_of(committed[at], bounds)
        return lags

    async def _load(self) -> None:
        groups = await self._members_log.load()
        self.classic.restore(group for group in groups if isinstance(group, StoredGroup))
        await self.modern.restore(group for group in groups if isinstance(group, StoredModernGroup))

    async def loaded(self) -> None:
        """Wait until the members of an earlier process are known again."""
        if self._loading is not None:
            await asyncio.wait((self._loading,))

    async def settled(self) -> None:
        """Wait until the members of all changed groups are stored."""
        await self._members_log.settled()

    def begin_stop(self) -> None:
        """End the groups of Kafka's protocol: their members that wait are answered."""
        self.classic.stop()
        self.modern.stop()

    async def stop(self) -> None:
        """Close all instances; auto-commits are stored on return."""
        await self.loaded()
        await self.consumers.stop()
        await self.settled()
        await self.offsets.stop()

    async def names(self) -> Sequence[str]:
        """Return all groups that have members or committed offsets, in order."""
        await self.loaded()
        return sorted({*await self.offsets.groups(), *self._registry})

    def members(self, group: str) -> Sequence[MemberOverview]:
        """Return the members of a group by name; none of a group without members."""
        http, classic = self._registry.http.get(group), self._registry.classic_in_use(group)
        modern = self._registry.modern_in_use(group)
        if http is not None:
            return [_instance(http.members[name]) for name in sorted(http.members)]
        if modern is not None:
            members = map(self._modern_member, modern.view().members)
            return sorted(members, key=lambda member: member.name)
        if classic is None:
            return ()
        view = classic.view()
        return sorted(map(_member, view.members), key=lambda member: member.name)

    def _modern_member(self, member: ModernMemberView) -> MemberOverview:
        return MemberOverview(
            name=member.member_id,
            client_id=member.client_id,
            instance_id=member.instance_id,
            topics=member.topics or None,
            topic_pattern=member.pattern,
            partitions=self.modern.topics.partitions(member.assigned),
        )

    async def overview(self, group: str) -> GroupOverview:
        """Return one group. Raises UnknownGroup."""
        await self.loaded()
        committed = await self._known(group)
        members, generation = self.members(group), self._generation(group)
        readers = {at: member.name for member in members for at in member.partitions}
        partitions = sorted({*committed, *readers})
        bounds = await self._access.run(_bounds, self._access.store, partitions)
        return GroupOverview(
            name=group,
            generation=generation,
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

    def _generation(self, group: str) -> int:
        """Return the generation of a group, in the new protocol its epoch; 0 for a group without a kind."""
        modern = self._registry.modern.get(group)
        if modern is not None:
            return modern.epoch
        live = self._registry.http.get(group) or self._registry.classic.get(group)
        return 0 if live is None else live.generation

    async def view(self, group: str) -> GroupView | None:
        """Return a group as Kafka's tools see it; None if it has neither members nor offsets, or uses the new
        protocol: see `ModernGroups.describe`.

        HTTP's consumer instances are shown as members that subscribe by Kafka's consumer protocol.
        """
        if group in self._registry.modern:
            return None
        if group in self._registry.http or group in self._registry.classic:
            return self._view(group)
        return self._view(group) if await self.offsets.committed(group) else None

    async def listed(self) -> Sequence[ListedGroup]:
        """Return all groups, in order."""
        known = {*await self.names(), *self._registry.classic, *self._registry.modern}
        return [self._listed(name) for name in sorted(known)]

    def _listed(self, group: str) -> ListedGroup:
        modern = self._registry.modern.get(group)
        if modern is not None:
            return ListedGroup(group, PROTOCOL_TYPE, modern.state.value, MODERN)
        view = self._view(group)
        return ListedGroup(group, view.protocol_type, view.state.value, CLASSIC)

    def _view(self, group: str) -> GroupView:
        http, classic = self._registry.http.get(group), self._registry.classic.get(group)
        if http is not None:
            return _as_classic(http)
        if classic is not None:
            return classic.view()
        return GroupView(group, State.EMPTY, 0, "", "", ())

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
        await self.loaded()
        self._registry.check_empty(group)
        if partitions is None:
            chosen: Sequence[TopicPartition] = list(await self._known(group))
        else:
            check_group_name(group, rocketmq=self._access.store.capabilities.messages)
            chosen = sorted(set(partitions))
        offsets = await self._access.run(_resolved, self._access.store, chosen, to)
        self._registry.check_empty(group)
        commits = {at: CommittedOffset(offset) for at, offset in offsets.items()}
        await self.offsets.commit(group, commits)
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
        self.offsets.check(group, offsets)

    async def delete(self, group: str) -> None:
        """Delete all offsets of a group; durable on return. Raises UnknownGroup, ConsumerState while it has members,
        StoreReadOnly.
        """
        await self.loaded()
        self._registry.check_empty(group)
        await self._known(group)
        self._registry.check_empty(group)
        await self.offsets.delete(group)
        await self._members_log.forget(group)
        self.classic.forget(group)
        self.modern.forget(group)

    async def _known(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group. Raises UnknownGroup."""
        committed = await self.offsets.committed(group)
        if (
            not committed
            and group not in self._registry.http
            and group not in self._registry.classic
            and group not in self._registry.modern
        ):
            raise UnknownGroup(group)
        return committed


def _instance(member: Member) -> MemberOverview:
    subscription = member.subscription
    pattern = None if subscription is None else subscription.pattern
    named = subscription is not None and pattern is None
    return MemberOverview(
        name=member.name,
        client_id=member.name,
        instance_id=None,
        topics=sorted(subscription.topics) if subscription is not None and named else None,
        topic_pattern=None if pattern is None else pattern.text,
        partitions=member.partitions,
    )


def _member(member: MemberView) -> MemberOverview:
    return MemberOverview(
        name=member.member_id,
        client_id=member.client_id,
        instance_id=member.instance_id,
        topics=sorted(decode_subscription(member.metadata)),
        topic_pattern=None,
        partitions=sorted(decode_assignment(member.assignment)),
    )


def _as_classic(group: Group) -> GroupView:
    """Return a group of consumer instances as Kafka's tools expect a stable group."""
    members = [
        MemberView(
            name,
            None,
            name,
            "",
            metadata=encode_subscription(sorted({at.topic for at in member.partitions})),
            assignment=encode_assignment(member.partitions),
        )
        for name, member in sorted(group.members.items())
    ]
    return GroupView(
        group.name, State.STABLE, group.generation, PROTOCOL_TYPE, SERVER_ASSIGNOR, members
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
