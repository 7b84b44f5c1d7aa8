"""The members of all groups: joins, leaves, subscriptions, generations, and who has been silent for
too long.

Owns membership and tells each member of its partitions; a new assignment is made at once when a
member comes, goes or changes its subscription, and when a topic that somebody wants is created,
changed or deleted. In memory only: no IO, no offsets, no waiting. Lives on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from logserver.errors import ConsumerExists
from logserver.groups.assignment import assign
from logserver.groups.pattern import TopicPattern
from storage import Clock, TopicInfo, TopicPartition

Topics: TypeAlias = Callable[[], Mapping[str, TopicInfo]]
"""Gives all topics there are."""

Reassigned: TypeAlias = Callable[[Sequence[TopicPartition]], None]
"""Told a member's new partitions, all of them. Must not call the coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants: topics by name, or those that match a pattern but are not internal."""

    topics: frozenset[str] = frozenset()
    pattern: TopicPattern | None = None

    def wants(self, topic: TopicInfo, known: Mapping[str, bool] | None = None) -> bool:
        """Whether this topic is among them. `known`: names that the pattern was tried on already."""
        if self.pattern is None:
            return topic.name in self.topics
        if topic.internal:
            return False
        found = None if known is None else known.get(topic.name)
        return self.pattern.matches(topic.name) if found is None else found


class Member:
    """One member of a group. `partitions` are what it reads: assigned, or pinned by itself."""

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
        self.busy = 0  # how many of its calls are under way: it is not silent meanwhile
        self.subscription: Subscription | None = None
        self.partitions: Sequence[TopicPartition] = ()

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """From here on the member has these partitions; it is told when they are others."""
        if self.partitions != partitions:
            self.partitions = partitions
            self.reassigned(partitions)


class Group:
    """The members of one group. `generation` counts its assignments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.members: dict[str, Member] = {}
        # The topics of each subscription; members with the same one share an entry.
        self._topics: dict[Subscription, set[str]] = {}

    def rebalance(
        self, topics: Mapping[str, TopicInfo], known: Mapping[str, bool] | None = None
    ) -> None:
        """Make a new assignment. `known`: which names the pattern of a new subscription matches, as far as that has
        been found out. First everybody gives up what goes elsewhere, then the new
        partitions are handed out: no partition ever has two owners.
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
        """The topics there are of a subscription of its members, in order."""
        return sorted(self._topics[subscription])

    def wants(self, topic: TopicInfo) -> bool:
        """Whether a subscription is for this topic. It counts among them from here on."""
        wanted = False
        for subscription, topics in self._topics.items():
            if subscription.wants(topic):
                topics.add(topic.name)
                wanted = True
        return wanted

    def drop(self, topic: str) -> bool:
        """Whether the deleted topic was among those of a subscription. It is not any more."""
        holders = [topics for topics in self._topics.values() if topic in topics]
        for topics in holders:
            topics.remove(topic)
        return bool(holders)

    def unlocate(self, topic: str) -> None:
        """Members that pinned partitions of the deleted topic begin anew, should it be made again: they
        lose these partitions, and have them back.
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
        """Know the topics of exactly these subscriptions: only new ones are looked at."""
        self._topics = {
            subscription: self._topics[subscription]
            if subscription in self._topics
            else {info.name for info in topics.values() if subscription.wants(info, known)}
            for subscription in subscriptions
        }


class Coordinator:
    """All groups that have members. `topics` is asked at every new assignment."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self.groups: dict[str, Group] = {}
        self._topics = topics
        self._clock = clock

    def join(
        self, group: str, name: str, *, session_timeout_ms: int, reassigned: Reassigned
    ) -> Member:
        """A new member, as yet without a subscription. Raises ConsumerExists."""
        members = self.groups.setdefault(group, Group(group))
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
        """The member goes, its partitions go to others. The group ends with its last member."""
        group = member.group
        if group.members.get(member.name) is not member:
            return
        del group.members[member.name]
        member.take(())
        if not group.members:
            del self.groups[group.name]
        elif member.subscription is not None:
            group.rebalance(self._topics())

    def members(self, group: str) -> Iterable[Member]:
        """The group's members by name; none of an unknown group."""
        found = self.groups.get(group)
        return () if found is None else [found.members[name] for name in sorted(found.members)]

    def subscribe(
        self,
        member: Member,
        subscription: Subscription | None,
        known: Mapping[str, bool] | None = None,
    ) -> None:
        """Take part in the group's assignment with this subscription; None: no more. `known`: as for
        `Group.rebalance`.
        """
        if member.subscription == subscription:
            return
        member.subscription = subscription
        if subscription is None:
            member.take(())
        member.group.rebalance(self._topics(), known)

    def pin(self, member: Member, partitions: Sequence[TopicPartition]) -> None:
        """The member reads exactly these, whoever else does: it takes no part in the assignment."""
        member.subscription = None
        member.take(partitions)

    def topic_changed(self, name: str) -> None:
        """A topic was created, changed or deleted: groups that want it get a new assignment."""
        info = self._topics().get(name)
        for group in self.groups.values():
            if info is None:
                group.unlocate(name)
            if group.drop(name) if info is None else group.wants(info):
                group.rebalance(self._topics())

    def seen(self, member: Member) -> None:
        """The member gave a sign of life."""
        member.seen_ms = self._clock()

    def silent(self) -> Sequence[Member]:
        """The members whose session has timed out."""
        now_ms = self._clock()
        return [
            member
            for group in self.groups.values()
            for member in group.members.values()
            if not member.busy and now_ms - member.seen_ms > member.session_timeout_ms
        ]
