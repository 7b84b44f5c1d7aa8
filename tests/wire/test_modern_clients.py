"""Public Kafka clients with `group.protocol=consumer` (KIP-848) against a server in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from logserver.bench.targets.tools import free_ports
from tests.cli.runner import fine
from tests.http.running import Running
from tests.wire.harness import BACKENDS, OPTIONS
from tests.wire.test_group_clients import COUNT, PARTITIONS, fill, lag, send, shares, until
from tests.wire.test_java_tools import java

QUICK = {
    "LOGSERVER_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "200",
    "LOGSERVER_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "6000",
    "LOGSERVER_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS": "100",
}
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture(params=BACKENDS)
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Running]:
    """A server with quick heartbeats, and the topic t: six partitions, a hundred records each."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    place = ("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    running = Running(*place, *OPTIONS[request.param])
    fill(running)
    yield running
    running.process.kill()
    running.process.communicate()


class Member:
    """A consumer of confluent-kafka in a thread, with the new protocol."""

    def __init__(self, address: str, *, topics: Sequence[str] = ("t",), **options: Any) -> None:
        self.values: list[int] = []
        self.changes: list[tuple[str, frozenset[int]]] = []
        self.parts: frozenset[int] = frozenset()
        self._ending = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
                **options,
            }
        )
        self._consumer.subscribe(
            [*topics],
            on_assign=lambda _, parts: self._change("assign", parts),
            on_revoke=lambda _, parts: self._change("revoke", parts),
            on_lost=lambda _, parts: self._change("lost", parts),
        )
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _change(self, kind: str, partitions: Sequence[Any]) -> None:
        numbers = frozenset(one.partition for one in partitions)
        self.changes.append((kind, numbers))
        self.parts = self.parts | numbers if kind == "assign" else self.parts - numbers

    def _poll(self) -> None:
        while not self._ending.is_set():
            record = self._consumer.poll(0.1)
            if record is not None and record.error() is None:
                self.values.append(int(record.value()))

    def close(self) -> None:
        """Leave the group."""
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join()
            self._consumer.close()


@pytest.fixture
def member() -> Iterator[Callable[..., Member]]:
    """A function that starts members; all are closed at the end."""
    members: list[Member] = []

    def start(address: str, **options: Any) -> Member:
        members.append(Member(address, **options))
        return members[-1]

    yield start
    for one in members:
        one.close()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(server: Running, member: Callable[..., Member], assignor: str) -> None:
    address = server.facts["kafka"]
    options = {"group.remote.assignor": assignor}
    first = member(address, **options)
    until(lambda: len(first.values) == COUNT, "the first reads everything")
    second = member(address, **options)
    until(lambda: shares(first, second), "two members share")  # type: ignore[arg-type]
    third = member(address, **options)
    until(lambda: shares(first, second, third), "three members share")  # type: ignore[arg-type]
    send(address, range(COUNT, 2 * COUNT))
    until(
        lambda: len({*first.values, *second.values, *third.values}) == 2 * COUNT,
        "everything is read",
    )
    described = _described(address)
    assert described.type == confluent_kafka.ConsumerGroupType.CONSUMER
    assert described.partition_assignor == assignor
    second.close()
    until(lambda: shares(first, third), "the others take over")  # type: ignore[arg-type]
    until(lambda: lag(server) == 0, "everything is committed")
    assert not any(kind == "lost" for one in (first, third) for kind, _ in one.changes)
    revoked = [numbers for kind, numbers in first.changes if kind == "revoke"]
    assert sum(map(len, revoked)) <= PARTITIONS, "only what moves is revoked"


def _described(address: str) -> Any:
    admin = AdminClient({"bootstrap.servers": address})
    return admin.describe_consumer_groups(["g"])["g"].result(30)


def test_a_static_member_restarts_without_a_rebalance(
    server: Running, member: Callable[..., Member]
) -> None:
    address = server.facts["kafka"]
    first = member(address, **{"group.instance.id": "one"})
    second = member(address, **{"group.instance.id": "two"})
    until(lambda: shares(first, second), "both share")  # type: ignore[arg-type]
    before = server.call("GET", "/groups/g")[1]["generation"]
    seen, parts = list(second.changes), first.parts
    first.close()
    again = member(address, **{"group.instance.id": "one"})
    until(lambda: again.parts == parts, "it is back with its partitions")
    time.sleep(1)  # some heartbeats: a rebalance would show
    assert second.changes == seen
    assert server.call("GET", "/groups/g")[1]["generation"] == before


def test_a_pattern_finds_new_topics(server: Running, member: Callable[..., Member]) -> None:
    address = server.facts["kafka"]
    one = member(address, topics=["^(t|later-.*)"])
    until(lambda: len(one.values) == COUNT, "everything of t is read")
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("later-1", 1, 1)])["later-1"].result(10)
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    producer.produce("later-1", b"77")
    assert producer.flush(30) == 0
    until(lambda: len(one.values) == COUNT + 1, "the new topic is read")
    found = admin.describe_topics(TopicCollection(["later-1"]))["later-1"].result(10)
    assert len(found.partitions) == 1


def test_a_group_changes_its_protocol_when_it_is_empty(
    server: Running, member: Callable[..., Member]
) -> None:
    address = server.facts["kafka"]
    first = member(address, **{"group.protocol": "classic"})
    until(lambda: len(first.values) == COUNT and lag(server) == 0, "all is read and committed")
    first.close()
    second = member(address)
    until(lambda: len(second.parts) == PARTITIONS, "the new protocol takes over")
    send(address, range(COUNT, 2 * COUNT))
    until(lambda: len(second.values) == COUNT and lag(server) == 0, "only the rest is read")
    second.close()
    third = member(address, **{"group.protocol": "classic"})
    until(lambda: len(third.parts) == PARTITIONS, "and back")
    assert third.values == []


def test_members_go_on_after_the_server_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: Callable[..., Member]
) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    address = f"127.0.0.1:{free_ports()}"
    options = ("--data", tmp_path / "store", "--listen-kafka", address)
    server = Running(*options)
    fill(server)
    members = [member(address, **{"reconnect.backoff.max.ms": 500}) for _ in range(2)]
    until(lambda: shares(*members), "both share")  # type: ignore[arg-type]
    until(
        lambda: sum(len(one.values) for one in members) >= COUNT and lag(server) == 0,
        "everything is committed",
    )
    server.stop(signal.SIGKILL)
    server = Running(*options)
    try:
        send(address, range(COUNT, 2 * COUNT))
        until(
            lambda: {*members[0].values, *members[1].values} == set(range(2 * COUNT)),
            "the rest is read",
        )
        until(lambda: shares(*members), "both share again")  # type: ignore[arg-type]
        until(lambda: lag(server) == 0, "everything is committed")
    finally:
        for one in members:
            one.close()
        server.stop()


def test_a_restart_of_the_server_is_no_rebalance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: Callable[..., Member]
) -> None:
    """Members, epochs and partitions are restored: no partition is taken away, and no record is read twice."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    address = f"127.0.0.1:{free_ports()}"
    options = ("--data", tmp_path / "store", "--listen-kafka", address)
    server = Running(*options)
    fill(server)
    members = [
        member(address, **{"reconnect.backoff.max.ms": 300, "client.id": "one"}),
        member(address, topics=["^(t|later)$"], **{"reconnect.backoff.max.ms": 300}),
    ]
    until(lambda: shares(*members), "both share")  # type: ignore[arg-type]
    until(lambda: lag(server) == 0, "everything is committed")
    changes = [list(one.changes) for one in members]
    before = server.call("GET", "/groups/g")[1]
    server.stop(signal.SIGKILL)
    server = Running(*options)
    try:
        after = server.call("GET", "/groups/g")[1]
        assert after["generation"] == before["generation"]
        assert after["members"] == before["members"]
        send(address, range(COUNT, 2 * COUNT))
        until(lambda: sum(len(one.values) for one in members) == 2 * COUNT, "the rest is read")
        until(lambda: lag(server) == 0, "everything is committed")
        assert [one.changes for one in members] == changes
        assert server.call("GET", "/groups/g")[1]["generation"] == before["generation"]
        members[0].close()
        until(lambda: len(members[1].parts) == PARTITIONS, "the other one takes over")
    finally:
        for one in members:
            one.close()
        server.stop()


def test_our_command_line_shows_the_members(server: Running, member: Callable[..., Member]) -> None:
    one = member(server.facts["kafka"])
    until(lambda: len(one.values) == COUNT and lag(server) == 0, "everything is committed")
    shown = fine("group", "show", "g", "--server", server.facts["url"]).document
    assert shown["lag"] == 0
    assert len(shown["members"]) == 1


@pytest.mark.java
@pytest.mark.slow
def test_java_consumers_and_the_group_tool(classpath: str, server: Running) -> None:
    """Console consumers read by the new protocol; the tool lists, describes, resets and deletes."""
    address = server.facts["kafka"]
    protocol = ("--command-property", "group.protocol=consumer")
    options = ("--topic", "t", "--group", "j", "--from-beginning", *protocol)
    read = java(classpath, address, CONSOLE, *options, "--max-messages", str(COUNT))
    assert sorted(map(int, read.split())) == list(range(COUNT))

    def tool(*words: str) -> str:
        return java(classpath, address, TOOL, *words)

    words = ("java", "-cp", classpath, CONSOLE, "--bootstrap-server", address, *options)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            until(lambda: _members(server, "j") == 1, "the consumer has joined")
            listed = tool("--list", "--type", "consumer", "--state", "stable")
            assert re.search(r"^j +consumer +Stable", listed, re.MULTILINE | re.IGNORECASE), listed
            assert tool("--list", "--type", "classic", "--state").count("\n") <= 1
            members = tool("--describe", "--group", "j", "--members", "--verbose")
            assert "t:0,1,2,3,4,5" in members, members
            state = tool("--describe", "--group", "j", "--state")
            assert re.search(r"^j .*uniform +Stable.* 1$", state, re.MULTILINE), state
            described = tool("--describe", "--group", "j")
            assert re.search(rf"^j +t +0 +{COUNT // PARTITIONS} ", described, re.MULTILINE)
        finally:
            running.terminate()
            running.wait(60)
    until(lambda: _members(server, "j") == 0, "the consumer has left")
    reset = tool("--reset-offsets", "--group", "j", "--topic", "t", "--to-earliest", "--execute")
    assert re.search(r"^j +t +0 +0 *$", reset, re.MULTILINE), reset
    assert "successful" in tool("--delete", "--group", "j")
    assert tool("--list").split() == []


def _members(server: Running, group: str) -> int:
    status, found = server.call("GET", f"/groups/{group}")
    assert status == 200
    return len(found["members"])
