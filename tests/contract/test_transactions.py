"""Transactions of each backend that has them: stable offsets, markers, offsets of groups, and the stored states."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from storage.contract import LogStore, SupportsGroupOffsets
from storage.errors import (
    FencedCoordinator,
    FencedProducer,
    InvalidArgument,
    InvalidBatch,
    NotOffered,
    StoreClosed,
    StoreReadOnly,
    UnknownPartition,
    UnknownTopic,
)
from storage.files import OverlayFileSystem
from storage.model import (
    CommittedOffset,
    GroupCommit,
    Isolation,
    ProducerEpoch,
    ProducerSequence,
    TopicPartition,
)
from storage.transactions import (
    PartitionMarker,
    SupportsTransactions,
    TransactionMarker,
    TransactionState,
    TransactionStatus,
)
from tests.contract.batches import BatchStore, batch
from tests.contract.harness import START_MS, StoreFactory, texts
from tests.unit.kafka.log.batches import data_batch

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
P = 1 << 50
STATE = TransactionState(
    "tx", P, 0, 60_000, TransactionStatus.ONGOING, START_MS, frozenset({A0, A1}), START_MS, P, -1, 2
)


class TransactionStore(SupportsTransactions, BatchStore):
    """A store with transactions, for the type checker."""


@pytest.fixture
def txn(store: LogStore) -> TransactionStore:
    """The `store` with the topic a of two partitions, if it has transactions."""
    return with_topic(store)


def with_topic(store: LogStore) -> TransactionStore:
    if not isinstance(store, SupportsTransactions):
        pytest.skip(f"{store.capabilities.backend} has no transactions")
    store.create_topic("a", 2)
    return store  # type: ignore[return-value]


def put(
    store: LogStore, at: TopicPartition, *values: str, producer: int = P, epoch: int = 0
) -> None:
    store.append(at, texts(*values), producer=ProducerSequence(producer, epoch, -1, True))


def end(store: TransactionStore, *at: TopicPartition, commit: bool, producer: int = P) -> None:
    marker = TransactionMarker("tx", producer, 1, commit)
    store.end_transactions({partition: [marker] for partition in at})


def committed(store: LogStore, at: TopicPartition) -> list[str]:
    records = store.scan(at, isolation=Isolation.READ_COMMITTED)
    return [(record.value or b"").decode() for record in records]


def begun(store: TransactionStore) -> None:
    store.write_transactions([STATE])


@pytest.mark.parametrize("commit", [True, False])
def test_all_or_nothing_over_partitions(txn: TransactionStore, commit: bool) -> None:
    begun(txn)
    put(txn, A0, "x", "y")
    txn.append(A0, texts("plain"))
    put(txn, A1, "z")
    assert txn.bounds(A0) == (0, 0, 3)
    assert (committed(txn, A0), committed(txn, A1)) == ([], [])
    end(txn, A0, A1, commit=commit)
    assert txn.bounds(A0) == (0, 4, 4)
    expected = (["x", "y", "plain"], ["z"]) if commit else (["plain"], [])
    assert (committed(txn, A0), committed(txn, A1)) == expected
    end(txn, A0, A1, commit=not commit)
    assert (committed(txn, A0), committed(txn, A1)) == expected, "a marker after the end"


def test_the_partition_numbers_the_batches(txn: TransactionStore) -> None:
    begun(txn)
    put(txn, A0, "a", "b")
    put(txn, A0, "c")
    given = ProducerSequence(P, 0, 3, transactional=True)
    assert not txn.append(A0, texts("d"), producer=given).duplicate
    assert txn.append(A0, texts("d"), producer=given).duplicate
    with pytest.raises(InvalidArgument, match="open transaction"):
        txn.append(A0, texts("plain"), producer=ProducerSequence(P, 0, 4))
    end(txn, A0, commit=True)
    with pytest.raises(FencedProducer):
        put(txn, A0, "late")
    put(txn, A0, "next", epoch=1)
    assert committed(txn, A0) == ["a", "b", "c", "d"]


def test_markers_of_several_producers(txn: TransactionStore) -> None:
    begun(txn)
    for producer in (P, P + 1, P + 2):
        put(txn, A0, f"{producer - P}", producer=producer)
    markers = [TransactionMarker("tx", P + n, 1, n != 1) for n in (2, 1, 0)]
    txn.end_transactions({A0: markers, TopicPartition("gone", 0): markers}, durable=False)
    assert committed(txn, A0) == ["0", "2"]
    assert txn.bounds(A0) == (0, 6, 6)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_a_coordinator(txn: TransactionStore, commit: bool) -> None:
    """A transaction that hangs: no state was ever written."""
    put(txn, A0, "x", epoch=3)
    txn.append(A0, texts("plain"))
    with pytest.raises(FencedProducer) as refused:
        txn.mark_end(A0, PartitionMarker(P, 2, commit, 7))
    assert refused.value.facts() == {"producer_id": P, "epoch": 2, "current_epoch": 3}
    assert txn.bounds(A0) == (0, 0, 2)
    txn.mark_end(A0, PartitionMarker(P, 3, commit, 7))
    assert txn.bounds(A0) == (0, 3, 3)
    assert committed(txn, A0) == (["x", "plain"] if commit else ["plain"])
    assert [
        (one.epoch, one.coordinator_epoch, one.open_from) for one in txn.active_producers(A0)
    ] == [(3, 7, -1)]
    with pytest.raises(FencedCoordinator) as late:
        txn.mark_end(A0, PartitionMarker(P, 3, commit, 6))
    assert late.value.facts()["current_epoch"] == 7
    put(txn, A0, "y", epoch=4)
    txn.mark_end(A0, PartitionMarker(P, 4, True, 7))
    assert committed(txn, A0)[-1] == "y"


def test_an_end_that_raises_the_epoch(txn: TransactionStore) -> None:
    """With version 2 of transactions a marker has a newer epoch than the transaction; its repeat has the same."""
    put(txn, A0, "x")
    with pytest.raises(FencedProducer):
        txn.mark_end(A0, PartitionMarker(P, 0, True, 0, 2))
    txn.mark_end(A0, PartitionMarker(P, 1, True, 0, 2))
    txn.mark_end(A0, PartitionMarker(P, 1, True, 0, 2))
    assert committed(txn, A0) == ["x"]
    with pytest.raises(FencedProducer):
        put(txn, A0, "late")


def test_ends_that_cannot_be(txn: TransactionStore) -> None:
    for at, marker, error in (
        (A0, PartitionMarker(-1, 0, True, 0), InvalidArgument),
        (A0, PartitionMarker(P, -1, True, 0), InvalidArgument),
        (TopicPartition("a", 9), PartitionMarker(P, 0, True, 0), UnknownPartition),
        (TopicPartition("gone", 0), PartitionMarker(P, 0, True, 0), UnknownTopic),
    ):
        with pytest.raises(error):
            txn.mark_end(at, marker)
    txn.mark_end(
        A0, PartitionMarker(P, 0, True, 0)
    )  # of a producer that the partition does not know
    assert txn.bounds(A0) == (0, 1, 1)


def test_offsets_count_with_the_commit(txn: TransactionStore) -> None:
    assert isinstance(txn, SupportsGroupOffsets)
    begun(txn)
    put(txn, A0, "x")
    home = txn.offsets_partition("g")
    assert home == txn.offsets_partition("g")
    at: Mapping[TopicPartition, CommittedOffset] = {A0: CommittedOffset(1, -1, "m", START_MS)}
    commit = GroupCommit("g", at, ProducerEpoch(P, 0))
    txn.commit_offsets([commit], durable=False)
    assert txn.committed("g") == {}
    end(txn, A0, home, commit=False)
    assert txn.committed("g") == {}
    commit = GroupCommit("g", at, ProducerEpoch(P, 1))
    txn.commit_offsets([commit, GroupCommit("h", at)])
    assert (txn.committed("g"), txn.committed("h")) == ({}, at)
    txn.end_transactions({home: [TransactionMarker("tx", P, 2, True)]})
    assert txn.committed("g") == at


def test_offsets_of_a_topic_deleted_meanwhile_never_count(txn: TransactionStore) -> None:
    """Not even for another topic with its name. Offsets of other topics count."""
    assert isinstance(txn, SupportsGroupOffsets)
    txn.create_topic("b", 1)
    begun(txn)
    home = txn.offsets_partition("g")
    other = TopicPartition("b", 0)
    put(txn, A0, "x")
    at = {A0: CommittedOffset(1, -1, "", START_MS), other: CommittedOffset(0, -1, "", START_MS)}
    txn.commit_offsets([GroupCommit("g", at, ProducerEpoch(P, 0))])
    txn.delete_topic("a")
    txn.create_topic("a", 2)
    assert set(txn.unstable_offsets("g")) == {other}
    txn.end_transactions({home: [TransactionMarker("tx", P, 1, True)]})
    assert txn.committed("g") == {other: at[other]}


@pytest.mark.parametrize("partitions", [None, [A0]])
def test_offsets_that_are_deleted_meanwhile_do_not_come_back(
    txn: TransactionStore, partitions: list[TopicPartition] | None
) -> None:
    assert isinstance(txn, SupportsGroupOffsets)
    begun(txn)
    home = txn.offsets_partition("g")
    put(txn, A0, "x")
    at = {A0: CommittedOffset(1, -1, "", START_MS), A1: CommittedOffset(0, -1, "", START_MS)}
    txn.commit_offsets([GroupCommit("g", at, ProducerEpoch(P, 0))])
    txn.delete_offsets("g", partitions)
    txn.end_transactions({home: [TransactionMarker("tx", P, 1, True)]})
    assert txn.committed("g") == ({} if partitions is None else {A1: at[A1]})


def test_states_are_kept(store_factory: StoreFactory) -> None:
    store = with_topic(store_factory.open())
    assert store.transactions() == []
    states = [STATE._replace(transactional_id=f"tx-{n}", producer_id=P + n) for n in range(40)]
    store.write_transactions(states)
    newer = states[7]._replace(
        status=TransactionStatus.PREPARE_COMMIT, epoch=1, next_producer_id=5, update_ms=9
    )
    empty = states[8]._replace(status=TransactionStatus.EMPTY, partitions=frozenset(), start_ms=-1)
    dead = states[9]._replace(status=TransactionStatus.DEAD)
    store.write_transactions([newer, empty, dead], durable=False)
    expected = {state.transactional_id: state for state in (*states, newer, empty)}
    del expected["tx-9"]
    assert {state.transactional_id: state for state in store.transactions()} == expected
    again = store_factory.reopen(store)
    assert isinstance(again, SupportsTransactions)
    assert {state.transactional_id: state for state in again.transactions()} == expected


def test_a_client_s_batches_belong_to_the_transaction(txn: TransactionStore) -> None:
    begun(txn)
    owner = ProducerEpoch(P, 0)
    good = data_batch(0, value=b"v", producer=(P, 0, 0), transactional=True)
    with pytest.raises(NotOffered):
        txn.check_client_batches("a", good)
    for wrong, field in (
        (batch("v"), "attributes"),
        (data_batch(0, producer=(P + 1, 0, 0), transactional=True), "producer_id"),
        (data_batch(0, producer=(P, 1, 0), transactional=True), "producer_epoch"),
    ):
        with pytest.raises(InvalidBatch) as refusal:
            txn.check_client_batches("a", wrong, owner)
        assert refusal.value.facts()["field"] == field
        with pytest.raises(InvalidBatch):
            txn.append_batches(A0, wrong, client=True, transaction=owner)
    data = txn.check_client_batches("a", good, owner)
    txn.append_batches(A0, data, client=True, checked=True, transaction=owner)
    assert txn.bounds(A0) == (0, 0, 1)
    end(txn, A0, commit=True)
    assert committed(txn, A0) == ["v"]


def test_the_transaction_of_a_batch(txn: TransactionStore) -> None:
    good = data_batch(0, value=b"v", producer=(P, 3, 0), transactional=True)
    assert txn.transaction_of(good) == ProducerEpoch(P, 3)
    assert txn.transaction_of(data_batch(0, producer=(P, 3, 0))) is None
    assert txn.transaction_of(good[:60]) is None
    assert txn.transaction_of(b"") is None


def test_active_producers(txn: TransactionStore) -> None:
    begun(txn)
    assert txn.active_producers(A0) == []
    put(txn, A0, "x", "y", producer=P + 1)
    put(txn, A0, "z")
    open_one, other = txn.active_producers(A0)
    assert (open_one.producer_id, open_one.epoch, open_one.last_sequence) == (P, 0, 0)
    assert (open_one.coordinator_epoch, open_one.open_from) == (-1, 2)
    assert (other.producer_id, other.last_sequence, other.open_from) == (P + 1, 1, 0)
    end(txn, A0, commit=True)
    ended, _ = txn.active_producers(A0)
    assert (ended.epoch, ended.last_sequence, ended.open_from) == (1, -1, -1)
    assert ended.coordinator_epoch >= 0
    assert ended.timestamp_ms == START_MS
    with pytest.raises(UnknownTopic):
        txn.active_producers(TopicPartition("none", 0))
    with pytest.raises(UnknownPartition):
        txn.active_producers(TopicPartition("a", 9))
    txn.close()
    with pytest.raises(StoreClosed):
        txn.active_producers(A0)


def test_a_store_that_cannot_be_written(store_factory: StoreFactory) -> None:
    store = with_topic(store_factory.open())
    begun(store)
    store.close()
    with pytest.raises(StoreClosed):
        store.write_transactions([STATE])
    with pytest.raises(StoreClosed):
        store.transactions()
    reader = store_factory.open(read_only=True)
    assert isinstance(reader, SupportsTransactions)
    assert reader.transactions() == [STATE]
    for call in (
        lambda: reader.write_transactions([STATE]),
        lambda: reader.end_transactions({}),
        lambda: reader.offsets_partition("g"),
    ):
        with pytest.raises(StoreReadOnly):
            call()


def test_a_kill_keeps_an_open_transaction(store_factory: StoreFactory) -> None:
    store = with_topic(store_factory.open())
    assert isinstance(store_factory.fs, OverlayFileSystem)
    begun(store)
    put(store, A0, "x")
    again = store_factory.after_kill()
    assert isinstance(again, SupportsTransactions)
    assert again.transactions() == [STATE]
    assert again.bounds(A0) == (0, 0, 1)
    again.end_transactions({A0: [TransactionMarker("tx", P, 1, True)]})
    assert committed(again, A0) == ["x"]
