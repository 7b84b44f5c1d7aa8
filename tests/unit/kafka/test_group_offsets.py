"""Committed offsets in `__consumer_offsets`: of a real broker and our own, transactions, damage, home partitions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from storage import (
    CommittedOffset,
    GroupCommit,
    LogStore,
    Record,
    SupportsGroupMembers,
    SupportsGroupOffsets,
    TopicPartition,
)
from storage.files import OverlayFileSystem, RealFileSystem
from storage.kafka.format.consumer_group_records import CURRENT, MEMBER, TARGET, TARGET_EPOCH
from storage.kafka.format.consumer_group_records import GROUP as EPOCH
from storage.kafka.format.offset_records import (
    OffsetKey,
    OffsetValue,
    decode_key,
    encode_key,
    encode_value,
)
from storage.kafka.state.group_offsets import home_of
from storage.kafka.store import KafkaStore
from tests.contract.test_group_members import GROUP, MODERN
from tests.golden import stores
from tests.unit.kafka.log.batches import data_batch, header_of, marker
from tests.unit.kafka.workshop import ROOT, T0, Workshop

GOLDEN = stores.KAFKA / "offsets"
COMMITTED = json.loads((GOLDEN / "expect" / "committed.json").read_text())
OFFSETS0 = TopicPartition("__consumer_offsets", 0)
ONE_HOME = {"offsets.topic.num.partitions": "1"}


def offsets_of(store: LogStore) -> SupportsGroupOffsets:
    assert isinstance(store, SupportsGroupOffsets)
    return store


def reported(store: LogStore, group: str) -> list[dict[str, Any]]:
    """Return the offsets of a group in the form of committed.json."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": committed.offset,
            "leaderEpoch": None if committed.leader_epoch < 0 else committed.leader_epoch,
            "metadata": committed.metadata,
        }
        for partition, committed in offsets_of(store).committed(group).items()
    ]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_real_brokers(read_only: bool) -> None:
    """The store returns, for every group, the answer of the broker that wrote the store."""
    fs = OverlayFileSystem(RealFileSystem())
    with stores.open_golden(GOLDEN / "data", {}, fs=fs, read_only=read_only) as store:
        known = sorted(group for group, offsets in COMMITTED.items() if offsets)
        assert offsets_of(store).groups() == known
        assert {group: reported(store, group) for group in COMMITTED} == COMMITTED


def test_a_real_brokers_are_gone_on_from() -> None:
    """A commit to a real broker's store goes to the group's partition, and replaces only the offsets that it names."""
    fs = OverlayFileSystem(RealFileSystem())
    with stores.open_golden(GOLDEN / "data", {}, fs=fs) as store:
        at = TopicPartition("orders", 1)
        ends = [store.bounds(TopicPartition(OFFSETS0.topic, n)).end for n in range(4)]
        offsets_of(store).commit_offsets([GroupCommit("manual", {at: CommittedOffset(11)})])
        after = [store.bounds(TopicPartition(OFFSETS0.topic, n)).end for n in range(4)]
        assert [b - a for a, b in zip(ends, after, strict=True)] == [0, 0, 1, 0]
        expected = [dict(line) for line in COMMITTED["manual"]]
        expected[2]["offset"] = 11
        assert reported(store, "manual") == expected
    with stores.open_golden(GOLDEN / "data", {}, fs=fs, read_only=True) as store:
        assert reported(store, "manual") == expected
        assert {g: reported(store, g) for g in COMMITTED if g != "manual"} == {
            g: lines for g, lines in COMMITTED.items() if g != "manual"
        }


def test_home() -> None:
    """A group's home is the partition where the real broker stored its records; a hash of -2^31 counts as 0."""
    assert home_of("polygenelubricants", 50) == 0
    with stores.open_golden(GOLDEN / "data", {}, read_only=True) as store:
        for number in range(4):
            for record in store.scan(TopicPartition(OFFSETS0.topic, number)):
                key = decode_key(record.key or b"")
                assert key is None or home_of(key.group, 4) == number


def commit(store: LogStore, offset: int, group: str = "g", *, durable: bool = True) -> None:
    offsets = {T0: CommittedOffset(offset)}
    offsets_of(store).commit_offsets([GroupCommit(group, offsets)], durable=durable)


def committed(store: LogStore, group: str = "g") -> int | None:
    found = offsets_of(store).committed(group).get(T0)
    return None if found is None else found.offset


def test_the_topic_is_made_with_the_first_commit(shop: Workshop) -> None:
    """The first commit creates the topic as the broker does: 50 partitions, compacted, segments of 100 MiB.

    Reads, deletions and empty commits do not create it.
    """
    store = shop.open_with_topic({"retention.ms": "1", "segment.bytes": "2000000"})
    assert offsets_of(store).groups() == []
    offsets_of(store).commit_offsets([GroupCommit("g", {})])
    offsets_of(store).delete_offsets("g")
    assert list(store.topics()) == ["t"]
    commit(store, 0)
    info = store.topics()["__consumer_offsets"]
    assert (len(info.partitions), info.internal) == (50, True)
    assert info.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(100 << 20),
    }
    segments = store.stats().segments
    store.enforce_retention(1 << 60)
    assert store.stats().segments == segments
    assert committed(store) == 0


def test_settings_of_the_topic(shop: Workshop) -> None:
    """The broker's settings choose the size of a new topic; an existing topic keeps its own."""
    with shop.open_with_topic({**ONE_HOME, "offsets.topic.segment.bytes": "2000000"}) as store:
        commit(store, 0)
        info = store.topics()["__consumer_offsets"]
        assert list(info.partitions) == [0]
        assert info.configs["segment.bytes"] == "2000000"
    with shop.open() as store:
        commit(store, 0, "another")
        assert list(store.topics()["__consumer_offsets"].partitions) == [0]
        assert offsets_of(store).groups() == ["another", "g"]


def test_one_append_for_many_groups(shop: Workshop) -> None:
    """Commits of one call with the same home share a batch."""
    store = shop.open_with_topic(ONE_HOME)
    commits = [GroupCommit(f"g{n}", {T0: CommittedOffset(n)}) for n in range(100)]
    offsets_of(store).commit_offsets(commits)
    data = store.read_batches(OFFSETS0, 0).data
    assert header_of(data).size_bytes == len(data)
    assert store.bounds(OFFSETS0).end == 100


def put_offset(
    store: KafkaStore,
    offset: int | None,
    *,
    group: str = "g",
    transaction: int | None = None,
    sequence: int = 0,
) -> None:
    """Append an offset record as a real coordinator writes it, plain or in a producer's transaction."""
    value = None if offset is None else encode_value(OffsetValue(offset, -1, "", 1, None))
    data = data_batch(
        0,
        key=encode_key(OffsetKey(group, *T0)),
        value=value,
        producer=(-1, -1, -1) if transaction is None else (transaction, 0, sequence),
        transactional=transaction is not None,
    )
    store.append_batches(OFFSETS0, data)


def end(store: KafkaStore, transaction: int, *, commits: bool) -> None:
    data = marker(0, transaction, commit=commits)
    store.append_batches(OFFSETS0, data)


@pytest.fixture
def store(shop: Workshop) -> KafkaStore:
    """A store in which the group has committed 1, with one home for all groups."""
    store = shop.open_with_topic(ONE_HOME)
    commit(store, 1)
    return store


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction(store: KafkaStore, shop: Workshop, commits: bool) -> None:
    """Offsets of a transaction count from the COMMIT marker on, and never after ABORT."""
    put_offset(store, 5, transaction=7)
    assert committed(store) == 1
    end(store, 7, commits=commits)
    assert committed(store) == (5 if commits else 1)
    store.close()
    with shop.open() as again:
        assert committed(again) == (5 if commits else 1)


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_an_open_transaction_are_unstable(
    store: KafkaStore, shop: Workshop, commits: bool
) -> None:
    """They are named until the transaction ends, also after a restart; another group's are not."""
    offsets = offsets_of(store)
    assert not offsets.unstable_offsets("g")
    put_offset(store, 5, transaction=7)
    assert list(offsets.unstable_offsets("g")) == list(offsets.committed("g"))
    assert not offsets.unstable_offsets("other")
    store.close()
    again = shop.open()
    assert list(offsets_of(again).unstable_offsets("g")) == list(offsets_of(again).committed("g"))
    end(again, 7, commits=commits)
    assert not offsets_of(again).unstable_offsets("g")
    again.close()


def test_a_plain_commit_beside_an_open_transaction(store: KafkaStore, shop: Workshop) -> None:
    """A plain commit counts at once, although the last stable offset does not move; it overrides earlier records."""
    put_offset(store, 5, transaction=7)
    put_offset(store, 6, group="other", transaction=7, sequence=1)
    commit(store, 3)
    assert store.bounds(OFFSETS0).stable < store.bounds(OFFSETS0).end
    assert committed(store) == 3
    end(store, 7, commits=True)
    assert committed(store) == 3
    assert committed(store, "other") == 6
    store.close()
    with shop.open() as again:
        assert committed(again) == 3


def test_transactions_that_end_the_other_way_round(store: KafkaStore) -> None:
    """The order of the records counts, not the order of the markers."""
    put_offset(store, 5, transaction=7)
    put_offset(store, 6, transaction=8)
    end(store, 8, commits=True)
    end(store, 7, commits=True)
    assert committed(store) == 6


def test_a_tombstone_in_a_transaction(store: KafkaStore) -> None:
    put_offset(store, None, transaction=7)
    assert committed(store) == 1
    end(store, 7, commits=True)
    assert committed(store) is None


def test_a_tombstone_beside_a_transaction(store: KafkaStore) -> None:
    """A deletion also removes the offset that an open transaction holds for the same key."""
    put_offset(store, 5, transaction=7)
    offsets_of(store).delete_offsets("g")
    end(store, 7, commits=True)
    assert committed(store) is None


def test_what_cannot_be_understood_stays_and_does_not_count(store: KafkaStore) -> None:
    """Records of other types and undecodable records are skipped."""
    for key, value in (
        (b"\0\2\0\1g", b"\0\3"),  # a group's metadata
        (b"\0\x63whatever", b"x"),
        (encode_key(OffsetKey("g", *T0)), b"\0\x63" + bytes(40)),
        (encode_key(OffsetKey("g", *T0)), b"\0\4"),
        (b"\0\1\0", b"\0\4"),
        (b"", b""),
        (None, b"x"),
    ):
        store.append_batches(OFFSETS0, data_batch(0, key=key, value=value))
    assert committed(store) == 1
    assert offsets_of(store).groups() == ["g"]
    assert store.bounds(OFFSETS0).end == 8
    commit(store, 2)
    assert committed(store) == 2


def test_damage_is_passed_over(shop: Workshop) -> None:
    """A read-only store with a damaged log serves the offsets that are left."""
    store = shop.open_with_topic(ONE_HOME)
    positions = []
    for offset, group in enumerate("abc"):
        positions.append(shop.fs.size(shop.path(0, of=OFFSETS0)) if offset else 0)
        commit(store, offset, group)
    store.close()
    path = shop.path(0, of=OFFSETS0)
    data = bytearray(shop.fs.read_bytes(path))
    data[positions[1] + 70] ^= 1
    shop.put(path, bytes(data))
    shop.fs.remove(ROOT / ".kafka_cleanshutdown")
    with shop.open(read_only=True) as view:
        assert [finding.severity for finding in view.recovery.findings] != []
        assert offsets_of(view).groups() == ["a", "c"]


def test_an_offset_of_an_earlier_topic_does_not_count(shop: Workshop) -> None:
    """If the deletion of the offset was not written, the topic id shows that the offset belongs to a deleted topic."""
    store = shop.open_with_topic(ONE_HOME)
    commit(store, 3)
    record = store.read(OFFSETS0, 0).records[0]
    store.delete_topic("t")
    assert offsets_of(store).groups() == []
    store.create_topic("t", 1)
    store.append_batches(OFFSETS0, data_batch(0, key=record.key, value=record.value))
    assert committed(store) is None
    assert offsets_of(store).groups() == []
    put_offset(store, 4)
    assert committed(store) == 4, "one that tells no id"


def test_the_topic_deleted(store: KafkaStore) -> None:
    """Without `__consumer_offsets` no offset is committed; the next commit creates the topic again."""
    store.delete_topic("__consumer_offsets")
    assert committed(store) is None
    commit(store, 7, "h")
    assert offsets_of(store).groups() == ["h"]


def test_records_are_durable_before_the_offset_that_counts_them(shop: Workshop) -> None:
    """A commit first syncs the records below its offset that were published without a sync, and no others."""
    store = shop.open_with_topic(ONE_HOME)
    store.append(T0, [Record(None, b"x")])
    partition = store.partition(T0)
    commit(store, 0)
    assert partition.flushed_offset == 0
    commit(store, 1, durable=False)
    assert partition.flushed_offset == 1
    assert store.partition(OFFSETS0).flushed_offset == 1
    commit(store, 1)
    assert store.partition(OFFSETS0).flushed_offset == 3


def test_a_broker_can_load_the_members_of_groups(shop: Workshop) -> None:
    """A broker applies the records one by one, and stops at one that does not fit the records before it.

    From GroupMetadataManager.replay: assignments have a member; the tombstones of a member's assignments come before
    its own, the targets' before that of their epoch, and that of the group is the last.
    """
    store = shop.open_with_topic(ONE_HOME)
    assert isinstance(store, SupportsGroupMembers)
    one_left = MODERN._replace(epoch=6, members=MODERN.members[1:])
    empty = MODERN._replace(epoch=7, members=[], patterns={})
    for group in (MODERN, one_left, empty, MODERN, GROUP, MODERN):
        store.write_groups([group])
        assert store.stored_groups() == [group]
    store.forget_groups(["g"])
    owners: dict[int, set[bytes]] = {MEMBER: set(), TARGET: set(), CURRENT: set()}
    has_epoch = False
    for record in store.scan(OFFSETS0):
        assert record.key is not None
        kind, owner = int.from_bytes(record.key[:2], "big"), record.key[2:]
        if record.value is not None:
            assert kind not in (TARGET, CURRENT) or owner in owners[MEMBER]
            owners.get(kind, set()).add(owner)
        elif kind in owners:
            assert kind != MEMBER or owner not in owners[TARGET] | owners[CURRENT]
            owners[kind].remove(owner)
        elif kind == TARGET_EPOCH:
            assert not owners[TARGET]
        elif kind == EPOCH:
            assert not owners[MEMBER]
            assert not has_epoch
        if kind == TARGET_EPOCH:
            has_epoch = record.value is not None
    assert not any(owners.values())
