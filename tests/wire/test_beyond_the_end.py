"""A client commits an offset beyond the end of the log, and the server is killed: the next start serves the log."""

from __future__ import annotations

import signal
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.http.running import Running


def send(address: str, count: int) -> list[int]:
    """Append records, and return the offsets that the server answered with."""
    offsets: list[int] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": address})

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        offsets.append(message.offset() or 0)

    for _ in range(count):
        producer.produce("t", b"v", partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets


@pytest.mark.parametrize("way", ["consumer", "admin"])
def test_the_log_goes_on_at_its_end(tmp_path: Path, way: str) -> None:
    options = ("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    server = Running(*options)
    address = server.facts["kafka"]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    send(address, 3)
    beyond = TopicPartition("t", 0, 500)
    if way == "admin":
        request = ConsumerGroupTopicPartitions("g", [beyond])
        admin.alter_consumer_group_offsets([request])["g"].result(10)
    else:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "g"})
        consumer.commit(offsets=[beyond], asynchronous=False)
        consumer.close()
    server.stop(signal.SIGKILL)
    server = Running(*options)
    try:
        assert send(server.facts["kafka"], 2) == [3, 4]
        status, group = server.call("GET", "/groups/g")
        assert (status, [row["committed"] for row in group["partitions"]]) == (200, [500])
    finally:
        server.stop()
