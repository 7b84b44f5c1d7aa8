"""The members of groups of Kafka's protocols, over restarts: SupportsGroupMembers."""

from __future__ import annotations

import pytest

from storage import (
    CommittedOffset,
    GroupCommit,
    LogStore,
    StoredGroup,
    StoredMember,
    StoredModernGroup,
    StoredModernMember,
    SupportsGroupMembers,
    SupportsGroupOffsets,
    TopicPartition,
)
from storage.errors import InvalidArgument
from tests.contract.harness import StoreFactory

MEMBERS = (
    StoredMember("m-1", None, "client", "/127.0.0.1", 60_000, 10_000, b"\0\1", b"\0\2"),
    StoredMember("i_2", "instance é", "", "", 5, 6, b"", b""),
)
GROUP = StoredGroup("g", "consumer", 7, "range", "m-1", 1_700_000_000_000, list(MEMBERS))
T, U = b"t" * 16, b"u" * 16
MODERN_MEMBERS = (
    StoredModernMember(
        "m-1", None, None, "c", "/h", 60_000, "range", ("t", "u"), None, 4, 3, 1,
        {(T, 0): 2, (T, 1): 4, (U, 0): 4}, {}, frozenset({(T, 0), (T, 1), (U, 0)}),
    ),
    StoredModernMember(
        "m-2", "instance é", "rack", "", "", -1, None, (), "t.*", -2, 3, 2, {}, {(T, 2): 1}, frozenset(),
    ),
)  # fmt: skip
MODERN = StoredModernGroup(
    "g", 5, -77, 4, 1_700_000_000_000, list(MODERN_MEMBERS), {"t.*": frozenset({"t", "tt"})}
)
EMPTY = StoredGroup("h", "connect", 3, None, None, -1, [])


def members_of(store: LogStore) -> SupportsGroupMembers:
    """Return the store as a store of members, or skip the test."""
    if not isinstance(store, SupportsGroupMembers):
        pytest.skip(f"{store.capabilities.backend} keeps no members of groups")
    return store


def test_nothing_stored(store: LogStore) -> None:
    members = members_of(store)
    assert members.stored_groups() == []
    members.write_groups([])
    members.forget_groups(["g"])
    assert members.stored_groups() == []


@pytest.mark.parametrize("durable", [True, False])
def test_the_newest_state_of_each_group_counts(store: LogStore, durable: bool) -> None:
    members = members_of(store)
    members.write_groups([GROUP, EMPTY], durable=durable)
    assert members.stored_groups() == [GROUP, EMPTY]
    later = GROUP._replace(generation=8, members=list(MEMBERS[:1]))
    members.write_groups([later], durable=durable)
    assert members.stored_groups() == [later, EMPTY]
    members.forget_groups(["h", "none"])
    assert members.stored_groups() == [later]


def test_members_and_offsets_do_not_touch_each_other(store: LogStore) -> None:
    members = members_of(store)
    assert isinstance(store, SupportsGroupOffsets)
    store.create_topic("t", 1)
    offsets = {TopicPartition("t", 0): CommittedOffset(0)}
    store.commit_offsets([GroupCommit("g", offsets)])
    members.write_groups([GROUP])
    assert store.groups() == ["g"]
    members.forget_groups(["g"])
    assert list(store.committed("g")) == list(offsets)
    members.write_groups([GROUP])
    store.delete_offsets("g")
    assert members.stored_groups() == [GROUP]


def test_a_restart_keeps_them(durable_factory: StoreFactory) -> None:
    store = durable_factory.open()
    members_of(store).write_groups([GROUP, EMPTY])
    store.close()
    again = durable_factory.open()
    assert members_of(again).stored_groups() == [GROUP, EMPTY]
    members_of(again).forget_groups(["g"])
    again.close()
    assert members_of(durable_factory.open()).stored_groups() == [EMPTY]


def test_a_bad_name_stores_nothing(store: LogStore) -> None:
    members = members_of(store)
    with pytest.raises(InvalidArgument):
        members.write_groups([GROUP, EMPTY._replace(name="")])
    assert members.stored_groups() == []


@pytest.mark.parametrize("durable", [True, False])
def test_groups_of_the_new_protocol(store: LogStore, durable: bool) -> None:
    members = members_of(store)
    members.write_groups([MODERN, EMPTY], durable=durable)
    assert members.stored_groups() == [MODERN, EMPTY]
    one = MODERN_MEMBERS[0]._replace(epoch=5, previous_epoch=4, assigned={(T, 1): 4})
    left = MODERN._replace(epoch=6, assignment_epoch=5, members=[one], patterns={})
    members.write_groups([left], durable=durable)
    assert members.stored_groups() == [left, EMPTY]
    emptied = left._replace(epoch=7, members=[], topics_hash=0)
    members.write_groups([emptied], durable=durable)
    assert members.stored_groups() == [emptied, EMPTY]
    members.forget_groups(["g"])
    assert members.stored_groups() == [EMPTY]


def test_a_group_has_one_protocol(store: LogStore) -> None:
    members = members_of(store)
    for group in (GROUP, MODERN, GROUP._replace(members=[]), MODERN):
        members.write_groups([group])
        assert members.stored_groups() == [group]
    members.forget_groups(["g"])
    assert members.stored_groups() == []


def test_a_restart_keeps_groups_of_the_new_protocol(durable_factory: StoreFactory) -> None:
    store = durable_factory.open()
    members_of(store).write_groups([GROUP, MODERN])
    store.close()
    assert members_of(durable_factory.open()).stored_groups() == [MODERN]
