"""Assignment of partitions: its guarantees for any members, topics and history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from logserver.groups.assignment import assign
from storage import TopicPartition

NAMES = st.sampled_from([f"m{number}" for number in range(6)])
TOPICS = st.sampled_from(["a", "b", "c", "d"])
WANTED = st.dictionaries(NAMES, st.sets(TOPICS), max_size=6)
PARTITIONS = st.dictionaries(TOPICS, st.integers(1, 12).map(range))


def partitions_of(
    wanted: Mapping[str, Collection[str]], topics: Mapping[str, Sequence[int]]
) -> set[TopicPartition]:
    """Return every partition of a topic that some member wants."""
    return {
        TopicPartition(topic, number)
        for topic in set().union(*wanted.values())
        for number in topics.get(topic, ())
    }


@given(WANTED, PARTITIONS, WANTED, PARTITIONS)
def test_every_wanted_partition_has_one_owner_who_wants_it_and_loads_are_even(
    before: Mapping[str, set[str]],
    topics_before: Mapping[str, Sequence[int]],
    wanted: Mapping[str, set[str]],
    topics: Mapping[str, Sequence[int]],
) -> None:
    previous = assign(before, topics_before, previous={})
    owned = assign(wanted, topics, previous=previous)
    assert owned.keys() == wanted.keys()
    given_out = [partition for share in owned.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == partitions_of(wanted, topics)
    for member, share in owned.items():
        assert list(share) == sorted(share)
        for partition in share:
            assert partition.topic in wanted[member]
            for other, other_share in owned.items():
                if partition.topic in wanted[other]:
                    assert len(share) <= len(other_share) + 1
    assert owned == assign(wanted, topics, previous=previous)


@given(WANTED, PARTITIONS)
def test_nothing_moves_where_nothing_changed(
    wanted: Mapping[str, set[str]], topics: Mapping[str, Sequence[int]]
) -> None:
    owned = assign(wanted, topics, previous={})
    assert assign(wanted, topics, previous=owned) == owned


@given(st.integers(1, 6), st.integers(1, 40))
def test_one_who_leaves_moves_only_its_own(members: int, count: int) -> None:
    topics = {"t": range(count)}
    wanted = {f"m{number}": {"t"} for number in range(members + 1)}
    before = assign(wanted, topics, previous={})
    del wanted["m0"]
    after = assign(wanted, topics, previous=before)
    assert all(set(after[member]) >= set(before[member]) for member in wanted)


@given(st.integers(1, 6), st.integers(1, 40))
def test_one_who_joins_takes_no_more_than_its_share(members: int, count: int) -> None:
    topics = {"t": range(count)}
    wanted = {f"m{number}": {"t"} for number in range(members)}
    before = assign(wanted, topics, previous={})
    wanted["new"] = {"t"}
    after = assign(wanted, topics, previous=before)
    moved = sum(len(set(before[member]) - set(after[member])) for member in before)
    assert moved == len(after["new"]) == count // (members + 1)
