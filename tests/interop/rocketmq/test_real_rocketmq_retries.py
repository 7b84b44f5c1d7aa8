"""Retries of a group and a real broker: each goes on with what the other's consumers handed back, up to the dead
letters.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage import CommittedOffset, GroupCommit, Record, TopicPartition, open_store, wall_clock_ms
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.store import RocketMQStore
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.test_real_rocketmq_broker import Broker, config

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)
GROUP = "shop"
RETRY = TopicPartition(f"%RETRY%{GROUP}", 0)
DEAD = TopicPartition(f"%DLQ%{GROUP}", 0)
MINUTE_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    work = tmp_path / "broker"
    work.mkdir()
    found = Broker(work)
    yield found
    peers.kill_broker(work)


@contextmanager
def opened(path: Path) -> Iterator[RocketMQStore]:
    with open_store("rocketmq", path, written.options()) as store:
        assert isinstance(store, RocketMQStore)
        yield store


def ids(store: RocketMQStore, of: TopicPartition) -> Mapping[bytes, str]:
    """Return the newest id of each message of a queue, by value."""
    records = store.read(of, 0).records
    return {record.value or b"": store.record_id(of, record.locator) for record in records}


def body(row: Mapping[str, Any]) -> bytes:
    return base64.b64decode(row["body"])


def test_either_goes_on_with_the_retries_of_the_other(broker: Broker) -> None:
    origins = we_begin(broker)
    the_broker_goes_on(broker, origins)
    we_end(broker, origins)
    the_broker_has_the_dead_letters(broker)


def we_begin(broker: Broker) -> Mapping[bytes, str]:
    """Hand two messages back: one is delivered here, the other waits for the broker."""
    with opened(broker.store) as store:
        store.create_topic("orders", 1)
        store.append(ORDERS, [Record(None, b"ours %d" % n, tag="ours") for n in range(3)])
        origins = ids(store, ORDERS)
        store.commit_offsets([GroupCommit(GROUP, {ORDERS: CommittedOffset(3)})])
        sent = store.send_back(GROUP, origins[b"ours 0"], level=1)
        assert sent.deliver_at_ms is not None
        assert store.delays.deliver(sent.deliver_at_ms).messages == 1
        assert store.send_back(GROUP, origins[b"ours 1"]).delay_level == 3
    return origins


def the_broker_goes_on(broker: Broker, origins: Mapping[bytes, str]) -> None:
    """Let the real consumer get both under their topic, and hand one of them back again."""
    broker.start()
    answer = peers.talk(broker.port, ("consume", "orders", GROUP, "2", "ours 1"))
    assert answer.odd == []
    rows = {body(row): row for row in answer.consumed}
    assert sorted(rows) == [b"ours 0", b"ours 1"]
    for value, row in rows.items():
        assert (row["topic"], row["storedIn"]) == ("orders", RETRY.topic)
        assert (row["reconsumeTimes"], row["tags"]) == (1, "ours")
        assert row["properties"]["ORIGIN_MESSAGE_ID"] == origins[value]
    peers.stop_broker(broker.work)
    offsets = config(broker.store, "consumerOffset.json")["offsetTable"]
    assert offsets[f"{RETRY.topic}@{GROUP}"] == {0: 2}
    assert offsets[f"orders@{GROUP}"] == {0: 3}


def we_end(broker: Broker, origins: Mapping[bytes, str]) -> None:
    """Deliver what the real consumer handed back, and hand it back for the last time."""
    before = config(broker.store, "subscriptionGroup.json")
    assert GROUP in before["subscriptionGroupTable"]
    with opened(broker.store) as store:
        assert not store.recovery.losses
        (waiting,) = store.delays.waiting(10).records
        assert (waiting.topic, waiting.partition, waiting.level) == (*RETRY, 4)
        assert store.delays.deliver(wall_clock_ms() + MINUTE_MS).messages == 1
        last = ids(store, RETRY)[b"ours 1"]
        message = store.message_by_id(last).message
        assert message.reconsume_times == 2
        properties = decode_properties(message.properties)
        assert properties["RETRY_TOPIC"] == "orders"
        assert properties["ORIGIN_MESSAGE_ID"] == origins[b"ours 1"]
        store.change_retries(GROUP, 2)
        dead = store.send_back(GROUP, last)
        assert (dead.partition, dead.times, dead.is_dead) == (DEAD, 3, True)
    after = config(broker.store, "subscriptionGroup.json")
    changed = {**before["subscriptionGroupTable"][GROUP], "retryMaxTimes": 2}
    table = {**before["subscriptionGroupTable"], GROUP: changed}
    assert after["subscriptionGroupTable"] == table
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert config(broker.store, "subscriptionGroup.json.bak") == before


def the_broker_has_the_dead_letters(broker: Broker) -> None:
    """Let the real client read the dead letter, and its own consumer obey the group's new settings."""
    broker.start()
    answer = peers.talk(
        broker.port,
        ("pull", DEAD.topic),
        ("send", "orders", "1"),
        ("consume", "orders", GROUP, "2", "talk"),
    )
    (row,) = answer.messages[DEAD.topic, 0]
    assert (body(row), row["tags"]) == (b"ours 1", "ours")
    times = {body(one): one["reconsumeTimes"] for one in answer.consumed}
    assert times == {b"talk 0": 0, b"ours 1": 2}  # the second was delivered here
    peers.stop_broker(broker.work)
    groups = config(broker.store, "subscriptionGroup.json")["subscriptionGroupTable"]
    assert groups[GROUP]["retryMaxTimes"] == 2
    with opened(broker.store) as store:
        assert not store.recovery.losses
        waiting = store.delays.waiting(10).records
        # None waits if the broker took ten seconds to stop: then it has delivered the message itself.
        assert {(one.topic, one.level) for one in waiting} <= {(RETRY.topic, 3)}
        store.delays.deliver(wall_clock_ms() + MINUTE_MS)
        assert store.message_by_id(ids(store, RETRY)[b"talk 0"]).message.reconsume_times == 1
