"""One directory, with a real broker and client and our server in turn; each locks the other out while it runs."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from logserver.bench.targets.rocketmq import BESIDE, PATIENT
from logserver.bench.targets.tools import free_ports
from storage import (
    CommittedOffset,
    GroupCommit,
    LogStore,
    Record,
    StoreOptions,
    SupportsGroupOffsets,
    TopicPartition,
)
from storage import open_store as open_any
from storage.errors import StoreLocked, UnsupportedFormat
from storage.rocketmq.format.config_json import decode_config, encode_config
from tests.cli.runner import fine
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.rocketmq_peers import RocketAnswer
from tests.robustness.process.server import BINARY, Client, Server

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)
PULLED = ("orders", "shapes", "many-at-once", "raw")
BROKER = {
    **written.SIZES,
    "timerWheelEnable": "false",
    "enableCompaction": "false",
    "timerFlushIntervalMs": "10000",  # with the default a broker writes 38 MB each second
    **dict(setting.split("=") for setting in PATIENT),
}
SENT = 6


class Broker:
    """A real broker on `work`/store, killed after the test at the latest."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.store = work / "store"
        self.port = free_ports(BESIDE)

    @property
    def pid(self) -> int:
        """The id of its own process, while the broker runs."""
        return int((self.work / "broker.pid").read_text())

    def start(self, more: Mapping[str, str] | None = None, *, process: bool = False) -> None:
        properties = {**BROKER, **(more or {})}
        peers.start_broker(self.work, port=self.port, properties=properties, process=process)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One broker with its own directory, not started yet."""
    work = tmp_path / "broker"
    work.mkdir()
    found = Broker(work)
    yield found
    peers.kill_broker(work)


def open_ours(path: Path, *, read_only: bool = False) -> LogStore:
    return open_any("rocketmq", path, written.options(), read_only=read_only)


def config(root: Path, name: str) -> Any:
    return decode_config((root / "config" / name).read_bytes())


def served(client: Client, topic: str, number: int) -> list[tuple[int, bytes]]:
    """Return (offset, value) pairs as our server returns them."""
    rows = client.records(topic, number, kind=BINARY)
    return [(row["offset"], base64.b64decode(row["value"])) for row in rows]


def test_a_store_goes_from_us_to_the_broker_and_back_twice(broker: Broker) -> None:
    written.write(broker.store)
    the_broker_serves_our_store(broker)
    we_serve_the_store_of_the_broker(broker)
    the_broker_goes_on_and_is_killed(broker)


def the_broker_serves_our_store(broker: Broker) -> None:
    """Let the real client read all, find by key, and send; meanwhile we are locked out, but can open read-only."""
    ends = {place: len(rows) for place, rows in written.rows(broker.store).items()}
    broker.start(process=True)
    with pytest.raises(StoreLocked) as refusal:
        open_ours(broker.store)
    assert refusal.value.facts()["pid"] == broker.pid
    answer = peers.talk(
        broker.port,
        ("pull", *PULLED),
        ("query", "shapes", "Aa", "0", str(1 << 62)),
        ("send", "orders", str(SENT)),
        ("send", "made-by-the-broker", str(SENT)),
    )
    assert {place: len(rows) for place, rows in answer.messages.items()} == {
        place: end for place, end in ends.items() if place[0] in PULLED
    }
    assert {base64.b64decode(row["body"]) for row in answer.found} == {b"tagged"}
    assert len(answer.found) == 6
    assert [row["status"] for row in answer.sent] == ["SEND_OK"] * (2 * SENT)
    with open_ours(broker.store, read_only=True) as beside:
        orders = [beside.bounds(TopicPartition("orders", n)).end for n in range(3)]
    assert sum(orders) == sum(ends["orders", n] for n in range(3)) + SENT
    peers.stop_broker(broker.work)
    check_client_saw(answer, broker.store, ends)


def we_serve_the_store_of_the_broker(broker: Broker) -> None:
    """Check that we serve everything, create topics alongside the broker's, and leave its groups' offsets unchanged."""
    topics, offsets = config(broker.store, "topics.json"), consumer_offsets(broker.store)
    assert b"peer-talk" in offsets
    real = peers.run_rocketmq_opens(broker.store, written.SIZES)
    with Server(broker.store, "--write", *set_options()) as server, server.client() as client:
        for (topic, number), rows in real.messages.items():
            found = served(client, topic.replace("%", "%25").replace("|", "%7C"), number)
            assert [offset for offset, _ in found] == [row["queueOffset"] for row in rows]
        assert "made-by-the-broker" in client.call("GET", "/topics").body
        assert client.call("PUT", "/topics/made-by-us", {"partitions": 2}).status == 201
        for n in range(SENT):
            answer = client.produce("/topics/made-by-us", [{"value": f"ours {n}", "tag": "t"}])
            assert answer.status == 200
        server.stop()
    assert consumer_offsets(broker.store) == offsets
    check_topics_kept(topics, config(broker.store, "topics.json"))


def the_broker_goes_on_and_is_killed(broker: Broker) -> None:
    """Check that the real client receives our records, and that we open what a kill of the broker leaves."""
    broker.start(process=True)
    answer = peers.talk(broker.port, ("pull", "made-by-us"), ("send", "made-by-us", str(SENT)))
    bodies = [base64.b64decode(row["body"]) for rows in answer.messages.values() for row in rows]
    assert sorted(bodies) == [json.dumps(f"ours {n}").encode() for n in range(SENT)]
    peers.kill_broker(broker.work)
    with open_ours(broker.store) as store:
        assert not store.recovery.clean_shutdown
        assert store.recovery.losses == []
        assert sum(store.bounds(TopicPartition("made-by-us", n)).end for n in range(2)) == 2 * SENT
        assert store.append(ORDERS, [Record(None, b"after the kill")]).base_offset > 0
    check_client_saw(answer, broker.store, {p: len(r) for p, r in answer.messages.items()})
    last = peers.run_rocketmq_opens(broker.store, written.SIZES)
    assert last.messages == written.rows(broker.store)


@pytest.mark.parametrize("setting", [{}, {"enableLmq": "true"}], ids=["plain", "light-queues"])
def test_groups_go_on_where_they_stood(broker: Broker, setting: dict[str, str]) -> None:
    """The real broker reports the offsets that we committed; we report the offsets that its client committed.

    With light message queues the broker has another file for these offsets, which we then find.
    """
    written.write(broker.store)
    places = [TopicPartition("orders", number) for number in range(3)]
    ours = {"g1": {places[0]: 4, places[1]: 0, places[2]: 2}, "ours_%-|2": {places[1]: 3}}
    given = StoreOptions(settings={**written.options().settings, **setting})
    with open_any("rocketmq", broker.store, given) as store:
        commit(store, {"g1": {places[0]: 1, places[1]: 0}, "deleted": {places[0]: 1}})
        commit(store, {"g1": {places[0]: 4, places[2]: 2}, "ours_%-|2": {places[1]: 3}})
        offsets_of(store).delete_offsets("deleted")
    broker.start(setting)
    answer = peers.talk(broker.port, ("committed", "orders", *ours), ("pull", "orders"))
    found = {(row["group"], row["queueId"]): row["offset"] for row in answer.committed}
    for group, offsets in ours.items():
        for partition, offset in offsets.items():
            assert found[group, partition.partition] == offset, (group, partition)
    peers.stop_broker(broker.work)
    with open_ours(broker.store) as store:
        assert store.recovery.findings == []
        ends = {place: store.bounds(place).end for place in places}
        assert committed(store) == {**ours, "peer-talk": ends}
        commit(store, {"peer-talk": {places[0]: 1}})
        assert committed(store)["peer-talk"] == {**ends, places[0]: 1}


def test_a_topic_with_batch_queues_gets_none_of_ours(broker: Broker) -> None:
    """If such a topic has a folder below consumequeue, no broker starts."""
    written.write(broker.store)
    topics = broker.store / "config/topics.json"
    entries = decode_config(topics.read_bytes())
    entries["topicConfigTable"]["orders"]["attributes"] = {"queue.type": "BatchCQ"}
    topics.write_bytes(encode_config(entries))
    shutil.rmtree(broker.store / "consumequeue/orders")
    with open_ours(broker.store) as store:
        assert "orders" not in store.topics()
    broker.start()
    answer = peers.talk(broker.port, ("pull", "shapes"))
    assert answer.messages
    peers.stop_broker(broker.work)
    assert not (broker.store / "consumequeue/orders").exists()


def send_once_known(broker: Broker) -> None:
    """Send records, and retry until the route is known. Some may then be there twice.

    A broker that moves its topics into a database may report them to the name server only with its next registration.
    Until then a client has no route, or that of the default topic, which has more queues.
    """
    deadline_s = time.monotonic() + 120
    while True:
        try:
            peers.talk(broker.port, ("send", "orders", str(SENT)))
        except peers.PeerError as error:
            is_unknown = "No route info" in str(error) or "is illegal, TopicConfig" in str(error)
            if not is_unknown or time.monotonic() > deadline_s:
                raise
        else:
            return


def test_a_broker_with_rocksdb_keeps_its_store_to_itself(broker: Broker) -> None:
    """The broker leaves the queue files unchanged and continues in databases; the records are found in the log."""
    written.write(broker.store)
    broker.start({"storeType": "defaultRocksDB"}, process=True)
    send_once_known(broker)
    peers.stop_broker(broker.work)
    before = {path: path.stat().st_mtime_ns for path in broker.store.rglob("*")}
    with pytest.raises(UnsupportedFormat, match="consumequeue is a RocksDB database"):
        open_ours(broker.store)
    with open_ours(broker.store, read_only=True) as store:
        numbers = store.topics()["orders"].partitions
        orders = [r.value or b"" for n in numbers for r in store.scan(TopicPartition("orders", n))]
        assert {b"talk %d" % n for n in range(SENT)} < set(orders)
    found = fine("verify", broker.store, *set_options()).rows
    assert [row["code"] for row in found] == ["rocksdb-store"]
    assert {path: path.stat().st_mtime_ns for path in broker.store.rglob("*")} == before


def test_topics_that_the_broker_deleted_stay_away(broker: Broker) -> None:
    """The broker leaves the records in the log, and no note; one of the topics was created again."""
    written.write(broker.store)
    broker.start(
        {"timerWheelEnable": "true"}
    )  # without it the deletion ends in an error in the broker
    peers.talk(broker.port, ("delete", "shapes", "orders"), ("send", "orders", str(SENT)))
    peers.stop_broker(broker.work)
    for read_only in (True, False):
        with open_ours(broker.store, read_only=read_only) as store:
            assert store.recovery.clean_shutdown
            assert "shapes" not in store.topics()
            numbers = store.topics()["orders"].partitions
            orders = [r for n in numbers for r in store.scan(TopicPartition("orders", n))]
            assert sorted(r.value or b"" for r in orders) == [b"talk %d" % n for n in range(SENT)]
            assert store.bounds(TopicPartition("many-at-once", 0)).end > 0
    real = peers.run_rocketmq_opens(broker.store, written.SIZES)
    assert real.messages == written.rows(broker.store)


def offsets_of(store: LogStore) -> SupportsGroupOffsets:
    assert isinstance(store, SupportsGroupOffsets)
    return store


def commit(store: LogStore, groups: dict[str, dict[TopicPartition, int]]) -> None:
    """Commit the given offsets of each group."""
    offsets_of(store).commit_offsets(
        [
            GroupCommit(group, {p: CommittedOffset(offset) for p, offset in offsets.items()})
            for group, offsets in groups.items()
        ]
    )


def committed(store: LogStore) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets of the store's groups, except the broker's own groups."""
    offsets = offsets_of(store)
    return {
        group: {partition: at.offset for partition, at in offsets.committed(group).items()}
        for group in offsets.groups()
        if not group.startswith("CID_RMQ_SYS")
    }


def set_options() -> list[str]:
    return [f"--set={name}={value}" for name, value in written.options().settings.items()]


def consumer_offsets(root: Path) -> bytes:
    """Return the offsets of the broker's groups, byte for byte."""
    return (root / "config" / "consumerOffset.json").read_bytes()


def check_topics_kept(before: Any, after: Any) -> None:
    """Check that all topics of the broker are kept with every unknown field, and that our topic exists."""
    table = dict(after["topicConfigTable"])
    assert table.pop("made-by-us")["writeQueueNums"] == 2
    assert table == before["topicConfigTable"]
    assert after["dataVersion"]["counter"] > before["dataVersion"]["counter"]
    assert set(after) == set(before)


def check_client_saw(answer: RocketAnswer, root: Path, ends: dict[tuple[str, int], int]) -> None:
    """Check that the records that the real client received are still stored."""
    with open_ours(root, read_only=True) as store:
        for (topic, number), rows in answer.messages.items():
            address = TopicPartition(topic, number)
            read = [r.value for r in store.scan(address, 0, ends[topic, number])]
            assert read == [base64.b64decode(row["body"]) for row in rows]
