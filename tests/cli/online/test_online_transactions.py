"""`transaction` and `produce --transaction`, against a running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from logserver import LogServer
from logserver.client import BlockingClient, Isolation, LogClient
from tests.cli.runner import fine, run


@pytest.fixture
def kafka(server: LogServer) -> LogServer:
    """The server, if it is of Kafka's format."""
    if run("transaction", "list").code:
        pytest.skip("no transactions on this format")
    if "producer_id" not in fine("transaction", "begin").rows[0]:
        pytest.skip("RocketMQ's format")
    return server


@pytest.fixture
def rocketmq(server: LogServer) -> LogServer:
    """The server, if it is of RocketMQ's format."""
    if run("transaction", "list").code or "producer_id" in fine("transaction", "begin").rows[0]:
        pytest.skip("Kafka's format, or none")
    return server


def put(topic: str, path: Path, text: str, *options: object) -> None:
    path.write_text(text)
    fine("produce", "-t", topic, *options, path)


def committed(server: LogServer, topic: str) -> list[str]:
    async def read(client: LogClient) -> list[str]:
        records = client.records(topic, isolation=Isolation.READ_COMMITTED)
        return [record.text async for record in records]

    with BlockingClient(server.url) as client:
        return client.run(read)


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_transaction(kafka: LogServer, topic: str, tmp_path: Path, how: str) -> None:
    name = f"producer-{topic}-{how}"
    (begun,) = fine("transaction", "begin", "-n", name, "--timeout", 60_000).rows
    put(topic, tmp_path / "lines", "a\nb\n", "--transaction", begun["id"])
    put(topic, tmp_path / "lines", "plain\n")
    assert committed(kafka, topic) == []
    rows = fine("transaction", "list", "--state", "Ongoing").rows
    (listed,) = [row for row in rows if row["id"] == begun["id"]]
    assert (listed["transactional_id"], listed["partitions"]) == (name, f"{topic}-0")
    for _ in range(2):
        fine("transaction", how, begun["id"])
    assert committed(kafka, topic) == (["a", "b", "plain"] if how == "commit" else ["plain"])
    refused = run("transaction", "rollback" if how == "commit" else "commit", begun["id"])
    assert refused.code != 0
    assert begun["id"] in refused.err


def test_wrong_use(kafka: LogServer) -> None:
    assert run("transaction", "commit", "1-2").code != 0
    assert run("transaction", "begin", "--timeout", 0).code == 2
    assert run("transaction", "begin", "--timeout", 900_001).code != 0
    assert run("transaction", "list", "--state", "open").code != 0


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_half_messages(rocketmq: LogServer, topic: str, tmp_path: Path, how: str) -> None:
    group = f"producer-{how}"
    (begun,) = fine("transaction", "begin", "-n", group, "--timeout", 1).rows
    assert begun.keys() == {"id"}
    put(topic, tmp_path / "lines", "a\nb\n", "--transaction", begun["id"])
    put(topic, tmp_path / "lines", "plain\n")
    assert committed(rocketmq, topic) == ["plain"]
    rows = fine("transaction", "list", "--state", "unknown").rows
    (listed,) = [row for row in rows if row["id"] == begun["id"]]
    assert (listed["transactional_id"], listed["messages"], listed["checks"]) == (group, 2, 0)
    assert topic in listed["partitions"]
    for _ in range(2):
        fine("transaction", how, begun["id"])
    values = ["a", "b", "plain"] if how == "commit" else ["plain"]
    assert sorted(committed(rocketmq, topic)) == values
    refused = run("transaction", "rollback" if how == "commit" else "commit", begun["id"])
    assert refused.code != 0
    assert begun["id"] in refused.err
