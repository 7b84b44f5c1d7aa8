"""Group membership without HTTP and without a store: joins, leaves, created and deleted topics, silent members."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from logserver.errors import ConsumerExists
from logserver.groups.coordinator import Coordinator, Member, Subscription
from logserver.groups.topic_pattern import TopicPattern
from storage import TopicInfo, TopicPartition


class World:
    """Topics, a clock that stands still, and the assignments reported to members, in order."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self.now_ms = 0
        self.calls: list[tuple[str, Sequence[TopicPartition]]] = []
        self.coordinator = Coordinator(self.topics, lambda: self.now_ms, {})

    def topic(self, name: str, count: int = 1, *, internal: bool = False) -> None:
        """Create a topic, or give it more partitions."""
        self.topics[name] = TopicInfo(name=name, partitions=range(count), internal=internal)
        self.coordinator.topic_changed(name)

    def drop(self, name: str) -> None:
        """Delete a topic."""
        del self.topics[name]
        self.coordinator.topic_changed(name)

    def join(self, name: str, *topics: str, pattern: str | None = None, group: str = "g") -> Member:
        """Return a new member with a subscription."""
        member = self.coordinator.join(
            group, name, session_timeout_ms=100, reassigned=partial(self._tell, name)
        )
        chosen = None if pattern is None else TopicPattern(pattern)
        self.coordinator.subscribe(member, Subscription(topics=frozenset(topics), pattern=chosen))
        return member

    def _tell(self, name: str, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append((name, partitions))


@pytest.fixture
def world() -> World:
    """A world without topics."""
    return World()


def numbers(member: Member) -> list[int]:
    """Return the numbers of the member's partitions."""
    return [partition.partition for partition in member.partitions]


def test_members_share_and_the_last_one_ends_the_group(world: World) -> None:
    world.topic("t", 3)
    first = world.join("a", "t")
    assert numbers(first) == [0, 1, 2]
    second = world.join("b", "t")
    assert sorted(numbers(first) + numbers(second)) == [0, 1, 2]
    assert first.group.generation == 2
    world.coordinator.leave(first)
    assert numbers(second) == [0, 1, 2]
    assert numbers(first) == []
    world.coordinator.leave(first)  # a second call does nothing
    world.coordinator.leave(second)
    assert not world.coordinator.groups


def test_what_goes_elsewhere_is_given_up_before_it_is_handed_out(world: World) -> None:
    world.topic("t", 2)
    world.join("b", "t")
    world.calls.clear()
    world.join("a", "t")
    (giver, kept), (taker, got) = world.calls
    assert (giver, taker) == ("b", "a")
    assert len(kept) == len(got) == 1
    assert set(kept).isdisjoint(got)


def test_a_name_is_taken_once_in_a_group(world: World) -> None:
    world.join("a", "t")
    with pytest.raises(ConsumerExists):
        world.join("a", "t")
    world.join("a", "t", group="other")


def test_topics_come_grow_and_go(world: World) -> None:
    by_name = world.join("a", "t", "later")
    by_pattern = world.join("p", pattern="la.*|int.*", group="other")
    world.topic("t", 1)
    world.topic("int", internal=True)
    assert list(by_name.partitions) == [TopicPartition("t", 0)]
    assert numbers(by_pattern) == []
    world.topic("later", 2)
    assert len(by_name.partitions) == 3
    assert numbers(by_pattern) == [0, 1]
    world.topic("t", 2)
    assert len(by_name.partitions) == 4
    world.drop("later")
    assert numbers(by_pattern) == []
    assert [partition.topic for partition in by_name.partitions] == ["t", "t"]


def test_a_topic_that_nobody_wants_moves_nothing(world: World) -> None:
    world.topic("t")
    member = world.join("a", "t")
    world.calls.clear()
    world.topic("other")
    world.drop("other")
    assert not world.calls
    assert member.group.generation == 1


def test_pinned_partitions_are_outside_the_assignment(world: World) -> None:
    world.topic("t", 2)
    sharing = world.join("a", "t")
    pinned = world.coordinator.join("g", "p", session_timeout_ms=100, reassigned=lambda _: None)
    world.coordinator.pin(pinned, [TopicPartition("t", 0)])
    assert numbers(sharing) == [0, 1]
    assert numbers(pinned) == [0]
    world.coordinator.pin(pinned, ())
    assert numbers(pinned) == []


def test_silent_members(world: World) -> None:
    quiet, busy, lively = (world.join(name, "t") for name in ("a", "b", "c"))
    busy.busy += 1
    world.now_ms = 100
    assert world.coordinator.silent() == []
    world.coordinator.seen(lively)
    world.now_ms = 101
    assert world.coordinator.silent() == [quiet]


def test_a_subscription_contains_the_retry_topic_of_its_group() -> None:
    world = World()
    world.coordinator = Coordinator(world.topics, lambda: 0, {}, "retry-of-{}".format)
    world.topic("t")
    world.topic("retry-of-h")
    by_name, by_pattern = world.join("a", "t"), world.join("b", pattern="t|u")
    assert [*by_name.partitions, *by_pattern.partitions] == [TopicPartition("t", 0)]
    world.topic("retry-of-g")
    owned = sorted([*by_name.partitions, *by_pattern.partitions])
    assert owned == [TopicPartition("retry-of-g", 0), TopicPartition("t", 0)]
    assert by_pattern.subscription is not None
    assert by_pattern.group.topics(by_pattern.subscription) == ["t"]
    other = world.join("c", "t", group="h")
    assert TopicPartition("retry-of-h", 0) in other.partitions
    world.drop("retry-of-g")
    assert [*by_name.partitions, *by_pattern.partitions] == [TopicPartition("t", 0)]
    world.coordinator.subscribe(other, None)
    assert other.partitions == ()
