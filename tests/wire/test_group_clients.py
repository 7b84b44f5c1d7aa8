"""Groups of public Kafka clients against a server in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from logserver.bench.targets.tools import free_ports
from tests.cli.runner import fine
from tests.cli.runner import run as command
from tests.http.running import Running
from tests.wire.harness import BACKENDS, OPTIONS

PARTITIONS = 6
COUNT = 600
UNTIL_S = 60
Parts = frozenset[int]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The format of the store."""
    return str(request.param)


@pytest.fixture
def server(tmp_path: Path, backend: str) -> Iterator[Running]:
    """A server with the topic t: six partitions, a hundred records each."""
    place = ("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    running = Running(*place, *OPTIONS[backend])
    fill(running)
    yield running
    running.process.kill()
    running.process.communicate()


def fill(running: Running) -> None:
    """Create the topic t with its records."""
    address = running.facts["kafka"]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(10)
    send(address, range(COUNT))


def send(address: str, numbers: Sequence[int]) -> None:
    """Send numbers to t, in turns to each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in numbers:
        producer.produce("t", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Member:
    """A consumer of confluent-kafka in a thread: notes its records and every change of its partitions."""

    def __init__(self, address: str, *, group: str = "g", **options: Any) -> None:
        self.values: list[int] = []
        self.changes: list[tuple[str, Parts]] = []
        self.parts: Parts = frozenset()
        self._ending = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **options,
            }
        )
        self._consumer.subscribe(
            ["t"], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        self._change("assign", partitions)

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        self._change("revoke", partitions)

    def _lost(self, _: Any, partitions: Sequence[Any]) -> None:
        self._change("lost", partitions)

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
        """Leave the group; a static member stays."""
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


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + UNTIL_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)


def lag(running: Running, group: str = "g") -> int:
    """Return a group's lag over HTTP."""
    status, found = running.call("GET", f"/groups/{group}")
    assert status == 200
    counted = [row for row in found["partitions"] if row["committed"] is not None]
    return int(found["lag"]) if len(counted) == PARTITIONS else -1


def shares(*members: Member) -> bool:
    """Return whether the members share all partitions, none twice and each at least one."""
    owned = Counter(number for one in members for number in one.parts)
    return owned == Counter(range(PARTITIONS)) and all(one.parts for one in members)


# -- confluent-kafka (librdkafka)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(server: Running, member: Callable[..., Member], strategy: str) -> None:
    address = server.facts["kafka"]
    options = {"partition.assignment.strategy": strategy}
    first = member(address, **options)
    until(lambda: len(first.values) == COUNT, "the first reads everything")
    second = member(address, **options)
    until(lambda: shares(first, second), "two members share")
    third = member(address, **options)
    until(lambda: shares(first, second, third), "three members share")
    send(address, range(COUNT, 2 * COUNT))
    until(
        lambda: len({*first.values, *second.values, *third.values}) == 2 * COUNT,
        "everything is read",
    )
    second.close()
    until(lambda: shares(first, third), "the others take over")
    until(lambda: lag(server) == 0, "everything is committed")
    assert not any(kind == "lost" for one in (first, third) for kind, _ in one.changes)


def test_a_cooperative_rebalance_moves_only_what_must_move(
    server: Running, member: Callable[..., Member]
) -> None:
    options = {"partition.assignment.strategy": "cooperative-sticky"}
    first = member(server.facts["kafka"], **options)
    until(lambda: len(first.parts) == PARTITIONS, "the first has all partitions")
    second = member(server.facts["kafka"], **options)
    until(lambda: shares(first, second), "both share")
    revoked = [numbers for kind, numbers in first.changes if kind == "revoke" and numbers]
    assert revoked == [second.parts]
    assert len(first.parts) == PARTITIONS // 2


def test_a_static_member_restarts_without_a_rebalance(
    server: Running, member: Callable[..., Member]
) -> None:
    address = server.facts["kafka"]
    first = member(address, **{"group.instance.id": "one"})
    second = member(address, **{"group.instance.id": "two"})
    until(lambda: shares(first, second), "both share")
    status, before = server.call("GET", "/groups/g")
    seen = list(second.changes)
    first.close()
    again = member(address, **{"group.instance.id": "one"})
    until(lambda: again.parts == frozenset(range(PARTITIONS)) - second.parts, "it is back")
    time.sleep(1)  # some heartbeats: a rebalance would show
    assert second.changes == seen
    status, after = server.call("GET", "/groups/g")
    assert (status, after["generation"]) == (200, before["generation"])


def test_a_second_client_with_the_instance_id_fences_the_first(server: Running) -> None:
    address = server.facts["kafka"]
    options = {
        "bootstrap.servers": address,
        "group.id": "g",
        "group.instance.id": "one",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6000,
    }
    first, second = (confluent_kafka.Consumer(options) for _ in range(2))
    first.subscribe(["t"])
    until(lambda: first.poll(0.1) or first.assignment(), "the first has partitions")
    second.subscribe(["t"])
    until(lambda: second.poll(0.1) or second.assignment(), "the second has partitions")

    def is_fenced() -> bool:
        record = first.poll(0.1)
        error = None if record is None else record.error()
        fatal = confluent_kafka.KafkaError._FATAL
        return error is not None and error.code() == fatal and "fenced" in error.str()

    until(is_fenced, "the first is fenced")
    second.close()
    first.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_go_on_after_the_server_was_killed(
    tmp_path: Path, member: Callable[..., Member], strategy: str, backend: str
) -> None:
    address = f"127.0.0.1:{free_ports()}"
    place: tuple[str | Path, ...] = ("--data", tmp_path / "store", "--listen-kafka", address)
    options = (*place, *OPTIONS[backend])
    server = Running(*options)
    fill(server)
    members = [member(address, **{"partition.assignment.strategy": strategy}) for _ in range(2)]
    until(lambda: shares(*members), "both share")
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
        until(lambda: shares(*members), "both share again")
        until(lambda: lag(server) == 0, "everything is committed")
    finally:
        for one in members:
            one.close()
        server.stop()


def test_a_restart_of_the_server_is_no_rebalance(
    tmp_path: Path, member: Callable[..., Member]
) -> None:
    """Members, generation and assignment are restored: no partition is taken away, and no record is read twice."""
    address = f"127.0.0.1:{free_ports()}"
    options = ("--data", tmp_path / "store", "--listen-kafka", address)
    server = Running(*options)
    fill(server)
    members = [member(address, **{"client.id": f"c{number}"}) for number in range(2)]
    until(lambda: shares(*members), "both share")
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
    finally:
        for one in members:
            one.close()
        server.stop()


# -- other clients


KAFKA_PYTHON = """
import sys
import kafka

address, count = sys.argv[1], int(sys.argv[2])

def member():
    return kafka.KafkaConsumer(
        "t", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
        consumer_timeout_ms=30_000, max_poll_records=50,
    )

first = member()
seen = [int(next(first).value) for _ in range(count // 2)]
first.commit()
first.close()
second = member()
seen += [int(next(second).value) for _ in range(count // 2)]
assert sorted(seen) == list(range(count))
second.commit()
admin = kafka.KafkaAdminClient(bootstrap_servers=address)
found = admin.describe_groups(["g"])["g"]
print(found["group_state"], len(found["members"]))
second.close()
admin.close()
"""
"""A program of its own: the client uses modules of Python that are deprecated, which is an error in this suite."""


def test_kafka_python(server: Running) -> None:
    """A member reads half, commits and leaves; another goes on there."""
    program = (sys.executable, "-P", "-c", KAFKA_PYTHON)
    assert run(*program, server.facts["kafka"], str(COUNT)) == "Stable 1\n"
    assert lag(server) == 0


async def test_aiokafka(server: Running, backend: str) -> None:
    """Two members share; offsets carry metadata where the format has room; one that ends leaves its partitions."""
    options: dict[str, Any] = {
        "bootstrap_servers": server.facts["kafka"],
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 200,
    }
    first = aiokafka.AIOKafkaConsumer("t", **options)
    await first.start()
    assert len(first.assignment()) == PARTITIONS
    second = aiokafka.AIOKafkaConsumer("t", **options)
    await second.start()
    async with asyncio.timeout(UNTIL_S):
        while len(first.assignment()) != PARTITIONS // 2:  # noqa: ASYNC110  # the client has no event
            await asyncio.sleep(0.05)
    at = min(first.assignment())
    await first.commit({at: aiokafka.structs.OffsetAndMetadata(7, "half way")})
    assert await first.committed(at) == 7
    await second.stop()
    async with asyncio.timeout(UNTIL_S):
        while len(first.assignment()) != PARTITIONS:  # noqa: ASYNC110  # the client has no event
            await asyncio.sleep(0.05)
    await first.stop()
    status, found = server.call("GET", "/groups/g")
    (row,) = found["partitions"]
    metadata = "half way" if backend == "kafka" else ""
    assert (status, row["committed"], row["metadata"]) == (200, 7, metadata)


def test_kcat(server: Running) -> None:
    kcat = ("kcat", "-b", server.facts["kafka"], "-X", "auto.offset.reset=earliest", "-q", "-e")
    read = run(*kcat, "-G", "g", "t")
    assert sorted(map(int, read.split())) == list(range(COUNT))
    assert lag(server) == 0
    assert run(*kcat, "-G", "g", "t") == ""


def test_our_command_line_shows_the_members(server: Running, member: Callable[..., Member]) -> None:
    one = member(server.facts["kafka"], **{"client.id": "worker"})
    until(lambda: len(one.values) == COUNT and lag(server) == 0, "everything is committed")
    shown = fine("group", "show", "g", "--server", server.facts["url"]).document
    assert shown["lag"] == 0
    assert [name.startswith("worker-") for name in shown["members"]] == [True]
    refused = command("group", "delete", "g", "--server", server.facts["url"])
    assert "has 1 member" in refused.err


def run(*words: str) -> str:
    """Run a program; return its output."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
