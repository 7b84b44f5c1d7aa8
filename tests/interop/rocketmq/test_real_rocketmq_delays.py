"""Delayed messages and a real broker: each delivers what the other scheduled, in the middle of a ladder, once and not
early.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import Record, TopicPartition, open_store, wall_clock_ms
from storage.rocketmq.store import RocketMQStore
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.test_real_rocketmq_broker import Broker, config

pytestmark = pytest.mark.java

LATER = TopicPartition("later", 0)
COUNT = 3
"""Messages of each level and sender."""
PATIENCE_S = 120
HOUR_MS = 3_600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    work = tmp_path / "broker"
    work.mkdir()
    found = Broker(work)
    yield found
    peers.kill_broker(work)


@contextmanager
def opened(path: Path, *, ahead_ms: int = 0) -> Iterator[RocketMQStore]:
    def clock() -> int:
        return wall_clock_ms() + ahead_ms

    with open_store("rocketmq", path, written.options(), clock=clock) as store:
        assert isinstance(store, RocketMQStore)
        yield store


def schedule(store: RocketMQStore, level: int) -> None:
    for number in range(COUNT):
        value = b"ours %d %d" % (level, number)
        target, record = store.delays.delayed(Record(None, value, tag="ours"), LATER, level)
        store.append(target, [record])


def bodies(rows: dict[bytes, int], prefix: bytes) -> list[bytes]:
    return [body for body in rows if body.startswith(prefix)]


def pulled(broker: Broker) -> dict[bytes, int]:
    """Return the messages of the topic as the real client receives them, with their store times; each comes once."""
    rows = [
        row for rows in peers.talk(broker.port, ("pull", "later")).messages.values() for row in rows
    ]
    values = [base64.b64decode(row["body"]) for row in rows]
    assert set(Counter(values).values()) <= {1}
    return {value: row["storeTimestamp"] for value, row in zip(values, rows, strict=True)}


def wait_for(broker: Broker, count: int) -> dict[bytes, int]:
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found := pulled(broker)) < count:
        assert time.monotonic() < deadline_s, found
        time.sleep(1)
    return found


def test_either_delivers_what_the_other_scheduled(broker: Broker) -> None:
    with opened(broker.store) as store:
        store.create_topic("later", 1)
        started_ms = wall_clock_ms()
        schedule(store, 1)
        schedule(store, 3)
        schedule(store, 16)
        time.sleep(1.1)
        assert store.delays.deliver(wall_clock_ms()).messages == COUNT
    broker.start()
    found = wait_for(broker, 2 * COUNT)
    assert bodies(found, b"ours") == [
        b"ours %d %d" % (level, n) for level in (1, 3) for n in range(COUNT)
    ]
    assert all(found[body] >= started_ms + 10_000 for body in bodies(found, b"ours 3"))
    answer = peers.talk(
        broker.port,
        ("delayed", "later", str(COUNT), "1"),
        ("delayed", "later", str(COUNT), "17"),
    )
    assert [row["status"] for row in answer.sent] == ["SEND_OK"] * (2 * COUNT)
    wait_for(broker, 3 * COUNT)
    peers.stop_broker(broker.work)
    by_broker = config(broker.store, "delayOffset.json")
    assert (by_broker["offsetTable"][1], by_broker["offsetTable"][3]) == (2 * COUNT, COUNT)

    with opened(broker.store) as store:
        assert not store.recovery.losses
        waiting = store.delays.waiting(100).records
        assert sorted(one.level or 0 for one in waiting) == [16] * COUNT + [17] * COUNT
        (sent_ms, *_) = (one.store_timestamp_ms for one in waiting if one.level == 17)
        assert store.delays.deliver(sent_ms + HOUR_MS - 1).messages == COUNT
        schedule(store, 18)
    with opened(broker.store, ahead_ms=3 * HOUR_MS // 2) as store:
        assert store.delays.deliver(wall_clock_ms() + 3 * HOUR_MS // 2).messages == COUNT
        assert [one.level for one in store.delays.waiting(100).records] == [18] * COUNT
        values = [record.value for record in store.read(LATER, 3 * COUNT).records]
        assert values == [b"ours 16 %d" % n for n in range(COUNT)] + [
            b"delayed 17 %d" % n for n in range(COUNT)
        ]
    by_us = config(broker.store, "delayOffset.json")
    assert by_us["offsetTable"] == {
        **by_broker["offsetTable"],
        16: COUNT,
        17: COUNT,
    }
    assert by_us["dataVersion"].keys() == by_broker["dataVersion"].keys()
    assert by_us["dataVersion"]["counter"] > by_broker["dataVersion"]["counter"]

    broker.start(process=True)
    time.sleep(3)
    assert len(pulled(broker)) == 5 * COUNT
    peers.kill_broker(broker.work)
    with opened(broker.store, ahead_ms=3 * HOUR_MS) as store:
        assert store.delays.deliver(wall_clock_ms() + 3 * HOUR_MS).messages >= COUNT
        values = [record.value for record in store.read(LATER, 5 * COUNT).records]
        assert values[-COUNT:] == [b"ours 18 %d" % n for n in range(COUNT)]
