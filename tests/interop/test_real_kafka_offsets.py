"""A real Kafka broker returns the committed offsets that we wrote into `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from storage import (
    CommittedOffset,
    GroupCommit,
    Record,
    StoreOptions,
    SupportsGroupOffsets,
    TopicPartition,
    open_store,
)
from tests.interop import peers

pytestmark = pytest.mark.java

ORDERS = [TopicPartition("orders", number) for number in range(3)]
Offsets = Mapping[str, Mapping[TopicPartition, CommittedOffset]]
FIRST: Offsets = {
    "billing": {ORDERS[0]: CommittedOffset(1), ORDERS[1]: CommittedOffset(2, 0, "half way")},
    "gone": {ORDERS[0]: CommittedOffset(3)},
    "shrunk": {ORDERS[0]: CommittedOffset(3), ORDERS[1]: CommittedOffset(3)},
    "\u0433\u0440\u0443\u043f\u043f\u0430": {
        ORDERS[2]: CommittedOffset(5, 0, "\u00e4 \u4e16 \U0001f680")
    },
    "beyond": {ORDERS[1]: CommittedOffset(999), ORDERS[2]: CommittedOffset(6, 0, "far")},
    "polygenelubricants": {ORDERS[2]: CommittedOffset(0)},
    **{f"many-{n}": {ORDERS[n % 3]: CommittedOffset(n % 6, 0)} for n in range(40)},
}
SECOND: Offsets = {
    "billing": {ORDERS[0]: CommittedOffset(5, 1)},
    "many-7": {ORDERS[0]: CommittedOffset(2)},
}


def commit(store: SupportsGroupOffsets, groups: Offsets) -> None:
    store.commit_offsets([GroupCommit(group, offsets) for group, offsets in groups.items()])


def written(path: Path, settings: Mapping[str, str]) -> list[tuple[object, ...]]:
    """Create a store with groups that committed, committed again after a restart, and were deleted.

    Return our answers about the groups.
    """
    with open_store("kafka", path, StoreOptions(settings=settings)) as store:
        store.create_topic("orders", 3)
        store.create_topic("removed", 1)
        for partition in (*ORDERS, TopicPartition("removed", 0)):
            store.append(partition, [Record(None, b"x")] * 5)
        assert isinstance(store, SupportsGroupOffsets)
        commit(store, FIRST)
        commit(store, {"billing": {TopicPartition("removed", 0): CommittedOffset(5)}})
    with open_store("kafka", path, StoreOptions(settings=settings)) as store:
        assert isinstance(store, SupportsGroupOffsets)
        commit(store, SECOND)
        store.delete_offsets("gone")
        store.delete_offsets("shrunk", [ORDERS[1]])
        store.delete_topic("removed")
        return [
            (
                group,
                *partition,
                at.offset,
                None if at.leader_epoch < 0 else at.leader_epoch,
                at.metadata,
            )
            for group in store.groups()
            for partition, at in store.committed(group).items()
        ]


@pytest.mark.parametrize("clean", ["yes", "no"])
@pytest.mark.parametrize("settings", [{}, {"offsets.topic.num.partitions": "3"}], ids=["50", "3"])
def test_the_real_broker_tells_what_we_committed(
    tmp_path: Path, settings: Mapping[str, str], clean: str
) -> None:
    """The broker's answer for every group equals ours, after a clean stop and after a crash."""
    ours = written(tmp_path / "store", settings)
    assert len(ours) == 48
    answer = peers.run_kafka_opens(
        tmp_path / "store", "--groups", "yes", "--records", "no", "--clean", clean
    )
    reported = [
        tuple(
            row[name]
            for name in ("group", "topic", "partition", "committed", "leaderEpoch", "metadata")
        )
        for row in answer.groups
    ]
    assert sorted(reported, key=str) == sorted(ours, key=str)
