"""One group of the new protocol (KIP-848), step by step: deadlines, limits, assignors, fencing of commits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logserver.groups.classic.values import Caller, Leaving, Refusal
from logserver.groups.modern.assignors import ASSIGNORS, Assignment, Subscriber
from logserver.groups.modern.group import EMPTY_KEPT_MS
from logserver.groups.modern.values import AWAY_EPOCH, LEAVE_EPOCH, GroupState, Topic
from storage.groups import Slot
from tests.unit.groups.modern_clients import LIMITS, REBALANCE_MS, SESSION_MS, World

A, B = b"A", b"B"
NOW = LIMITS._replace(assignment_interval_ms=0)


def slots(topic_id: bytes, *numbers: int) -> frozenset[Slot]:
    """Return partitions of one topic."""
    return frozenset((topic_id, number) for number in numbers)


def numbers(world: World, member_id: str) -> list[int]:
    """Return the partitions that a member has, or must give up."""
    (found,) = (one for one in world.group.view().members if one.member_id == member_id)
    return [number for _, number in found.assigned]


# -- deadlines


def test_a_silent_member_loses_its_partitions_at_the_end_of_its_session() -> None:
    world = World(NOW, t=4)
    world.beat("a", 0)
    world.advance(SESSION_MS - 1)
    assert world.beat("a", 2).refusal is Refusal.NONE
    world.beat("b", 0)
    world.advance(SESSION_MS - 1)
    assert world.beat("b", 3).assigned is None
    world.advance(1)
    assert world.group.member_ids() == ["b"]
    assert world.beat("a", 2).refusal is Refusal.UNKNOWN_MEMBER_ID
    answer = world.beat("b", 3)
    assert (answer.epoch, len(answer.assigned or ())) == (4, 4)


def test_a_member_that_does_not_give_up_its_partitions_is_removed() -> None:
    world = World(NOW, t=4)
    owned = frozenset(world.topics.slots(["t"]))
    world.beat("a", 0)
    world.beat("b", 0)
    for _ in range(REBALANCE_MS // 5_000):
        assert world.beat("a", 2, owned=owned).refusal is Refusal.NONE
        world.beat("b", 3, owned=())
        world.advance(5_000)
    assert world.beat("a", 2, owned=owned).refusal is Refusal.UNKNOWN_MEMBER_ID
    assert len(world.beat("b", 3, owned=()).assigned or ()) == 4


def test_the_time_to_give_up_partitions_ends_when_they_are_given_up() -> None:
    world = World(NOW, t=4)
    owned = frozenset(world.topics.slots(["t"]))
    world.beat("a", 0)
    world.beat("b", 0)
    kept = world.beat("a", 2, owned=owned).assigned
    assert world.beat("a", 2, owned=kept).epoch == 3
    for _ in range(2 * REBALANCE_MS // 5_000):
        world.advance(5_000)
        assert world.beat("a", 3, owned=kept).refusal is Refusal.NONE
        world.beat("b", 3)


def test_a_static_member_that_stays_away_is_removed_at_the_end_of_its_session() -> None:
    world = World(NOW, t=4)
    world.beat("a", 0, instance_id="i")
    world.beat("a", AWAY_EPOCH, instance_id="i")
    world.beat("b", 0)
    assert numbers(world, "b") == []
    world.advance(SESSION_MS - 1)
    world.beat("b", 3)
    world.advance(1)
    assert len(world.beat("b", 3).assigned or ()) == 4


def test_assignments_are_an_interval_apart() -> None:
    world = World(t=4)
    assert len(world.beat("a", 0).assigned or ()) == 4
    world.advance(LIMITS.assignment_interval_ms - 1)
    answer = world.beat("b", 0)
    assert (answer.epoch, world.group.state) == (2, GroupState.ASSIGNING)
    world.advance(1)
    assert world.beat("b", 2).epoch == 3
    assert world.group.state is GroupState.RECONCILING


def test_an_empty_group_is_remembered_for_a_while() -> None:
    world = World(t=4)
    world.beat("a", 0)
    world.beat("a", LEAVE_EPOCH)
    world.advance(EMPTY_KEPT_MS - 1)
    assert not world.group.is_dead(world.now_ms)
    world.beat("b", 0)
    world.beat("b", LEAVE_EPOCH)
    world.advance(EMPTY_KEPT_MS)
    assert world.group.is_dead(world.now_ms)


# -- limits


def test_a_full_group_takes_no_more_members() -> None:
    world = World(NOW._replace(max_size=2), t=4)
    world.beat("a", 0)
    world.beat("b", 0)
    assert world.beat("c", 0).refusal is Refusal.GROUP_MAX_SIZE_REACHED
    assert world.beat("b", 0).refusal is Refusal.NONE
    world.beat("a", LEAVE_EPOCH)
    assert world.beat("c", 0).refusal is Refusal.NONE


def test_the_bytes_of_members_are_limited() -> None:
    world = World(NOW._replace(max_bytes=2_000), t=4)
    assert world.beat("a", 0, topics=["x" * 1_000]).refusal is Refusal.NONE
    assert world.beat("b", 0, topics=["x" * 1_000]).refusal is Refusal.GROUP_MAX_SIZE_REACHED
    assert world.beat("a", 2, topics=["x" * 2_000]).refusal is Refusal.GROUP_MAX_SIZE_REACHED
    assert world.beat("a", 2).refusal is Refusal.NONE
    world.beat("a", LEAVE_EPOCH)
    assert world.held.size_bytes == 0


# -- topics


def test_new_partitions_and_topics_are_assigned() -> None:
    world = World(NOW, t=2)
    world.beat("a", 0, topics=["t"], pattern="u")
    world.change_topics(t=3, u1=1)
    answer = world.beat("a", 2)
    assert (answer.epoch, len(answer.assigned or ())) == (3, 4)
    assert world.beat("a", 3).epoch == 3


def test_a_topic_made_again_is_another_topic() -> None:
    world = World(NOW, t=2)
    before = world.beat("a", 0).assigned
    world.topics.incarnation = 1
    world.group.topics_changed()
    first = world.beat("a", 2, owned=before)
    assert (first.epoch, first.assigned) == (2, [])
    second = world.beat("a", 2, owned=())
    assert second.epoch == 3
    assert not {*(second.assigned or ())} & {*(before or ())}


def test_an_invalid_pattern_changes_nothing() -> None:
    world = World(NOW, t=2)
    answer = world.beat("a", 0, pattern="(", pattern_problem="no")
    assert answer.refusal is Refusal.INVALID_REGULAR_EXPRESSION
    assert world.group.is_idle


# -- commits, and members that operators remove


def test_commits_are_fenced_by_the_epoch_at_which_a_partition_came() -> None:
    world = World(NOW, t=4)
    owned = frozenset(world.topics.slots(["t"]))
    world.beat("a", 0)
    world.beat("b", 0)
    kept = frozenset(world.beat("a", 2, owned=owned).assigned or ())
    given = owned - kept

    def commit(epoch: int, chosen: frozenset[Slot], **changed: bool) -> Refusal:
        caller = Caller("a", epoch)
        return world.group.check_commit(caller, chosen, 9, **{"transactional": False, **changed})

    assert commit(2, owned) is Refusal.NONE
    world.beat("a", 2, owned=kept)
    assert commit(3, owned) is Refusal.NONE
    assert commit(2, kept) is Refusal.NONE
    assert commit(2, given) is Refusal.STALE_MEMBER_EPOCH
    assert commit(1, kept) is Refusal.STALE_MEMBER_EPOCH
    assert commit(4, kept) is Refusal.STALE_MEMBER_EPOCH
    nobody = Caller("", -1)
    check = world.group.check_commit
    assert check(nobody, kept, 3, transactional=True) is Refusal.NONE
    assert check(nobody, kept, 9, transactional=False) is Refusal.UNKNOWN_MEMBER_ID
    old = check(Caller("a", 3), kept, 8, transactional=False)
    assert old is Refusal.UNSUPPORTED_VERSION


def test_an_operator_removes_members() -> None:
    world = World(NOW, t=4)
    world.beat("a", 0, instance_id="i")
    world.beat("b", 0)
    leaving = [
        Leaving("x", "i"), Leaving("", "none"), Leaving("", "i"), Leaving("b"), Leaving("b"),
    ]  # fmt: skip
    assert world.group.leave(leaving, world.topics, world.now_ms) == [
        Refusal.FENCED_INSTANCE_ID,
        Refusal.UNKNOWN_MEMBER_ID,
        Refusal.NONE,
        Refusal.NONE,
        Refusal.UNKNOWN_MEMBER_ID,
    ]
    assert world.group.state is GroupState.EMPTY


# -- assignors


def assign(name: str, members: Mapping[str, Subscriber], **counts: int) -> Assignment:
    """Run an assignor on the topics A and B."""
    topics = {key.encode(): Topic(key.encode(), range(count)) for key, count in counts.items()}
    return ASSIGNORS[name](members, topics)


def test_range_gives_equal_numbers_of_all_topics_to_one_member() -> None:
    both = frozenset((A, B))
    members = {
        "m1": Subscriber(None, both, frozenset()),
        "m2": Subscriber("z", both, frozenset()),
    }
    assert assign("range", members, A=3, B=3) == {
        "m2": slots(A, 0, 1) | slots(B, 0, 1),
        "m1": slots(A, 2) | slots(B, 2),
    }


def test_uniform_moves_as_little_as_possible() -> None:
    members = {
        "m1": Subscriber(None, frozenset((A,)), slots(A, 0, 1, 2, 3)),
        "m2": Subscriber(None, frozenset((A,)), slots(A, 4, 5)),
        "m3": Subscriber(None, frozenset((A,)), frozenset()),
    }
    assert assign("uniform", members, A=6) == {
        "m1": slots(A, 0, 1),
        "m2": slots(A, 4, 5),
        "m3": slots(A, 2, 3),
    }


def test_uniform_levels_different_subscriptions() -> None:
    members = {
        "m1": Subscriber(None, frozenset((A, B)), slots(A, 0, 1, 2, 3) | slots(B, 0, 1)),
        "m2": Subscriber(None, frozenset((B,)), frozenset()),
    }
    assert assign("uniform", members, A=4, B=2) == {
        "m1": slots(A, 0, 1, 2, 3),
        "m2": slots(B, 0, 1),
    }


@pytest.mark.parametrize("name", ASSIGNORS)
@given(
    counts=st.fixed_dictionaries({"A": st.integers(1, 7), "B": st.integers(0, 7)}),
    topics=st.lists(
        st.sampled_from((frozenset((A,)), frozenset((B,)), frozenset((A, B)))), max_size=6
    ),
    former=st.lists(st.integers(0, 5), max_size=14),
)
def test_every_partition_has_one_reader_that_wants_it(
    name: str, counts: dict[str, int], topics: list[frozenset[bytes]], former: list[int]
) -> None:
    every = sorted(slot for key in ("A", "B") for slot in slots(key.encode(), *range(counts[key])))
    before: dict[int, set[Slot]] = {}
    for slot, owner in zip(every, former, strict=False):
        before.setdefault(owner, set()).add(slot)
    members = {
        f"m{index}": Subscriber(None, chosen, frozenset(before.get(index, ())))
        for index, chosen in enumerate(topics)
    }
    found = assign(name, members, **counts)
    assert found.keys() == members.keys()
    given_out = sorted(slot for chosen in found.values() for slot in chosen)
    wanted = frozenset().union(*topics)
    assert given_out == [slot for slot in every if slot[0] in wanted]
    assert all(slot[0] in members[one].topics for one, chosen in found.items() for slot in chosen)
    if name == "uniform":
        _check_level(members, found)


def _check_level(members: Mapping[str, Subscriber], found: Assignment) -> None:
    """No move of a partition to another of its subscribers makes two numbers more equal."""
    for one, chosen in found.items():
        for topic_id, _ in chosen:
            for other, subscriber in members.items():
                if topic_id in subscriber.topics:
                    assert len(chosen) - len(found[other]) <= 1, (one, other)
