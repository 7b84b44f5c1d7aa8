"""Timed messages of a real broker survive a salvage: each is delivered once, and not before its time."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import LossReport, Record, TopicPartition, open_store
from tests.damage.salvaging import salvage
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.test_real_rocketmq_broker import Broker

pytestmark = pytest.mark.java

EARLY, LATE = 3, 5
"""Number of messages that are due while the first broker runs, and after it."""
DELAY_MS = 60_000
PATIENCE_S = 120
PRECISION_MS = 1000
"""The broker's timer wheel has a resolution of one second (timerPrecisionMs)."""

Due = dict[bytes, int]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    """One broker for the source, and two for the stores salvaged from it."""
    made = []
    for name in ("source", "sector", "queues"):
        (tmp_path / name).mkdir()
        made.append(Broker(tmp_path / name))
    yield made
    for broker in made:
        peers.kill_broker(broker.work)


def delivered(broker: Broker) -> dict[bytes, list[int]]:
    """Return the times at which each timed message was stored in its topic."""
    found: dict[bytes, list[int]] = {}
    for rows in peers.talk(broker.port, ("pull", "later")).messages.values():
        for row in rows:
            found.setdefault(base64.b64decode(row["body"]), []).append(row["storeTimestamp"])
    return found


def send_and_stop(broker: Broker) -> Due:
    """Let some timed messages be delivered before the broker stops; return all of them with their due times."""
    with open_store("rocketmq", broker.store, written.options()) as store:
        for topic in ("orders", "later"):
            store.create_topic(topic, 1)
        store.append(TopicPartition("orders", 0), [Record(None, b"the first")])
    broker.start({"timerWheelEnable": "true"})
    answer = peers.talk(
        broker.port,
        ("pull", "orders"),  # waits until the name server knows the broker
        ("send", "orders", "20"),
        ("timed", "later", str(EARLY), "1000"),
        ("timed", "later", str(LATE), str(DELAY_MS)),
    )
    due = {base64.b64decode(row["body"]): row["due"] for row in answer.sent if "due" in row}
    assert len(due) == EARLY + LATE
    wait_for(broker, EARLY)
    peers.stop_broker(broker.work)
    assert time.time() * 1000 < min(sorted(due.values())[EARLY:]), (
        "the broker was too slow for this test"
    )
    return due


def wait_for(broker: Broker, count: int) -> dict[bytes, list[int]]:
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found := delivered(broker)) < count:
        assert time.monotonic() < deadline_s, found
        time.sleep(1)
    return found


def without_a_sector(root: Path, target: Path) -> LossReport:
    """Salvage with damaged records of another topic, so that the log is moved by a file."""
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(512)
        file.write(b"\xff" * 512)
    return salvage(root, target, written.SIZES)


def without_queues(root: Path, target: Path) -> LossReport:
    for topic in ("orders", "rmq_sys_wheel_timer"):
        shutil.rmtree(root / "consumequeue" / topic)
    return salvage(root, target, written.SIZES)


def test_each_timed_message_is_delivered_once(brokers: list[Broker]) -> None:
    source, *others = brokers
    due = send_and_stop(source)
    for broker, make, moved in zip(
        others, (without_a_sector, without_queues), (32_768, 0), strict=True
    ):
        damaged = broker.work / "damaged"
        shutil.copytree(source.store, damaged)
        report = make(damaged, broker.store)
        assert report.moved_bytes == moved
        assert not [f for f in report.findings if f.code == "left-behind" and "timer" in f.path]
        broker.start({"timerWheelEnable": "true"})
    time.sleep(max(0.0, max(due.values()) / 1000 - time.time()))
    for broker in others:
        wait_for(broker, EARLY + LATE)
    time.sleep(3)
    for broker in others:
        found = delivered(broker)
        assert found.keys() == due.keys()
        for body, times in found.items():
            assert len(times) == 1, (body, times)
            assert times[0] >= due[body] - PRECISION_MS, body
