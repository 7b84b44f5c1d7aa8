"""Transactional producers of public Kafka clients against a server in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from logserver.bench.targets.tools import free_ports
from tests.http.running import Running

PARTITIONS = 3
COUNT = 60
UNTIL_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server with the topics in and out."""
    running = Running("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    create(running, "in", "out")
    yield running
    running.process.kill()
    running.process.communicate()


def create(running: Running, *topics: str) -> None:
    """Create topics."""
    admin = AdminClient({"bootstrap.servers": running.facts["kafka"]})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
        created.result(10)


def producer(running: Running, name: str = "tx", **options: Any) -> confluent_kafka.Producer:
    """Return a transactional producer that has begun."""
    found = confluent_kafka.Producer(
        {
            "bootstrap.servers": running.facts["kafka"],
            "transactional.id": name,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            **options,
        }
    )
    found.init_transactions(20)
    return found


def consumer(running: Running, group: str = "readers", **options: Any) -> confluent_kafka.Consumer:
    """Return a consumer of committed records."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.facts["kafka"],
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
            **options,
        }
    )


def committed(running: Running, topic: str = "out", **options: Any) -> list[str]:
    """Return the committed records of a topic, up to the end of each partition, sorted."""
    reader = consumer(running, **{"enable.partition.eof": True, **options})
    reader.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    until_s = time.monotonic() + UNTIL_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until_s
        record = reader.poll(1)
        if record is None:
            continue
        if record.error() is None:
            found.append(record.value().decode())
        elif record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(record.partition())
    reader.close()
    return sorted(found)


def send(to: confluent_kafka.Producer, values: Sequence[str], topic: str = "out") -> None:
    """Send records, in turns to each partition."""
    for at, value in enumerate(values):
        to.produce(topic, value.encode(), partition=at % PARTITIONS)


def numbers(count: int = COUNT) -> list[str]:
    return [f"{number:05}" for number in range(count)]


def test_commit_and_abort(server: Running) -> None:
    """Readers of committed records see whole transactions; the next transaction of a producer goes on."""
    one = producer(server)
    for turn in range(4):
        one.begin_transaction()
        send(one, [f"{turn}-{number}" for number in range(COUNT)])
        if turn % 2:
            assert one.flush(20) == 0
        if turn % 2:
            one.abort_transaction(20)
        else:
            one.commit_transaction(20)
    expected = sorted(f"{turn}-{number}" for turn in (0, 2) for number in range(COUNT))
    assert committed(server) == expected
    everything = committed(server, **{"isolation.level": "read_uncommitted"})
    assert set(everything) > set(expected)
    status, rows = server.call("GET", "/transactions")
    assert status == 200
    assert [(row["transactional_id"], row["state"]) for row in rows] == [("tx", "CompleteAbort")]


def transform(server: Running, to: confluent_kafka.Producer, group: str, fails: bool) -> list[str]:
    """Consume ten records of a group and write them upper-case, with their offsets, in one transaction."""
    reader = consumer(server, group)
    reader.subscribe(["in"])
    found: list[Any] = []
    until_s = time.monotonic() + UNTIL_S
    while len(found) < 10 and time.monotonic() < until_s:
        found += [r for r in reader.consume(10 - len(found), 1.0) if r.error() is None]
    to.begin_transaction()
    send(to, [record.value().decode() + "!" for record in found])
    ends: dict[int, int] = {}
    for record in found:
        ends[record.partition()] = record.offset() + 1
    to.send_offsets_to_transaction(
        [confluent_kafka.TopicPartition("in", number, at) for number, at in ends.items()],
        reader.consumer_group_metadata(),
        20,
    )
    if fails:
        to.abort_transaction(20)
    else:
        to.commit_transaction(20)
    reader.close()
    return [record.value().decode() for record in found]


def test_consume_transform_produce(server: Running) -> None:
    """Each record is written once, though every second transaction is aborted."""
    plain = confluent_kafka.Producer({"bootstrap.servers": server.facts["kafka"]})
    send(plain, numbers(30), "in")
    assert plain.flush(20) == 0
    one = producer(server)
    done: list[str] = []
    for turn in range(6):
        found = transform(server, one, "work", fails=turn % 2 == 0)
        if turn % 2:
            done += found
    assert sorted(done) == numbers(30)
    assert committed(server) == [value + "!" for value in numbers(30)]
    reader = consumer(server, "work")
    at = reader.committed([confluent_kafka.TopicPartition("in", n) for n in range(PARTITIONS)], 10)
    assert sum(one.offset for one in at) == 30
    reader.close()


def test_fencing(server: Running) -> None:
    """A second producer of a transactional id rolls back the first one's transaction, and fences it."""
    old = producer(server)
    old.begin_transaction()
    send(old, ["old"])
    assert old.flush(20) == 0
    new = producer(server)
    new.begin_transaction()
    send(new, ["new"])
    new.commit_transaction(20)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        old.commit_transaction(20)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    assert refused.value.args[0].fatal()
    assert committed(server) == ["new"]


def test_time_out(server: Running) -> None:
    """The server ends a transaction that takes too long; its records are not seen, and readers go on."""
    brief: dict[str, Any] = {"transaction.timeout.ms": 1000, "message.timeout.ms": 1000}
    slow = producer(server, **brief)
    slow.begin_transaction()
    send(slow, ["slow"])
    assert slow.flush(20) == 0
    other = producer(server, "other")
    other.begin_transaction()
    send(other, numbers(6))
    other.commit_transaction(20)
    until_s = time.monotonic() + UNTIL_S
    while server.call("GET", "/transactions?state=CompleteAbort")[1] == []:
        assert time.monotonic() < until_s
        time.sleep(0.2)
    with pytest.raises(confluent_kafka.KafkaException):
        slow.commit_transaction(20)
    assert committed(server) == numbers(6)


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_restart_in_the_middle(tmp_path: Path, kill: int) -> None:
    """A producer goes on with its transaction after a stop or a kill of the server."""
    port = free_ports()
    options = ("--data", tmp_path / "store", "--listen-kafka", f"127.0.0.1:{port}")
    first = Running(*options)
    create(first, "out")
    one = producer(first)
    one.begin_transaction()
    send(one, numbers(30))
    assert one.flush(20) == 0
    first.stop(kill)
    second = Running(*options)
    try:
        send(one, [f"9{value}" for value in numbers(30)])
        one.commit_transaction(40)
        assert committed(second) == sorted([*numbers(30), *(f"9{v}" for v in numbers(30))])
        one.begin_transaction()
        send(one, ["more"])
        one.commit_transaction(20)
        assert "more" in committed(second)
    finally:
        second.stop(signal.SIGKILL)


AIOKAFKA = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

async def main(address):
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="aio")
    await producer.start()
    for turn in range(4):
        await producer.begin_transaction()
        for number in range(30):
            await producer.send_and_wait("out", f"{turn}-{number}".encode(), partition=number % 3)
        await producer.send_offsets_to_transaction({TopicPartition("in", 0): turn + 1}, "aio-group")
        if turn % 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest", group_id="aio-group",
        enable_auto_commit=False,
    )
    await consumer.start()
    assert await consumer.committed(TopicPartition("in", 0)) == 3
    consumer.assign([TopicPartition("out", number) for number in range(3)])
    found = []
    while len(found) < 60:
        for rows in (await consumer.getmany(timeout_ms=5000)).values():
            found += [row.value.decode() for row in rows]
    assert sorted(found) == sorted(f"{turn}-{number}" for turn in (0, 2) for number in range(30)), found
    await consumer.stop()
    other = AIOKafkaProducer(bootstrap_servers=address, transactional_id="aio")
    await other.start()
    await producer.begin_transaction()
    try:
        await producer.send_and_wait("out", b"late", partition=0)
    except ProducerFenced:
        print("fenced")
    await other.stop()
    try:
        await producer.stop()
    except ProducerFenced:
        pass

asyncio.run(main(sys.argv[1]))
"""

KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

address = sys.argv[1]
producer = KafkaProducer(bootstrap_servers=address, transactional_id="python")
producer.init_transactions()
for turn in range(4):
    producer.begin_transaction()
    for number in range(30):
        producer.send("out", f"{turn}-{number}".encode(), partition=number % 3)
    producer.send_offsets_to_transaction({TopicPartition("in", 0): OffsetAndMetadata(turn + 1, "", -1)}, "python-group")
    if turn % 2:
        producer.abort_transaction()
    else:
        producer.commit_transaction()
producer.close()
consumer = KafkaConsumer(
    bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest",
    consumer_timeout_ms=2000, group_id="python-group", enable_auto_commit=False,
)
assert consumer.committed(TopicPartition("in", 0)) == 3
consumer.assign([TopicPartition("out", number) for number in range(3)])
found = sorted(record.value.decode() for record in consumer)
assert found == sorted(f"{turn}-{number}" for turn in (0, 2) for number in range(30)), found
print("fenced")
"""


@pytest.mark.parametrize("program", [AIOKAFKA, KAFKA_PYTHON], ids=["aiokafka", "kafka-python"])
def test_other_clients(server: Running, program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, server.facts["kafka"]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split() == ["fenced"]
    assert len(committed(server)) == 60


WRITER = """
import sys, confluent_kafka

address, turns = sys.argv[1], int(sys.argv[2])
producer = confluent_kafka.Producer({
    "bootstrap.servers": address, "transactional.id": "tx", "log_level": 0, "reconnect.backoff.max.ms": 300,
    "transaction.timeout.ms": 60000,
})
producer.init_transactions(60)
for turn in range(turns):
    producer.begin_transaction()
    for number in range(9):
        producer.produce("out", f"{turn}-{number}".encode(), partition=number % 3)
    if turn % 3 == 2:  # else it may send the end of a transaction that the server does not know yet
        assert producer.flush(60) == 0
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)
    print(turn, flush=True)
"""


AIOKAFKA_WRITER = """
import asyncio, sys
from aiokafka import AIOKafkaProducer, TopicPartition

async def main(address, turns):
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="tx", transaction_timeout_ms=60000)
    await producer.start()
    for turn in range(turns):
        await producer.begin_transaction()
        sent = [
            await producer.send("out", f"{turn}-{number}".encode(), partition=number % 3) for number in range(9)
        ]
        await asyncio.gather(*sent)
        await producer.send_offsets_to_transaction({TopicPartition("in", 0): turn + 1}, "work")
        if turn % 3 == 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
        print(turn, flush=True)
    await producer.stop()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("program", [WRITER, AIOKAFKA_WRITER], ids=["confluent", "aiokafka"])
def test_kills_in_the_middle(tmp_path: Path, program: str) -> None:
    """A server that is killed again and again: nothing that was acknowledged is lost or doubled, and no aborted record
    is seen.
    """
    port = free_ports()
    options = ("--data", tmp_path / "store", "--listen-kafka", f"127.0.0.1:{port}")
    running = Running(*options)
    turns = 60
    try:
        create(running, "in", "out")
        plain = confluent_kafka.Producer({"bootstrap.servers": running.facts["kafka"]})
        for number in numbers(turns):
            plain.produce("in", number.encode(), partition=0)
        assert plain.flush(20) == 0
        with subprocess.Popen(
            [sys.executable, "-P", "-c", program, running.facts["kafka"], str(turns)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            assert writer.stderr is not None
            answered = -1
            for line in writer.stdout:
                answered = int(line)
                if answered % 8 == 7:
                    time.sleep(answered % 3 * 0.004)
                    running.stop(signal.SIGKILL)
                    running = Running(*options)
            errors = writer.stderr.read()
            assert writer.wait(60) == 0, errors[-3000:]
        assert answered == turns - 1
        expected = [f"{turn}-{n}" for turn in range(turns) if turn % 3 != 2 for n in range(9)]
        assert committed(running) == sorted(expected)
        if program is AIOKAFKA_WRITER:
            _, group = running.call("GET", "/groups/work")
            (at,) = group["partitions"]
            assert (at["topic"], at["partition"], at["committed"]) == ("in", 0, turns - 1)
    finally:
        running.stop(signal.SIGKILL)
