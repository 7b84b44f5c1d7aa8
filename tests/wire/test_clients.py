"""Public Kafka clients do their ordinary work against a server in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import storage
from logserver import LogServer
from storage import Isolation, TopicPartition
from storage.kafka.format.batch import split_batches
from tests.http.running import Running, Serve
from tests.sources import ROOT
from tests.tour import take_the_tour
from tests.wire.harness import BACKENDS, OPTIONS

COUNT = 1000


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The format of the store."""
    return str(request.param)


@pytest.fixture
def address(serve: Serve, tmp_path: Path, backend: str) -> str:
    """The address for Kafka clients of a running server."""
    return str(started(serve, tmp_path / "store", *OPTIONS[backend]).facts["kafka"])


def started(serve: Serve, path: Path, *options: str) -> Running:
    """Start a server with a port for Kafka clients."""
    return serve("--data", path, "--listen-kafka", "127.0.0.1:0", *options)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts servers; all servers end with the test."""
    running: list[Running] = []

    def start(*options: str | Path) -> Running:
        running.append(Running(*options))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def run(*words: str, given: str = "") -> str:
    """Run a program; return its output."""
    ended = subprocess.run(
        words, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_page(tmp_path: Path) -> None:
    """Every command of the page prints the output in the page."""
    take_the_tour(ROOT / "docs" / "kafka-protocol.md", tmp_path)


def test_kcat(address: str) -> None:
    lines = "".join(f"k{number}:v{number}\n" for number in range(COUNT))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        kcat = ("kcat", "-b", address, "-t", codec)
        run(*kcat, "-P", "-K:", "-z", codec, "-X", "enable.idempotence=true", given=lines)
        assert run(*kcat, "-C", "-e", "-q", "-K:") == lines
        assert run(*kcat, "-C", "-e", "-q", "-o", "-1") == f"v{COUNT - 1}\n"
        assert run(*kcat, "-C", "-q", "-o", "10", "-c", "1") == "v10\n"
    assert 'topic "zstd" with 1 partitions' in run("kcat", "-b", address, "-L")
    assert run("kcat", "-b", address, "-Q", "-t", "zstd:0:1") == "zstd [0] offset 0\n"


def test_librdkafka_compresses(serve: Serve, tmp_path: Path) -> None:
    """Old and new librdkafka send batches in the codec of their settings: see FIRST_ADVERTISED."""
    address = str(started(serve, tmp_path / "store").facts["kafka"])
    value = "v" * 5000
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        run("kcat", "-b", address, "-t", codec, "-P", "-z", codec, given=value)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "compression.type": codec}
        )
        producer.produce(codec, value)
        assert producer.flush(20) == 0
        log = (tmp_path / "store" / f"{codec}-0" / f"{0:020}.log").read_bytes()
        codecs = [header.codec for _, header in split_batches(log)]
        assert codecs == [number, number], codec


def test_confluent_kafka(address: str, backend: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    config, value = {"kafka": ("retention.ms", "100000000"), "rocketmq": ("perm", "4")}[backend]
    new = NewTopic("t", 3, 1, config={config: value})
    admin.create_topics([new])["t"].result(10)
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([new])["t"].result(10)
    problems: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4"}
    )
    for number in range(COUNT):
        producer.produce(
            "t",
            b"%d" % number,
            on_delivery=lambda error, _: problems.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert problems == []
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("t", number, 0) for number in range(3)])
    found: set[bytes] = set()
    deadline_s = time.monotonic() + 20
    while len(found) < COUNT and time.monotonic() < deadline_s:
        found |= {message.value() for message in consumer.consume(500, 1.0)}
    assert found == {b"%d" % number for number in range(COUNT)}
    ends = [
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", n)) for n in range(3)
    ]
    assert sum(high for _, high in ends) == COUNT
    consumer.close()
    resource = ConfigResource("topic", "t")
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs[config].value == value
    assert admin.describe_cluster().result(10).controller.id == 1
    own = {"__consumer_offsets"} if backend == "kafka" else set()
    assert set(admin.list_topics(timeout=5).topics) == {"t", *own}
    admin.delete_topics(["t"])["t"].result(10)
    assert set(admin.list_topics(timeout=5).topics) == own


def test_a_compacted_topic(serve: Serve, tmp_path: Path) -> None:
    """After a cleaning a consumer gets each key once, with its newest value at its old offset, from any offset on."""
    running = started(serve, tmp_path / "store", "--set=log.cleaner.backoff.ms=1")
    address = str(running.facts["kafka"])
    configs = {"cleanup.policy": "compact", "max.compaction.lag.ms": "100"}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(10)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    sent: list[tuple[bytes, bytes | None]] = [
        (b"%d" % (number * 3 % 20), b"%d" % number) for number in range(100)
    ]
    sent += [(b"7", None), (b"new", b"in the segment that takes appends")]
    for key, value in sent:
        if key == b"new":
            time.sleep(0.2)  # the segment in use ends at the next append
        producer.produce("t", value, key=key)
        assert producer.flush(20) == 0
    offsets = {key: offset for offset, (key, _) in enumerate(sent)}
    newest = [(offset, *sent[offset]) for offset in sorted(offsets.values())]
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )

    def read(start: int) -> list[tuple[int, bytes, bytes | None]]:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, start)])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append((message.offset(), message.key(), message.value()))
        assert message is not None, "no end of the partition"
        return found

    deadline_s = time.monotonic() + 20
    while len(read(0)) > len(newest) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert read(0) == newest
    assert read(50) == newest  # offset 50 is no longer stored
    assert read(100) == newest[-2:]
    consumer.close()


KAFKA_PYTHON = """
import sys
import kafka
from kafka.admin import KafkaAdminClient

address, count = sys.argv[1], int(sys.argv[2])
for codec in (None, "gzip", "lz4"):
    producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all", compression_type=codec)
    for number in range(count):
        producer.send("t", b"%d" % number)
    producer.flush(20)
    producer.close()
partition = kafka.TopicPartition("t", 0)
consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
consumer.assign([partition])
assert consumer.end_offsets([partition]) == {partition: 3 * count}
found = [next(consumer).value for _ in range(3 * count)]
assert found == [b"%d" % number for number in range(count)] * 3
consumer.close()
admin = KafkaAdminClient(bootstrap_servers=address)
print([topic["name"] for topic in admin.describe_topics(["t"])])
admin.close()
"""
"""A program of its own: the client uses modules of Python that are deprecated, which is an error in this suite."""


def test_kafka_python(address: str) -> None:
    program = (sys.executable, "-P", "-c", KAFKA_PYTHON)
    assert run(*program, address, str(COUNT)) == "['t']\n"


async def test_aiokafka(address: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    sent = [await producer.send("t", b"%d" % number) for number in range(COUNT)]
    assert [(await one).offset for one in sent] == list(range(COUNT))
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([aiokafka.TopicPartition("t", 0)])
    await consumer.start()
    assert [(await consumer.getone()).offset for _ in range(COUNT)] == list(range(COUNT))
    await consumer.stop()


def test_an_embedded_server_has_the_address() -> None:
    """A temporary store has a port for Kafka clients by itself, unless it is in memory."""
    for backend in (None, "rocketmq"):
        with LogServer(backend=backend) as server:
            assert server.kafka is not None
            assert "0 topics" in run("kcat", "-b", server.kafka, "-L")
    with LogServer(backend="memory") as server:
        assert server.kafka is None


def test_nothing_is_lost_or_stored_twice_after_kills(
    serve: Serve, tmp_path: Path, backend: str
) -> None:
    """An idempotent producer goes on over three kills of the server."""
    path = tmp_path / "store"
    running = started(serve, path, *OPTIONS[backend])
    address = str(running.facts["kafka"])
    acknowledged: list[int] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "message.timeout.ms": 60_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def noted(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged.append(int(message.value()))

    number = 0
    for _ in range(3):
        seen = len(acknowledged)
        while len(acknowledged) < seen + 400:
            if number - len(acknowledged) > 500:
                producer.poll(0.01)
                continue
            producer.produce("t", b"%d" % number, partition=0, on_delivery=noted)
            number += 1
            producer.poll(0)
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.communicate()
        running = serve("--data", path, "--listen-kafka", address)
    assert producer.flush(60) == 0
    assert sorted(acknowledged) == list(range(number))
    output = run("kcat", "-b", address, "-C", "-t", "t", "-p", "0", "-e", "-q")
    assert list(map(int, output.split())) == list(range(number))


@pytest.mark.parametrize(
    ("level", "isolation"),
    [
        ("read_committed", Isolation.READ_COMMITTED),
        ("read_uncommitted", Isolation.READ_UNCOMMITTED),
    ],
)
@pytest.mark.parametrize("name", ["txn", "txnopen"])
def test_transactions_of_a_real_broker(
    serve: Serve, golden_dir: Path, tmp_path: Path, name: str, level: str, isolation: Isolation
) -> None:
    """A client sees the records that a reader of the files sees: committed ones, or all."""
    path = tmp_path / "store"
    shutil.copytree(golden_dir / name / "data", path)
    address = str(started(serve, path).facts["kafka"])
    with storage.open_store("kafka", path, read_only=True) as store:
        for topic, info in store.topics().items():
            for number in info.partitions:
                partition = TopicPartition(topic, number)
                expected = [record.offset for record in store.scan(partition, isolation=isolation)]
                output = run(
                    *("kcat", "-b", address, "-C", "-e", "-q", "-f", "%o\\n", "-t", topic),
                    *("-p", str(number), "-X", f"isolation.level={level}"),
                )
                assert list(map(int, output.split())) == expected
