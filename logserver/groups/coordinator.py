"""The members of all groups: joins, leaves, subscriptions, generations, and session timeouts.

Owns membership, and passes each member its partitions. A new assignment is made at once when a member joins, leaves
or changes its subscription, and when a topic with a subscription is created, changed or deleted. In memory only: it
must not do IO, know offsets or wait. Use it on the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from logserver.errors import ConsumerExists
from logserver.groups.assignment import assign
from logserver.groups.topic_pattern import TopicPattern
from storage import Clock, TopicInfo, TopicPartition

Reassigned: TypeAlias = Callable[[Sequence[TopicPartition]], None]
"""Called with all partitions of a member after a change. Must not call the coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The subscription of a member: topics by name, or the topics that match a pattern and are not internal."""

    topics: frozenset[str] = frozenset()
    pattern: TopicPattern | None = None

    def wants(self, topic: TopicInfo, known: Mapping[str, bool] | None = None) -> bool:
        """Return whether the subscription contains this topic. `known`: results of the pattern for names that were
        matched before.
        """
        if self.pattern is None:
            return topic.name in self.topics
        if topic.internal:
            return False
        is_match = None if known is None else known.get(topic.name)
        return self.pattern.matches(topic.name) if is_match is None else is_match


class Member:
    """One member of a group. `partitions` are the partitions that it reads: assigned, or pinned by itself."""

    __slots__ = (
        "busy", "group", "name", "partitions", "reassigned", "seen_ms", "session_timeout_ms",
        "subscription",
    )  # fmt: skip

    def __init__(
        self, group: Group, name: str, *, session_timeout_ms: int, reassigned: Reassigned
    ) -> None:
        self.group = group
        self.name = name
        self.session_timeout_ms = session_timeout_ms
        self.reassigned = reassigned
        self.seen_ms = 0
        self.busy = 0  # the number of its calls in progress: while there are any it is not silent
        self.subscription: Subscription | None = None
        self.partitions: Sequence[TopicPartition] = ()

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Set the partitions of the member; it is notified if they differ from before."""
        if self.partitions != partitions:
            self.partitions = partitions
            self.reassigned(partitions)


class Group:
    """The members of one group. `generation` counts its assignments.

    `retry_topic`: the topic of messages that the group handed back, once it exists; every subscription contains it.
    None: such messages have no topic that the store knows.
    """

    def __init__(self, name: str, retry_topic: str | None = None) -> None:
        self.name = name
        self.retry_topic = retry_topic
        self.generation = 0
        self.members: dict[str, Member] = {}
        # The topics of each subscription; members with the same subscription share an entry.
        self._topics: dict[Subscription, set[str]] = {}

    def rebalance(
        self, topics: Mapping[str, TopicInfo], known: Mapping[str, bool] | None = None
    ) -> None:
        """Make a new assignment. First every member releases the partitions that it loses, then members get the new
        ones: no partition ever has two owners.

        `known`: the names that the pattern of a new subscription matches, as far as they are known.
        """
        subscribed = {
            member.name: member.subscription
            for member in self.members.values()
            if member.subscription is not None
        }
        self._match(set(subscribed.values()), topics, known or {})
        wanted = {name: self._topics[subscription] for name, subscription in subscribed.items()}
        owned = assign(
            wanted,
            {name: topics[name].partitions for name in set().union(*wanted.values())},
            previous={name: self.members[name].partitions for name in wanted},
        )
        self.generation += 1
        for name, partitions in owned.items():
            member = self.members[name]
            member.take(tuple(sorted(set(partitions) & set(member.partitions))))
        for name, partitions in owned.items():
            self.members[name].take(partitions)

    def topics(self, subscription: Subscription) -> Sequence[str]:
        """Return the existing topics of a subscription of the members, in order, without the retry topic."""
        return sorted(self._topics[subscription] - {self.retry_topic})

    def wants(self, topic: TopicInfo) -> bool:
        """Return whether a subscription contains this topic. The topic is added to such subscriptions."""
        wanted = False
        for subscription, topics in self._topics.items():
            if self._wants(subscription, topic):
                topics.add(topic.name)
                wanted = True
        return wanted

    def drop(self, topic: str) -> bool:
        """Remove a deleted topic from all subscriptions. Return whether one of them contained it."""
        holders = [topics for topics in self._topics.values() if topic in topics]
        for topics in holders:
            topics.remove(topic)
        return bool(holders)

    def unlocate(self, topic: str) -> None:
        """Reset the positions of members that pinned partitions of a deleted topic, in case the topic is created
        again.

        Each such member loses these partitions, and gets them back.
        """
        for member in self.members.values():
            pinned = member.partitions
            if member.subscription is None and any(at.topic == topic for at in pinned):
                member.take(tuple(at for at in pinned if at.topic != topic))
                member.take(pinned)

    def _match(
        self,
        subscriptions: set[Subscription],
        topics: Mapping[str, TopicInfo],
        known: Mapping[str, bool],
    ) -> None:
        """Keep the topics of exactly these subscriptions; only new subscriptions are matched with the topics."""
        self._topics = {
            subscription: self._topics[subscription]
            if subscription in self._topics
            else {info.name for info in topics.values() if self._wants(subscription, info, known)}
            for subscription in subscriptions
        }

    def _wants(
        self,
        subscription: Subscription,
        topic: TopicInfo,
        known: Mapping[str, bool] | None = None,
    ) -> bool:
        return topic.name == self.retry_topic or subscription.wants(topic, known)


class Coordinator:
    """All groups that have members. `topics`: all existing topics, as they are at the moment. `groups`: the table that
    it fills. `retry_topic_of`: returns the name of a group's retry topic.
    """

    def __init__(
        self,
        topics: Mapping[str, TopicInfo],
        clock: Clock,
        groups: dict[str, Group],
        retry_topic_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.groups = groups
        self._retry_topic_of = retry_topic_of
        self._topics = topics
        self._clock = clock

    def join(
        self, group: str, name: str, *, session_timeout_ms: int, reassigned: Reassigned
    ) -> Member:
        """Add a member, without a subscription. Raises ConsumerExists."""
        members = self.groups.setdefault(group, Group(group, self._retry_topic_of(group)))
        if name in members.members:
            raise ConsumerExists(
                f"group {group!r} has a consumer instance {name!r} already",
                group=group,
                instance=name,
            )
        member = Member(members, name, session_timeout_ms=session_timeout_ms, reassigned=reassigned)
        members.members[name] = member
        self.seen(member)
        return member

    def leave(self, member: Member) -> None:
        """Remove the member; other members get its partitions. The group ends with its last member."""
        group = member.group
        if group.members.get(member.name) is not member:
            return
        del group.members[member.name]
        member.take(())
        if not group.members:
            del self.groups[group.name]
        elif member.subscription is not None:
            group.rebalance(self._topics)

    def subscribe(
        self,
        member: Member,
        subscription: Subscription | None,
        known: Mapping[str, bool] | None = None,
    ) -> None:
        """Set the member's subscription in the group's assignment; None ends it. `known`: see `Group.rebalance`."""
        if member.subscription == subscription:
            return
        member.subscription = subscription
        if subscription is None:
            member.take(())
        member.group.rebalance(self._topics, known)

    def pin(self, member: Member, partitions: Sequence[TopicPartition]) -> None:
        """Let the member read exactly these partitions, even if others read them too: it has no part in the
        assignment.
        """
        member.subscription = None
        member.take(partitions)

    def topic_changed(self, name: str) -> None:
        """Give a new assignment to groups that subscribe to a topic that was created, changed or deleted."""
        info = self._topics.get(name)
        for group in self.groups.values():
            if info is None:
                group.unlocate(name)
            if group.drop(name) if info is None else group.wants(info):
                group.rebalance(self._topics)

    def seen(self, member: Member) -> None:
        """Note that the member is alive."""
        member.seen_ms = self._clock()

    def silent(self) -> Sequence[Member]:
        """Return the members with an expired session."""
        now_ms = self._clock()
        return [
            member
            for group in self.groups.values()
            for member in group.members.values()
            if not member.busy and now_ms - member.seen_ms > member.session_timeout_ms
        ]
