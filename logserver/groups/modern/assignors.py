"""The server's assignors: who of a group's members reads which partition.

Owns the rules `uniform` and `range`; must not know epochs, or who reads what at the moment. Pure. The rules are those
of Kafka's UniformAssignor and RangeAssignor:

    range    each topic by itself: its partitions in one run for each of its subscribers, in the order of
             instance ids, then member ids; so partitions of equal numbers in several topics go together
    uniform  all topics together: every member gets about the same number, and as few partitions as
             possible change their reader

With `uniform`, the members of a group with equal subscriptions differ by one partition at most. With different
subscriptions no move of one partition makes the numbers of two members more equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from logserver.groups.modern.values import Topic
from storage.groups import Slot


class Subscriber(NamedTuple):
    """A member: the ids of its topics that exist, and its partitions in the last assignment."""

    instance_id: str | None
    topics: frozenset[bytes]
    slots: frozenset[Slot]


Assignment: TypeAlias = dict[str, frozenset[Slot]]
Subscribers: TypeAlias = Mapping[str, Subscriber]
Existing: TypeAlias = Mapping[bytes, Topic]


def assign_range(members: Subscribers, topics: Existing) -> Assignment:
    """Return each member's partitions: one run of every topic."""
    order = sorted(
        members,
        key=lambda name: (members[name].instance_id is None, members[name].instance_id or name),
    )
    slots: dict[str, set[Slot]] = {name: set() for name in members}
    for topic_id, topic in topics.items():
        readers = [name for name in order if topic_id in members[name].topics]
        at = 0
        for index, name in enumerate(readers):
            share, extra = divmod(len(topic.partitions), len(readers))
            end = at + share + (index < extra)
            slots[name].update((topic_id, number) for number in topic.partitions[at:end])
            at = end
    return {name: frozenset(chosen) for name, chosen in slots.items()}


def assign_uniform(members: Subscribers, topics: Existing) -> Assignment:
    """Return each member's partitions: as equal in number as possible, with few changes."""
    wanted: frozenset[bytes] = frozenset().union(*(member.topics for member in members.values()))
    every = {
        (topic_id, number)
        for topic_id, topic in topics.items()
        if topic_id in wanted
        for number in topic.partitions
    }
    kept = {
        name: {slot for slot in sorted(member.slots & every) if slot[0] in member.topics}
        for name, member in sorted(members.items())
    }
    free = sorted(every.difference(*kept.values()))
    if len({member.topics for member in members.values()}) <= 1:
        _fill(kept, free, len(every))
    else:
        _Balance(kept, members, topics).spread(free)
    return {name: frozenset(slots) for name, slots in kept.items()}


def _fill(kept: dict[str, set[Slot]], free: list[Slot], count: int) -> None:
    """Share all partitions among members that may read each of them: take from members with too many, then give."""
    share, extra = divmod(count, len(kept)) if kept else (0, 0)
    quotas = {name: share + (index < extra) for index, name in enumerate(kept)}
    for name, slots in kept.items():
        too_much = sorted(slots)[quotas[name] :]
        slots.difference_update(too_much)
        free += too_much
    given = iter(free)
    for name, slots in kept.items():
        for _ in range(quotas[name] - len(slots)):
            slot = next(given, None)
            if slot is not None:
                slots.add(slot)


class _Balance:
    """Members with different subscriptions: a partition can go to the subscribers of its topic only."""

    def __init__(self, kept: dict[str, set[Slot]], members: Subscribers, topics: Existing) -> None:
        self._kept = kept
        self._readers = {
            topic_id: [name for name in kept if topic_id in members[name].topics]
            for topic_id in topics
        }
        # Topics with many partitions for each reader come first: later topics make up for them.
        self._order = sorted(
            (topic_id for topic_id in topics if self._readers[topic_id]),
            key=lambda at: (-len(topics[at].partitions) / len(self._readers[at]), at),
        )

    def spread(self, free: Sequence[Slot]) -> None:
        """Give each free partition to the subscriber with the fewest, then move partitions while that helps."""
        for topic_id in self._order:
            for slot in free:
                if slot[0] == topic_id:
                    self._kept[self._least(topic_id)].add(slot)
        moved = True
        while moved:
            moved = False
            for topic_id in self._order:
                moved |= self._level(topic_id)

    def _least(self, topic_id: bytes) -> str:
        return min(self._readers[topic_id], key=lambda name: len(self._kept[name]))

    def _level(self, topic_id: bytes) -> bool:
        """Move partitions of a topic from full members to emptier ones. Return whether one was moved.

        Every move makes the sum of the squares of the numbers smaller, so moves come to an end.
        """
        moved = False
        readers = sorted(self._readers[topic_id], key=lambda name: -len(self._kept[name]))
        for name in readers:
            own = sorted(slot for slot in self._kept[name] if slot[0] == topic_id)
            while own:
                least = self._least(topic_id)
                if len(self._kept[name]) - len(self._kept[least]) <= 1:
                    break
                slot = own.pop()
                self._kept[name].remove(slot)
                self._kept[least].add(slot)
                moved = True
        return moved


ASSIGNORS: Final[Mapping[str, Callable[[Subscribers, Existing], Assignment]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""By the name that a member may ask for; the first is the default."""
