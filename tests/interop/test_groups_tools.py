"""Kafka's own `kafka-consumer-groups` lists, describes, resets and deletes groups of our server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.http.running import Running
from tests.interop import peers

pytestmark = pytest.mark.java


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server with the topic t: two partitions, five records each."""
    running = Running("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    address = running.facts["kafka"]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(10)
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in range(10):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    yield running
    running.process.kill()
    running.process.communicate()


def rows(text: str) -> list[list[str]]:
    """Return the words of the lines of a table, without its head."""
    return sorted(
        line.split() for line in text.splitlines() if line and not line.startswith("GROUP")
    )


def test_list_describe_reset_delete(server: Running) -> None:
    address = server.facts["kafka"]

    def tool(*options: str) -> str:
        return peers.broker_tool("groups", address, *options)

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "client.id": "worker",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    assert len(consumer.consume(10, 30)) == 10  # at most 30 s
    consumer.commit(asynchronous=False)
    created = server.call("POST", "/consumers/web", {"name": "one", "format": "json"})
    assert created[0] == 200
    server.call("POST", "/consumers/web/instances/one/subscription", {"topics": ["t"]})

    assert sorted(tool("--list").split()) == ["g", "web"]
    lines = rows(tool("--describe", "--group", "g"))
    assert [line[:6] for line in lines] == [["g", "t", n, "5", "5", "0"] for n in "01"]
    assert {line[7] for line in lines} == {"/127.0.0.1"}
    assert {line[8] for line in lines} == {"worker"}
    (member,) = rows(tool("--describe", "--group", "g", "--members", "--verbose"))
    assert "t:0,1" in member
    (state,) = rows(tool("--describe", "--group", "g", "--state"))
    assert {"range", "Stable", "1"} <= set(state)
    web = rows(tool("--describe", "--group", "web"))
    assert [(line[2], line[6]) for line in web] == [("0", "one"), ("1", "one")]

    reset = ("--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute")
    assert "inactive" in tool(*reset)
    consumer.close()
    assert [line[:4] for line in rows(tool(*reset))] == [["g", "t", n, "0"] for n in "01"]
    assert server.call("GET", "/groups/g")[1]["lag"] == 10
    tool("--delete-offsets", "--group", "g", "--topic", "t:0")
    assert [line[2] for line in rows(tool("--describe", "--group", "g")) if line[0] == "g"] == ["1"]
    assert "successful" in tool("--delete", "--group", "g")
    assert tool("--list").split() == ["web"]
