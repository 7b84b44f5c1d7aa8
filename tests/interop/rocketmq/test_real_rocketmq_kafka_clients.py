"""What Kafka clients store in a RocketMQ store, the real broker serves; what its client sends then, they read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from storage import TopicPartition
from storage.kafka.format.compression import CODECS
from tests.http.running import Running
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.test_real_rocketmq_broker import SENT, Broker, open_ours

pytestmark = pytest.mark.java

COUNT = 60
QUEUES = 2
QUERY = {"topic": "orders", "maxNum": 10, "begin": 0, "end": 1 << 62}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One broker with its own directory, not started yet."""
    work = tmp_path / "broker"
    work.mkdir()
    found = Broker(work)
    yield found
    peers.kill_broker(work)


def served(path: Path) -> Running:
    """Start our server on a store, with a port for Kafka clients."""
    sizes = [word for name, value in written.SIZES.items() for word in ("--set", f"{name}={value}")]
    place = ("--data", path, "--backend", "rocketmq", "--listen-kafka", "127.0.0.1:0")
    return Running(*place, *sizes, "--set", f"defaultTopicQueueNums={QUEUES}")


def send(address: str) -> None:
    """Send records with every codec, each with key, tag, lookup keys and a header."""
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 50,
            }
        )
        for number in range(COUNT):
            producer.produce(
                "orders",
                key=f"{codec}-{number}",
                value=b"%d " % number * 20,
                headers={"TAGS": codec, "KEYS": f"order-{number}", "trace": "7"},
                partition=number % QUEUES,
            )
        assert producer.flush(30) == 0


def read(address: str, count: int) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Return the records that a member of the group g reads, by partition and offset; it commits them."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    while len(found) < count:
        messages = consumer.consume(count, 10)
        assert messages
        for one in messages:
            headers = dict(one.headers() or ())
            found[one.partition(), one.offset()] = (one.key(), one.value(), headers)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_a_store_goes_from_kafka_clients_to_the_broker_and_back(
    broker: Broker, tmp_path: Path
) -> None:
    running = served(broker.store)
    send(running.facts["kafka"])
    sent = read(running.facts["kafka"], COUNT * len(CODECS))
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for number in range(QUEUES):
        path = f"/topics/orders/partitions/{number}/records?offset=0&max_records=1000&format=text"
        shown = running.call("GET", path)[1]
        rows |= {(number, row["offset"]): row for row in shown}
    assert {place: row["value"].encode() for place, row in rows.items()} == {
        place: value for place, (_, value, _) in sent.items()
    }
    assert running.stop()[0] == 0
    the_real_store_finds(broker.store, tmp_path, sent, rows)
    broker.start()
    answer = peers.talk(
        broker.port, ("committed", "orders", "g"), ("pull", "orders"), ("send", "orders", str(SENT))
    )
    committed = {row["queueId"]: row["offset"] for row in answer.committed}
    assert committed == dict.fromkeys(range(QUEUES), COUNT * len(CODECS) // QUEUES)
    assert sum(len(queue) for queue in answer.messages.values()) == len(sent)
    peers.stop_broker(broker.work)
    running = served(broker.store)
    later = read_more(running, SENT)
    assert {record[1] for record in later.values()} == {b"talk %d" % n for n in range(SENT)}
    assert running.stop()[0] == 0
    with open_ours(broker.store) as store:
        ends = [store.bounds(TopicPartition("orders", number)).end for number in range(QUEUES)]
    assert sum(ends) == len(sent) + SENT


def read_more(running: Running, count: int) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Go on where the group g stands."""
    return read(running.facts["kafka"], count)


def the_real_store_finds(
    path: Path,
    folder: Path,
    sent: dict[tuple[int, int], tuple[Any, ...]],
    rows: dict[tuple[int, int], dict[str, Any]],
) -> None:
    """The real store reads the same bodies and properties, and finds records by key and by lookup key."""
    queries = folder / "queries.json"
    asked = [
        {**QUERY, "key": "gzip-7"},
        {**QUERY, "key": "order-7"},
        {**QUERY, "key": "lz4", "indexType": "T"},
    ]
    queries.write_text(json.dumps(asked))
    answer = peers.run_rocketmq_opens(path, written.SIZES, "--queries", queries)
    assert answer.odd == []
    found = {
        (number, row["queueOffset"]): row
        for (topic, number), messages in answer.messages.items()
        for row in messages
        if topic == "orders"
    }
    assert found.keys() == sent.keys()
    for place, row in found.items():
        key, value, headers = sent[place]
        assert base64.b64decode(row["body"]) == value
        assert row["properties"] == rows[place]["properties"]
        assert row["properties"]["__SHARDINGKEY"] == key.decode()
        assert (row["tags"], row["keys"]) == (
            headers["TAGS"].decode(),
            f"{key.decode()} {headers['KEYS'].decode()}",
        )
        assert row["bornTimestamp"] == rows[place]["timestamp"]
        assert row["bornHost"].startswith("127.0.0.1:")
    assert [len(query["indexOrder"]) for query in answer.queries] == [1, len(CODECS), 10]
