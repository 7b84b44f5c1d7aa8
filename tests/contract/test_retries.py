"""Messages handed back to their group, of each backend that keeps retries: new records, durability, refusals."""

from __future__ import annotations

import pytest

from storage.contract import LogStore, SupportsDelay
from storage.errors import InvalidArgument, RecordNotFound, StoreClosed, StoreReadOnly
from storage.model import TopicPartition
from storage.retries import MAX_RETRIES, TO_DEAD_LETTERS, RetrySettings, SupportsRetry
from tests.contract.harness import StoreFactory, texts

T0 = TopicPartition("t", 0)


class RetryStore(SupportsRetry, SupportsDelay, LogStore):
    """A store with retries, for the type checker."""


def with_messages(store: LogStore) -> RetryStore:
    if not isinstance(store, SupportsRetry):
        pytest.skip(f"{store.capabilities.backend} has no retries: the server uses topics")
    store.create_topic("t", 1)
    store.append(T0, texts("first", "second"))
    return store  # type: ignore[return-value]


@pytest.fixture
def retry(store: LogStore) -> RetryStore:
    """The `store` with two messages in the topic t, if it keeps retries."""
    return with_messages(store)


def id_of(store: RetryStore, partition: TopicPartition, offset: int = 0) -> str:
    (record, *_) = store.read(partition, offset).records
    return store.record_id(partition, record.locator)


def values(store: RetryStore, topic: str) -> list[bytes | None]:
    return [record.value for record in store.read(TopicPartition(topic, 0), 0).records]


def test_a_retry_is_delivered_at_its_time(retry: RetryStore, store_factory: StoreFactory) -> None:
    sent = retry.send_back("g", id_of(retry, T0, 1))
    assert sent.partition == TopicPartition(retry.retry_topic("g"), 0)
    assert (sent.times, sent.is_dead) == (1, False)
    assert sent.deliver_at_ms is not None
    assert sent.stored_in != sent.partition
    assert values(retry, sent.partition.topic) == []
    store_factory.clock.now_ms = sent.deliver_at_ms
    assert retry.delays.deliver(sent.deliver_at_ms).partitions == (sent.partition,)
    (record,) = retry.read(sent.partition, 0).records
    assert (record.value, record.retries) == (b"second", 1)
    assert [record.retries for record in retry.read(T0, 0).records] == [0, 0]


def test_dead_letters(retry: RetryStore) -> None:
    dead = retry.send_back("g", id_of(retry, T0), level=TO_DEAD_LETTERS)
    assert dead.partition == dead.stored_in == TopicPartition(retry.dead_letter_topic("g"), 0)
    assert (dead.delay_level, dead.deliver_at_ms) == (None, None)
    assert retry.find_by_id(dead.record_id)[0] == dead.partition
    assert retry.send_back("g", id_of(retry, T0, 1), max_times=0).is_dead
    assert values(retry, dead.partition.topic) == [b"first", b"second"]
    assert retry.retry_topic("g") not in retry.topics()


def test_settings(retry: RetryStore) -> None:
    assert retry.retry_settings("g") == RetrySettings(MAX_RETRIES, 1, stored=False)
    assert retry.change_retries("g", 0) == RetrySettings(0, 1, stored=True)
    assert retry.retry_settings("h").stored is False
    assert retry.send_back("g", id_of(retry, T0)).is_dead


def test_after_a_kill_everything_is_there(durable_factory: StoreFactory) -> None:
    store = with_messages(durable_factory.open())
    store.change_retries("g", 3)
    sent = store.send_back("g", id_of(store, T0))
    dead = store.send_back("g", id_of(store, T0, 1), level=TO_DEAD_LETTERS)
    found: RetryStore = durable_factory.after_kill()  # type: ignore[assignment]
    assert found.retry_settings("g").max_times == 3
    assert values(found, dead.partition.topic) == [b"second"]
    assert sent.deliver_at_ms is not None
    assert found.delays.deliver(sent.deliver_at_ms).messages == 1
    assert values(found, sent.partition.topic) == [b"first"]


def test_refusals(retry: RetryStore) -> None:
    with pytest.raises(RecordNotFound):
        retry.send_back("g", "no id")
    for level in (-2, 1000):
        with pytest.raises(InvalidArgument, match="delay_level"):
            retry.send_back("g", id_of(retry, T0), level=level)
    with pytest.raises(InvalidArgument, match="group"):
        retry.send_back("no name", id_of(retry, T0))
    with pytest.raises(InvalidArgument, match="max_times"):
        retry.change_retries("g", -2)
    assert list(retry.topics()) == ["t"]


def test_closed_and_read_only(durable_factory: StoreFactory) -> None:
    store = with_messages(durable_factory.open())
    message_id = id_of(store, T0)
    store.close()
    with pytest.raises(StoreClosed):
        store.send_back("g", message_id)
    found: RetryStore = durable_factory.open(read_only=True)  # type: ignore[assignment]
    assert found.retry_settings("g") == RetrySettings()
    with pytest.raises(StoreReadOnly):
        found.send_back("g", message_id)
    with pytest.raises(StoreReadOnly):
        found.change_retries("g", 1)
