"""Transactions and a real broker: each ends what the other has prepared, and the real consumer reads what was
committed, each message once, and nothing else.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage import (
    HalfEnd,
    HalfOutcome,
    Prepared,
    Record,
    TopicPartition,
    open_store,
    wall_clock_ms,
)
from storage.rocketmq.format.half_message import op_fields
from storage.rocketmq.half_queues import GROUP
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.transactions import HALF
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.test_real_rocketmq_broker import Broker, config

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)
OP = TopicPartition("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
PROMPT = {
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "1000",
    "transactionOpBatchInterval": "100",
}
"""A broker that checks again before it has written its op records delivers twice."""


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


def put(store: RocketMQStore, transaction: str, group: str, *values: bytes) -> None:
    for value in values:
        record = Record(None, value, [("h", b"1")], tag="ours")
        prepared = Prepared(transaction, group, 1000)
        target, half = store.half_messages.prepared(record, ORDERS, prepared)
        store.append(target, [half])


def end(store: RocketMQStore, transaction: str, *, commit: bool) -> HalfOutcome | None:
    (ended,) = store.half_messages.end([HalfEnd(transaction, commit)])
    assert ended.error is None
    return ended.outcome


def bodies(rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return sorted(base64.b64decode(row["body"]) for row in rows)


def values(store: RocketMQStore) -> list[bytes]:
    return sorted(record.value or b"" for record in store.read(ORDERS, 0).records)


def test_either_ends_the_transactions_of_the_other(broker: Broker) -> None:
    we_begin(broker)
    theirs = the_broker_ends_ours_and_begins(broker)
    we_end_theirs(broker, theirs)
    the_broker_ends_the_rest(broker)


def we_begin(broker: Broker) -> None:
    """Leave two transactions open, and end two."""
    with opened(broker.store) as store:
        store.create_topic("orders", 1)
        put(store, "x", "shop", b"ours 0", b"ours 1")
        put(store, "y", "other", b"never 0")
        put(store, "z", "shop", b"ours 2")
        put(store, "w", "shop", b"never 1")
        assert end(store, "z", commit=True) is HalfOutcome.COMMITTED
        assert end(store, "w", commit=False) is HalfOutcome.ROLLED_BACK


def the_broker_ends_ours_and_begins(broker: Broker) -> Sequence[str]:
    """Let the real producers of our groups be asked, and a real producer commit, roll back and leave messages."""
    broker.start(PROMPT)
    answer = peers.talk(
        broker.port,
        ("answer", "orders", "shop", "2", "commit"),
        ("answer", "orders", "other", "1", "rollback"),
        ("transact", "orders", "done", "2", "commit"),
        ("transact", "orders", "undone", "2", "rollback"),
        ("transact", "orders", "theirs", "3", "leave"),
        ("pull", "orders"),
    )
    assert answer.odd == []
    assert bodies(answer.found) == [b"never 0", b"ours 0", b"ours 1"]
    assert all(row["properties"]["PGROUP"] in ("shop", "other") for row in answer.found)
    (rows,) = answer.messages.values()
    assert bodies(rows) == [b"done 0", b"done 1", b"ours 0", b"ours 1", b"ours 2"]
    for row in rows:
        if base64.b64decode(row["body"]) == b"ours 0":
            assert (row["tags"], row["properties"]["h"]) == ("ours", "1")
    peers.stop_broker(broker.work)
    return [row["transactionId"] for row in answer.sent if row["topic"] == "orders"][-3:]


def we_end_theirs(broker: Broker, theirs: Sequence[str]) -> None:
    """List what the real producer left, commit one and roll one back; the broker asks about the third."""
    offsets = config(broker.store, "consumerOffset.json")["offsetTable"]
    assert offsets[f"{HALF.topic}@{GROUP}"][0] > 0
    with opened(broker.store) as store:
        assert not store.recovery.losses
        halves = store.half_messages
        halves.check(0)  # completes what the broker had delivered without an op record
        found = {one.id: one for one in halves.transactions()}
        assert set(theirs) <= set(found)
        # A broker that stops forgets which messages were rolled back within its last three seconds.
        assert {one.group for name, one in found.items() if name not in theirs} <= {"undone"}
        for name in theirs:
            assert (found[name].group, found[name].messages, found[name].is_ours) == (
                "theirs",
                1,
                False,
            )
        before = values(store)
        assert end(store, theirs[0], commit=True) is HalfOutcome.COMMITTED
        assert end(store, theirs[1], commit=False) is HalfOutcome.ROLLED_BACK
        assert values(store) == sorted([*before, b"theirs 0"])
        halves.check(wall_clock_ms() + 1000)
        (left,) = [one for one in halves.transactions() if one.group == "theirs"]
        assert (left.id, left.checks > 0) == (theirs[2], True)
        put(store, "v", "shop", b"ours 3")


def the_broker_ends_the_rest(broker: Broker) -> None:
    """Let the broker ask about the last ones: it knows our op records, and asks about nothing else."""
    broker.start(PROMPT)
    answer = peers.talk(
        broker.port,
        ("answer", "orders", "theirs", "1", "commit"),
        ("answer", "orders", "shop", "1", "commit"),
        ("consume", "orders", "readers", "8", "nothing"),
    )
    assert bodies(answer.found) == [b"ours 3", b"theirs 2"]
    expected = [b"done 0", b"done 1", b"ours 0", b"ours 1", b"ours 2", b"ours 3"]
    expected += [b"theirs 0", b"theirs 2"]
    assert bodies(answer.consumed) == expected
    peers.stop_broker(broker.work)
    with opened(broker.store) as store:
        store.half_messages.check(0)
        assert {one.group for one in store.half_messages.transactions()} <= {"undone"}
        assert Counter(values(store)) == Counter(expected)
        ops = [
            op_fields(store.message_by_id(store.record_id(OP, record.locator)).message)
            for record in store.read(OP, 0).records
        ]
        assert all(fields.offsets for fields in ops)
