"""Committed offsets of consumer groups: stored, replaced, deleted and rejected, on each backend that has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.contract import LogStore, SupportsGroupOffsets
from storage.errors import (
    InvalidArgument,
    StoreClosed,
    StoreReadOnly,
    UnknownPartition,
    UnknownTopic,
)
from storage.model import CommittedOffset, GroupCommit, TopicPartition
from tests.contract.harness import START_MS, StoreFactory, flavour_of, texts

EVENTS = [TopicPartition("events", number) for number in range(2)]
OTHER = TopicPartition("other", 0)
FULL = CommittedOffset(3, 7, "half way: \u00e4\u4e16\U0001f600", START_MS + 5)


@pytest.fixture
def store(store_factory: StoreFactory) -> LogStore:
    """An open store with five records each in events-0, events-1 and other-0."""
    return filled(store_factory)


def filled(factory: StoreFactory) -> LogStore:
    store = factory.open()
    store.create_topic("events", 2)
    store.create_topic("other", 1)
    for partition in (*EVENTS, OTHER):
        store.append(partition, texts("a", "b", "c", "d", "e"))
    store.flush()
    return store


def offsets_of(store: LogStore) -> SupportsGroupOffsets:
    """Return the store as a store of committed offsets, or skip the test."""
    if not isinstance(store, SupportsGroupOffsets):
        pytest.skip(f"{store.capabilities.backend} keeps no committed offsets")
    return store


def commit(store: LogStore, group: str, *at: tuple[TopicPartition, int]) -> None:
    """Commit plain offsets of a group."""
    offsets = {partition: CommittedOffset(offset) for partition, offset in at}
    offsets_of(store).commit_offsets([GroupCommit(group, offsets)])


def plain(store: LogStore, group: str) -> dict[TopicPartition, int]:
    """Return a group's offsets without their details."""
    return {p: committed.offset for p, committed in offsets_of(store).committed(group).items()}


def test_none_committed(store: LogStore) -> None:
    assert offsets_of(store).groups() == []
    assert not offsets_of(store).unstable_offsets("g")


def test_plain_commits_are_stable_at_once(store: LogStore) -> None:
    commit(store, "g", (EVENTS[0], 2))
    assert not offsets_of(store).unstable_offsets("g")
    assert offsets_of(store).committed("nobody") == {}


def test_committed(store: LogStore) -> None:
    """Committed offsets are stored per group and partition; the newest commit of a partition counts."""
    commit(store, "g", (EVENTS[0], 2), (OTHER, 5))
    commit(store, "g", (EVENTS[1], 4), (OTHER, 1))
    commit(store, "f", (OTHER, 0))
    assert offsets_of(store).groups() == ["f", "g"]
    assert plain(store, "g") == {EVENTS[0]: 2, EVENTS[1]: 4, OTHER: 1}
    assert plain(store, "f") == {OTHER: 0}
    assert list(offsets_of(store).committed("g")) == [*EVENTS, OTHER]


def test_kept_beside_the_offset(store: LogStore) -> None:
    """Epoch, metadata and time are kept where the backend's format has a place for them."""
    store_offsets = offsets_of(store)
    offsets = {EVENTS[0]: FULL, EVENTS[1]: CommittedOffset(4)}
    store_offsets.commit_offsets([GroupCommit("g", offsets)])
    found = store_offsets.committed("g")
    if flavour_of(store).keeps_commit_details:
        assert found == {EVENTS[0]: FULL, EVENTS[1]: CommittedOffset(4, -1, "", START_MS)}
    else:
        assert found == {EVENTS[0]: CommittedOffset(3), EVENTS[1]: CommittedOffset(4)}


@pytest.mark.parametrize("durable", [True, False])
def test_many_groups_at_once(store: LogStore, durable: bool) -> None:
    """One call commits for many groups; if it has a group and partition twice, the later offset counts."""
    commits = [GroupCommit(f"g{i:03}", {EVENTS[i % 2]: CommittedOffset(i % 5)}) for i in range(200)]
    commits += [GroupCommit("g007", {EVENTS[1]: CommittedOffset(5), OTHER: CommittedOffset(1)})]
    offsets_of(store).commit_offsets(commits, durable=durable)
    assert offsets_of(store).groups() == [f"g{i:03}" for i in range(200)]
    assert plain(store, "g008") == {EVENTS[0]: 3}
    assert plain(store, "g007") == {EVENTS[1]: 5, OTHER: 1}


def test_nothing_to_commit(store: LogStore) -> None:
    """An empty list of commits, or a commit without offsets, leaves no trace."""
    offsets_of(store).commit_offsets([])
    offsets_of(store).commit_offsets([GroupCommit("g", {})])
    assert offsets_of(store).groups() == []


def test_backwards(store: LogStore) -> None:
    """A commit may go back, and may name an offset that the log does not have: the store does not judge it.

    kafkajs commits -1 or -2 for an end of the log.
    """
    for offset in (5, 1, 1 << 40, -2, 0, -1):
        commit(store, "g", (OTHER, offset))
        is_kept = offset >= 0 or flavour_of(store).keeps_commit_details
        assert plain(store, "g") == ({OTHER: offset} if is_kept else {})


def test_answers_are_copies(store: LogStore) -> None:
    commit(store, "g", (OTHER, 1))
    before = offsets_of(store).committed("g")
    commit(store, "g", (OTHER, 2))
    assert before[OTHER].offset == 1


@pytest.mark.parametrize(
    ("group", "partition", "offset", "error"),
    [
        ("g", TopicPartition("nowhere", 0), CommittedOffset(0), UnknownTopic),
        ("g", TopicPartition("events", 99), CommittedOffset(0), UnknownPartition),
        ("g", OTHER, CommittedOffset(-(1 << 63) - 1), InvalidArgument),
        ("g", OTHER, CommittedOffset(1 << 63), InvalidArgument),
        ("g", OTHER, CommittedOffset(1, -2), InvalidArgument),
        ("g", OTHER, CommittedOffset(1, 1 << 31), InvalidArgument),
        ("g", OTHER, CommittedOffset(1, 0, "x" * 4097), InvalidArgument),
        ("g", OTHER, CommittedOffset(1, 0, "\ud800"), InvalidArgument),
        ("g", OTHER, CommittedOffset(1, 0, "", -1), InvalidArgument),
        ("g" * 256, OTHER, CommittedOffset(1), InvalidArgument),
        ("new\nline", OTHER, CommittedOffset(1), InvalidArgument),
        ("\ud800", OTHER, CommittedOffset(1), InvalidArgument),
    ],
)
def test_refused(
    store: LogStore,
    group: str,
    partition: TopicPartition,
    offset: CommittedOffset,
    error: type[Exception],
) -> None:
    """A bad commit rejects the whole call, and nothing of it is stored."""
    good = GroupCommit("good", {OTHER: CommittedOffset(1)})
    bad = GroupCommit(group, {OTHER: CommittedOffset(0), partition: offset})
    with pytest.raises(error):
        offsets_of(store).commit_offsets([good, bad])
    assert offsets_of(store).groups() == []


def test_no_group(store: LogStore) -> None:
    """Clients without a group commit under an empty name, which RocketMQ's format does not have."""
    if store.capabilities.messages:
        with pytest.raises(InvalidArgument):
            commit(store, "", (OTHER, 1))
        return
    commit(store, "", (OTHER, 1))
    assert plain(store, "") == {OTHER: 1}
    assert offsets_of(store).groups() == [""]


def test_deleted(store: LogStore) -> None:
    """Some or all offsets of a group can be deleted; the group exists as long as it has an offset."""
    commit(store, "g", (EVENTS[0], 1), (EVENTS[1], 2), (OTHER, 3))
    commit(store, "f", (EVENTS[0], 4))
    offsets_of(store).delete_offsets("g", [EVENTS[0], TopicPartition("nowhere", 9)])
    assert plain(store, "g") == {EVENTS[1]: 2, OTHER: 3}
    offsets_of(store).delete_offsets("g")
    offsets_of(store).delete_offsets("nobody")
    assert offsets_of(store).groups() == ["f"]
    commit(store, "g", (OTHER, 1))
    assert plain(store, "g") == {OTHER: 1}


def test_deleted_with_their_topic(store: LogStore) -> None:
    """Deleting a topic deletes its committed offsets: a new topic of the same name begins without offsets."""
    commit(store, "g", (EVENTS[0], 1), (EVENTS[1], 2), (OTHER, 3))
    commit(store, "f", (EVENTS[0], 4))
    store.delete_topic("events")
    assert offsets_of(store).groups() == ["g"]
    store.create_topic("events", 2)
    assert plain(store, "g") == {OTHER: 3}
    assert plain(store, "f") == {}


@pytest.mark.parametrize("stop", ["close", "kill", "read_only"])
def test_reopen(durable_factory: StoreFactory, stop: str) -> None:
    """Commits and deletions survive any stop; a store opened read-only has them too."""
    store = filled(durable_factory)
    offsets_of(store).commit_offsets([GroupCommit("g", {EVENTS[0]: FULL, OTHER: FULL})])
    commit(store, "g", (EVENTS[1], 1), (OTHER, -2))
    commit(store, "gone", (OTHER, 5))
    offsets_of(store).delete_offsets("gone")
    before, before_plain = offsets_of(store).committed("g"), plain(store, "g")
    if stop == "kill":
        store = durable_factory.after_kill()
    else:
        store = durable_factory.reopen(store, read_only=stop == "read_only")
    assert offsets_of(store).groups() == ["g"]
    assert offsets_of(store).committed("g") == before
    if stop != "read_only":
        commit(store, "g", (EVENTS[0], 4))
        assert plain(store, "g") == {**before_plain, EVENTS[0]: 4}


def test_reopen_after_topic_deletion(durable_factory: StoreFactory) -> None:
    """The offsets of a deleted topic do not return at a start."""
    store = filled(durable_factory)
    commit(store, "g", (EVENTS[0], 1), (OTHER, 3))
    store.delete_topic("events")
    store = durable_factory.reopen(store)
    store.create_topic("events", 2)
    assert plain(store, "g") == {OTHER: 3}


WRITES: dict[str, Callable[[SupportsGroupOffsets], object]] = {
    "commit": lambda store: store.commit_offsets([GroupCommit("g", {OTHER: CommittedOffset(1)})]),
    "commit (bad)": lambda store: store.commit_offsets([GroupCommit("", {})]),
    "delete": lambda store: store.delete_offsets("g"),
    "delete (unknown)": lambda store: store.delete_offsets("nobody", [OTHER]),
}
READS: dict[str, Callable[[SupportsGroupOffsets], object]] = {
    "groups": lambda store: store.groups(),
    "committed": lambda store: store.committed("g"),
}


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
def test_read_only(
    store_factory: StoreFactory, call: Callable[[SupportsGroupOffsets], object]
) -> None:
    """A store opened read-only rejects every change."""
    filled(store_factory).close()
    store = offsets_of(store_factory.open(read_only=True))
    with pytest.raises(StoreReadOnly):
        call(store)


@pytest.mark.parametrize("call", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
def test_closed(store: LogStore, call: Callable[[SupportsGroupOffsets], object]) -> None:
    offsets = offsets_of(store)
    store.close()
    with pytest.raises(StoreClosed):
        call(offsets)
