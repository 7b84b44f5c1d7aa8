"""Idempotent producers: repeats are recognised, gaps and old epochs are rejected (Kafka's rules)."""

from __future__ import annotations

import pytest

from storage.contract import LogStore
from storage.errors import FencedProducer, OutOfOrderSequence
from storage.model import AppendResult, ProducerSequence, TopicPartition
from tests.contract.harness import StoreFactory, read_all, texts, values

LAST_SEQUENCE = (1 << 31) - 1


def send(
    store: LogStore, partition: TopicPartition, sequence: int, *, count: int = 1, epoch: int = 0
) -> AppendResult:
    """Append `count` records as producer 7."""
    records = texts(*(f"{epoch}.{sequence}.{i}" for i in range(count)))
    return store.append(partition, records, producer=ProducerSequence(7, epoch, sequence))


def refusal(
    store: LogStore, partition: TopicPartition, sequence: int, *, count: int = 1, epoch: int = 0
) -> tuple[object, object, object]:
    """Append and return the facts of the OutOfOrderSequence that must be raised; the append must store nothing."""
    end = store.bounds(partition).end
    with pytest.raises(OutOfOrderSequence) as refused:
        send(store, partition, sequence, count=count, epoch=epoch)
    assert refused.value.code == "out-of-order-sequence"
    assert store.bounds(partition).end == end
    facts = refused.value.facts()
    return facts["producer_id"], facts["sequence"], facts["expected"]


def test_in_order(store: LogStore, partition: TopicPartition) -> None:
    """Each append continues after the last sequence of the previous append."""
    assert [
        send(store, partition, s, count=n).base_offset for s, n in ((0, 3), (3, 1), (4, 2))
    ] == [
        0,
        3,
        4,
    ]
    assert not send(store, partition, 6).duplicate


def test_duplicate(store: LogStore, partition: TopicPartition) -> None:
    """A repeat stores nothing and returns the first offsets, even after appends of other producers."""
    first = send(store, partition, 0, count=3)
    store.append(partition, texts("another's"))
    again = send(store, partition, 0, count=3)
    assert again.duplicate
    assert again[:2] == first[:2] == (0, 2)
    assert list(again.locators) == list(first.locators)
    assert store.bounds(partition).end == 4
    assert not send(store, partition, 3).duplicate


def test_five_are_remembered(store: LogStore, partition: TopicPartition) -> None:
    """Any of the last five appends is recognised; the sixth last is out of order."""
    results = [send(store, partition, sequence) for sequence in range(6)]
    for sequence in (5, 1, 3, 2, 4):
        again = send(store, partition, sequence)
        assert (again.duplicate, again.base_offset) == (True, results[sequence].base_offset)
    assert refusal(store, partition, 0) == (7, 0, 6)


def test_repeat_with_other_length(store: LogStore, partition: TopicPartition) -> None:
    """An append with the first sequence of an earlier append but another length is out of order, not a repeat."""
    send(store, partition, 0, count=3)
    assert refusal(store, partition, 0, count=2) == (7, 0, 3)
    assert refusal(store, partition, 0, count=4) == (7, 0, 3)
    assert refusal(store, partition, 1, count=2) == (7, 1, 3)


def test_gap(store: LogStore, partition: TopicPartition) -> None:
    """A gap is rejected with the expected sequence; the expected sequence is then accepted."""
    send(store, partition, 0, count=2)
    assert refusal(store, partition, 3) == (7, 3, 2)
    assert send(store, partition, 2).base_offset == 2


@pytest.mark.parametrize("sequence", [0, 1, 4711, LAST_SEQUENCE])
def test_unknown_producer_starts_anywhere(
    store: LogStore, partition: TopicPartition, sequence: int
) -> None:
    """An unknown producer may start at any sequence, because its earlier records may have been deleted."""
    assert send(store, partition, sequence, epoch=2).base_offset == 0
    assert send(store, partition, (sequence + 1) % (1 << 31), epoch=2).base_offset == 1


def test_new_epoch_starts_at_zero(store: LogStore, partition: TopicPartition) -> None:
    """A new epoch begins at sequence 0; until then the old epoch continues."""
    send(store, partition, 0, count=3)
    assert refusal(store, partition, 3, epoch=1) == (7, 3, 0)
    assert send(store, partition, 3).base_offset == 3
    assert send(store, partition, 0, epoch=1).base_offset == 4
    assert send(store, partition, 1, epoch=1).base_offset == 5


def test_old_epoch_is_fenced(store: LogStore, partition: TopicPartition) -> None:
    """After a new epoch the old epoch is rejected, even for a repeat of stored records."""
    send(store, partition, 0)
    send(store, partition, 0, epoch=5)
    for sequence in (0, 1):
        with pytest.raises(FencedProducer) as refused:
            send(store, partition, sequence, epoch=4)
        assert refused.value.code == "fenced-producer"
        assert refused.value.facts() == {"producer_id": 7, "epoch": 4, "current_epoch": 5}
    assert store.bounds(partition).end == 2


def test_epochs_do_not_share_duplicates(store: LogStore, partition: TopicPartition) -> None:
    """The same sequence in a new epoch is a new append."""
    send(store, partition, 0)
    again = send(store, partition, 0, epoch=1)
    assert (again.base_offset, again.duplicate) == (1, False)


def test_sequence_wraps(store: LogStore, partition: TopicPartition) -> None:
    """After 2^31 - 1 comes 0, both between two appends and inside an append."""
    send(store, partition, LAST_SEQUENCE - 1)
    assert refusal(store, partition, 0) == (7, 0, LAST_SEQUENCE)
    send(store, partition, LAST_SEQUENCE)
    assert send(store, partition, 0).base_offset == 2
    other = TopicPartition("events", 1)
    send(store, other, LAST_SEQUENCE - 1, count=4)
    assert refusal(store, other, 1) == (7, 1, 2)
    assert send(store, other, 2).base_offset == 4
    assert send(store, other, LAST_SEQUENCE - 1, count=4).duplicate


def test_partitions_and_producers_are_apart(store: LogStore, partition: TopicPartition) -> None:
    """Sequences are separate for each partition and each producer."""
    send(store, partition, 0, count=5)
    assert send(store, TopicPartition("events", 1), 0).base_offset == 0
    other = store.append(partition, texts("x"), producer=ProducerSequence(8, 0, 0))
    assert (other.base_offset, other.duplicate) == (5, False)
    assert send(store, partition, 5).base_offset == 6


def test_unsequenced_appends_do_not_count(store: LogStore, partition: TopicPartition) -> None:
    """Appends without a producer do not change sequences."""
    send(store, partition, 0)
    store.append(partition, texts("x", "y"))
    assert send(store, partition, 1).base_offset == 3


def test_new_producer_ids(store: LogStore, partition: TopicPartition) -> None:
    """A new id is larger than every id returned before or seen in an append."""
    ids = [store.new_producer_id() for _ in range(3)]
    assert ids == sorted(set(ids))
    assert ids[0] >= 0
    store.append(partition, texts("x"), producer=ProducerSequence(4711, 0, 0))
    assert store.new_producer_id() > 4711


def test_producer_ids_outlive_their_topic(store: LogStore, partition: TopicPartition) -> None:
    """An id seen in an append is not returned again, even after its topic is deleted."""
    store.append(partition, texts("x"), producer=ProducerSequence(4711, 0, 0))
    store.delete_topic("events")
    assert store.new_producer_id() > 4711


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_kept_over_a_restart(durable_factory: StoreFactory, stop: str) -> None:
    """After a clean or unclean stop the last append is recognised, and gaps and old epochs are rejected."""
    store = durable_factory.open()
    store.create_topic("events", 2)
    partition = TopicPartition("events", 0)
    send(store, partition, 0, epoch=1)
    send(store, partition, 0, epoch=2)
    send(store, partition, 1, count=3, epoch=2)
    store.flush()
    store = durable_factory.reopen(store) if stop == "close" else durable_factory.after_kill()
    again = send(store, partition, 1, count=3, epoch=2)
    assert (again[:2], again.duplicate) == ((2, 4), True)
    assert refusal(store, partition, 5, epoch=2) == (7, 5, 4)
    with pytest.raises(FencedProducer):
        send(store, partition, 1, epoch=1)
    assert send(store, partition, 4, epoch=2).base_offset == 5
    assert values(read_all(store, partition))[-2:] == [b"2.1.2", b"2.4.0"]


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_producer_ids_over_a_restart(durable_factory: StoreFactory, stop: str) -> None:
    """After a stop no id is returned twice: neither an id returned before a kill, nor an id seen in a deleted topic."""
    store = durable_factory.open()
    store.create_topic("events", 1)
    partition = TopicPartition("events", 0)
    store.append(partition, texts("x"), producer=ProducerSequence(4711, 0, 0))
    store.flush()
    newest = max(store.new_producer_id() for _ in range(3))
    store.append(partition, texts("x"), producer=ProducerSequence(newest + 5000, 0, 0))
    store.delete_topic("events")
    store = durable_factory.reopen(store) if stop == "close" else durable_factory.after_kill()
    assert store.new_producer_id() > newest + 5000
